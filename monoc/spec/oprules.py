"""Typing rules of the structured operations (monoc/spec/optable.py): operand checks, result types."""

from __future__ import annotations

from dataclasses import replace

from monoc.diagnostics import Code
from monoc.expr.ir import DType
from monoc.spec.buildexpr import BinOp, BuildBinary, BuildCall, BuildExpr, BuildFunction, BuildInt
from monoc.spec.opcheck import OpCheck, type_text
from monoc.spec.program import (
    REPLICATED,
    Layout,
    ScalarFunction,
    Sharding,
    ShardingKind,
    ValueType,
)

__all__ = [
    "all_reduce", "attend", "concat", "expert_linear", "flatten", "group", "grouped_linear", "key_table", "kv_insert",
    "linear", "mxfp8", "record_bytes", "rope", "route", "sinkhorn", "split",
]  # fmt: skip

MX_BLOCK = 32  # K elements an E8M0 code covers in MXFP8 activations
KV_BLOCK = 64  # columns of a KV record an E8M0 code covers


_FLOATS = (DType.F32, DType.BF16)


def _quotient(a: BuildExpr, b: BuildExpr) -> BuildExpr:
    """``a / b``, a factor ``b`` of ``a`` cancelled."""
    if a == b:
        return BuildInt(1)
    if isinstance(a, BuildBinary) and a.op is BinOp.MUL and b in (a.a, a.b):
        return a.b if a.a == b else a.a
    return BuildBinary(BinOp.DIV, a, b)


def _check_operands(c: OpCheck) -> ValueType:
    """Formats of x and w fit each other; returns w's type."""
    x, w = c.types["x"], c.types["w"]
    if x.block is not None and w.block is None:
        c.fail(Code.DTYPE, f"x of {c.op} is {type_text(x)} but the weight is {type_text(w)}", "x", "give it bf16")
    if x.block is None and w.block is not None:
        c.fail(
            Code.DTYPE, f"x of {c.op} is {type_text(x)} but the weight is {type_text(w)}", "x",
            "quantise it: `mxfp8(x, rule=V)`",
        )  # fmt: skip
    if x.block is None and (x.dtype, w.dtype) != (DType.BF16, DType.BF16):
        c.fail(
            Code.DTYPE, f"{c.op} of {type_text(x)} with a {type_text(w)} weight", "x",
            "bf16 with bf16, or MXFP8 with MXFP8 or MXFP4",
        )  # fmt: skip
    c.whole("x")
    if w.block is not None and w.block[1] != MX_BLOCK:
        c.fail(Code.SCALE_SHAPE, f"the weight's codes cover {w.block[1]} columns", "w", f"blocks of {MX_BLOCK} columns")
    return w


def _contraction(c: OpCheck, x_split: bool, rows: int) -> Sharding:
    """Sharding of a product: ``x_split``, whether x's contracted axis is split; ``rows``, w's row axis."""
    w = c.types["w"].sharding
    columns = len(c.types["w"].shape) - 1
    if w.kind is ShardingKind.PARTIAL:
        c.fail(Code.SHARDING, "a weight cannot be partial", "w")
    w_split = w.kind is ShardingKind.SPLIT and w.axis == columns
    if x_split and not w_split:
        c.fail(
            Code.SHARDING, f"x of {c.op} is split along the axis it is summed over, the weight's columns are not", "x",
            "shard the weight: `shard: columns`",
        )  # fmt: skip
    if w_split and not x_split:
        c.fail(
            Code.SHARDING, f"the weight of {c.op} is split by columns, x is not split along its last axis", "w",
            "remove `shard: columns`, or give each rank its own columns of x",
        )  # fmt: skip
    if w_split:
        return Sharding(ShardingKind.PARTIAL)
    return Sharding(ShardingKind.SPLIT, -1) if w.axis == rows else REPLICATED


def _splits(t: ValueType, axis: int) -> bool:
    return t.sharding.kind is ShardingKind.SPLIT and t.sharding.axis == axis % len(t.shape)


def linear(c: OpCheck) -> tuple[ValueType, ...]:
    """x [.., k] times a weight [n, k]: f32 [.., n]."""
    w = _check_operands(c)
    x = c.types["x"]
    if len(w.shape) != 2 or len(x.shape) < 2:
        c.fail(
            Code.RANK, f"{c.op} of {len(x.shape)} axes with a weight of {len(w.shape)}", "w", "a weight [rows, columns]"
        )
    c.same(x.shape[-1], w.shape[1], f"{c.op}: last axis of x and columns of the weight", "x")
    sharding = _contraction(c, _splits(x, -1), 0)
    last = len(x.shape) - 1
    if x.sharding.kind is ShardingKind.SPLIT and not _splits(x, -1):
        if sharding != REPLICATED:
            c.fail(Code.SHARDING, f"x of {c.op} is {x.sharding} and the weight is sharded too", "x")
        sharding = x.sharding
    elif sharding.axis == -1:
        sharding = replace(sharding, axis=last)
    return (ValueType(DType.F32, (*x.shape[:-1], w.shape[0]), sharding),)


def grouped_linear(c: OpCheck) -> tuple[ValueType, ...]:
    """Group g of x [t, groups, k] times rows g of a weight [groups * n, k]: f32 [t, groups, n]."""
    w = _check_operands(c)
    x = c.types["x"]
    if len(w.shape) != 2 or len(x.shape) != 3:
        c.fail(Code.RANK, f"{c.op} of {len(x.shape)} axes with a weight of {len(w.shape)}", "x", "x [t, groups, k]")
    c.same(x.shape[2], w.shape[1], f"{c.op}: last axis of x and columns of the weight", "x")
    if any(rows % groups for groups, rows in c.pairs(x.shape[1], w.shape[0])):
        c.fail(Code.SHAPE, f"{c.op}: {w.shape[0]} rows of the weight do not divide into {x.shape[1]} groups", "w")
    if _splits(x, 1) is not _splits(w, 0) or (x.sharding.kind is ShardingKind.SPLIT and not _splits(x, 1)):
        c.fail(
            Code.SHARDING, f"x of {c.op} is {x.sharding}, the weight {w.sharding}", "w",
            "shard groups and the weight's rows alike",
        )  # fmt: skip
    return (ValueType(DType.F32, (*x.shape[:2], _quotient(w.shape[0], x.shape[1])), x.sharding),)


def expert_linear(c: OpCheck) -> tuple[ValueType, ...]:
    """x [t, k] (or [t, topk, k]) times the picked experts' weights [experts, n, k]: f32 [t, topk, n]."""
    w = _check_operands(c)
    x = c.types["x"]
    ids = c.want("ids", (DType.I32,), (2,))
    c.replicated("ids")
    if len(w.shape) != 3 or len(x.shape) not in (2, 3):
        c.fail(
            Code.RANK,
            f"{c.op} of {len(x.shape)} axes with a weight of {len(w.shape)}",
            "w",
            "a weight [experts, rows, columns]",
        )
    c.same(x.shape[0], ids.shape[0], f"{c.op}: tokens of x and ids", "ids")
    if len(x.shape) == 3:
        c.same(x.shape[1], ids.shape[1], f"{c.op}: picks of x and ids", "ids")
    c.same(x.shape[-1], w.shape[2], f"{c.op}: last axis of x and columns of the weight", "x")
    sharding = _contraction(c, _splits(x, -1), 1)
    if sharding.axis == -1:
        sharding = replace(sharding, axis=2)
    if w.sharding.axis == 0 and w.sharding.kind is ShardingKind.SPLIT:
        c.fail(
            Code.SHARDING, "experts spread over the ranks are not supported", "w", "`shard: rows` or `shard: columns`"
        )
    return (ValueType(DType.F32, (*ids.shape, w.shape[1]), sharding),)


def mxfp8(c: OpCheck) -> tuple[ValueType, ...]:
    """x as MXFP8: the same shape, a code a 32 columns."""
    x = c.want("x", _FLOATS, (2, 3))
    c.whole("x")
    c.multiple(x.shape[-1], MX_BLOCK, "the last axis of x of mxfp8", "x")
    return (replace(x, dtype=DType.E4M3, block=(1, MX_BLOCK)),)


def rope(c: OpCheck) -> tuple[ValueType, ...]:
    """x with its last columns turned by the positions' angles."""
    x = c.want("x", _FLOATS, (2, 3))
    c.whole("x")
    table = c.want("table", (DType.F32,), (2,))
    positions = c.want("positions", (DType.I64, DType.I32), (1,))
    c.same(x.shape[0], positions.shape[0], f"{c.op}: tokens of x and positions", "positions")
    c.multiple(table.shape[1], 2, f"the width of {c.op}'s table", "table")
    if any(width > columns for width, columns in c.pairs(table.shape[1], x.shape[-1])):
        c.fail(Code.SHAPE, f"{c.op}: the table turns {table.shape[1]} columns, x has {x.shape[-1]}", "table")
    if _splits(x, -1):
        c.fail(Code.SHARDING, f"x of {c.op} is split along the axis that is turned", "x")
    return (replace(x, dtype=DType.F32),)


def record_bytes(width: BuildExpr, rope_width: BuildExpr) -> BuildExpr:
    """Bytes a token takes in an fp8_ds_mla cache: e4m3 nope columns, bf16 rope columns, codes padded to 8."""
    nope = BuildBinary(BinOp.SUB, width, rope_width)
    data = BuildBinary(BinOp.ADD, nope, BuildBinary(BinOp.MUL, BuildInt(2), rope_width))
    codes = BuildCall(BuildFunction.PAD, (BuildBinary(BinOp.DIV, nope, BuildInt(KV_BLOCK)), BuildInt(8)))
    return BuildBinary(BinOp.ADD, data, codes)


def _cache(c: OpCheck, param: str, width: BuildExpr) -> None:
    cache = c.want(param, (DType.U8,), (3,))
    tensor = c.tensors.get(param)
    if tensor is None or tensor.layout is not Layout.FP8_DS_MLA:
        c.fail(
            Code.LAYOUT,
            f"`{param}` of {c.op} is no KV cache",
            param,
            f"declare it under `caches:` with {Layout.FP8_DS_MLA}",
        )
    nope = BuildBinary(BinOp.SUB, width, c.size("rope"))
    c.multiple(nope, KV_BLOCK, f"{c.op}: {width} - {c.size('rope')}", "rope")
    c.same(cache.shape[2], record_bytes(width, c.size("rope")), f"{c.op}: bytes of a record of `{tensor.name}`", param)


def kv_insert(c: OpCheck) -> tuple[ValueType, ...]:
    """x written into a cache's records; no result."""
    x = c.want("x", (DType.BF16,), (2,))
    c.replicated("x")
    slots = c.want("slots", (DType.I64, DType.I32), (1,))
    c.same(x.shape[0], slots.shape[0], f"{c.op}: tokens of x and slots", "slots")
    _cache(c, "cache", x.shape[1])
    return ()


def key_table(c: OpCheck) -> tuple[ValueType, ...]:
    """A token's keys, window and selected rows: i32 [t, width] and counts."""
    tokens = c.want("positions", (DType.I64,), (1,)).shape[0]
    window = c.want("window_slots", (DType.I32,), (2, 3))
    for param, dtype in (("slots", DType.I64), ("window_lens", DType.I32), ("requests", DType.I32)):
        c.same(c.want(param, (dtype,), (1,)).shape[0], tokens, f"{c.op}: tokens of {param} and positions", param)
    c.same(window.shape[0], tokens, f"{c.op}: tokens of window_slots and positions", "window_slots")
    width = window.shape[-1]
    if "picks" in c.types:
        picks = c.want("picks", (DType.I32,), (2,))
        c.same(picks.shape[0], tokens, f"{c.op}: tokens of picks and positions", "picks")
        if "block_table" in c.types:
            c.want("block_table", (DType.I32,), (2,))
            if "compressed" not in c.types:
                c.fail(Code.ARGUMENTS, f"{c.op} with a block_table needs the compressed cache it is of", "block_table")
        width = BuildBinary(BinOp.ADD, picks.shape[1], width)
    return (
        ValueType(DType.I32, (tokens, width)),
        ValueType(DType.I32, (BuildInt(2), tokens)),
    )


def attend(c: OpCheck) -> tuple[ValueType, ...]:
    """q [t, heads, head] against the keys: bf16 of the same shape."""
    q = c.want("q", (DType.BF16,), (3,))
    c.whole("q")
    keys, counts = c.want("keys", (DType.I32,), (2,)), c.want("counts", (DType.I32,), (2,))
    sink = c.want("sink", (DType.F32,), (1,))
    c.same(keys.shape[0], q.shape[0], f"{c.op}: tokens of keys and q", "keys")
    c.same(counts.shape[1], q.shape[0], f"{c.op}: tokens of counts and q", "counts")
    c.same(sink.shape[0], q.shape[1], f"{c.op}: heads of sink and q", "sink")
    if _splits(sink, 0) is not _splits(q, 1) or _splits(q, 0) or _splits(q, 2):
        c.fail(
            Code.SHARDING,
            f"q of {c.op} is {q.sharding}, sink {sink.sharding}",
            "sink",
            "shard both over heads: `shard: rows`",
        )
    score = c.attributes["score"]
    assert isinstance(score, ScalarFunction)
    if len(score.params) != 1 + ("factor" in c.types):
        needs = "the dot product and the factor" if "factor" in c.types else "the dot product alone, without a factor"
        c.fail(Code.ATTRIBUTE, f"`score` of {c.op} takes {needs}", "score")
    if "factor" in c.types:
        factor = c.want("factor", (DType.F32,), (2,))
        c.same(factor.shape[0], q.shape[0], f"{c.op}: tokens of factor and q", "factor")
        c.same(factor.shape[1], q.shape[1], f"{c.op}: heads of factor and q", "factor")
        if _splits(factor, 1) is not _splits(q, 1):
            c.fail(Code.SHARDING, f"q of {c.op} is {q.sharding}, factor {factor.sharding}", "factor")
    _cache(c, "window", q.shape[2])
    if "compressed" in c.types:
        _cache(c, "compressed", q.shape[2])
    return (q,)


def sinkhorn(c: OpCheck) -> tuple[ValueType, ...]:
    """A square matrix a token, scaled to rows and columns of sum 1."""
    z = c.want("z", (DType.F32,), (3,))
    c.replicated("z")
    c.same(z.shape[1], z.shape[2], f"{c.op}: the two axes of z", "z")
    return (z,)


def route(c: OpCheck) -> tuple[ValueType, ...]:
    """The picked experts and their weights: i32 and f32 [t, topk]."""
    score = c.want("score", (DType.F32,), (2,))
    c.replicated("score")
    if "bias" in c.types:
        bias = c.want("bias", (DType.F32,), (1,))
        c.same(bias.shape[0], score.shape[1], f"{c.op}: experts of bias and score", "bias")
    shape = (score.shape[0], c.size("topk"))
    if "ids" in c.types:
        c.same(c.want("ids", (DType.I32,), (2,)).shape[1], shape[1], f"{c.op}: picks of ids and topk", "ids")
    if any(not 1 <= picks <= experts for picks, experts in c.pairs(shape[1], score.shape[1])):
        c.fail(
            Code.ATTRIBUTE, f"route picks {shape[1]} of {score.shape[1]} experts", "topk", "topk from 1 to the experts"
        )
    return ValueType(DType.I32, shape), ValueType(DType.F32, shape)


def all_reduce(c: OpCheck) -> tuple[ValueType, ...]:
    """A partial sum added up over the ranks, the same on all of them."""
    x = c.want("x", (DType.BF16,), (2,))
    if x.sharding.kind is not ShardingKind.PARTIAL:
        c.fail(
            Code.SHARDING,
            f"x of all_reduce is {x.sharding}, not a partial sum",
            "x",
            "remove it: there is nothing to add up",
        )
    return (replace(x, sharding=REPLICATED),)


def split(c: OpCheck) -> tuple[ValueType, ...]:
    """Columns in parts: sizes given, or equal ones."""
    x = c.types["x"]
    sizes = c.attributes.get("sizes")
    if sizes is None:
        if any(columns % n for columns, n in c.pairs(x.shape[-1], BuildInt(c.results))):
            c.fail(
                Code.SHAPE, f"{x.shape[-1]} columns do not split into {c.results} equal parts", "x", "give `sizes=[..]`"
            )
        parts: tuple[BuildExpr, ...] = (_quotient(x.shape[-1], BuildInt(c.results)),) * c.results
    else:
        assert isinstance(sizes, tuple)
        parts = sizes
        if len(parts) != c.results:
            c.fail(Code.RESULTS, f"split has {len(parts)} sizes, the statement {c.results} names", "sizes")
        total = parts[0]
        for p in parts[1:]:
            total = BuildBinary(BinOp.ADD, total, p)
        c.same(total, x.shape[-1], "split: the sum of the sizes and the last axis of x", "sizes")
    if x.block is not None:
        for p in parts:
            c.multiple(p, MX_BLOCK, "a part of a block-scaled value", "x")
    if _splits(x, -1) and sizes is not None:
        c.fail(Code.SHARDING, "x of split is split over the ranks along its last axis", "x", "only equal parts")
    return tuple(replace(x, shape=(*x.shape[:-1], p)) for p in parts)


def group(c: OpCheck) -> tuple[ValueType, ...]:
    """The last axis in ``into`` groups: [t, into, each]."""
    x = c.types["x"]
    into = c.size("into")
    if any(n < 1 or columns % n for columns, n in c.pairs(x.shape[-1], into)):
        c.fail(Code.SHAPE, f"{x.shape[-1]} columns do not divide into {into} groups", "into")
    each = _quotient(x.shape[-1], into)
    if x.block is not None:
        c.multiple(each, MX_BLOCK, "a group of a block-scaled value", "into")
    return (replace(x, shape=(*x.shape[:-1], into, each)),)  # a split last axis: each rank has whole groups


def flatten(c: OpCheck) -> tuple[ValueType, ...]:
    """The last two axes as one."""
    x = c.types["x"]
    if len(x.shape) < 2:
        c.fail(Code.RANK, f"flatten of {len(x.shape)} axes", "x", "two axes or more")
    if _splits(x, -1):
        c.fail(Code.SHARDING, "x of flatten is split along its last axis", "x")
    return (replace(x, shape=(*x.shape[:-2], BuildBinary(BinOp.MUL, x.shape[-2], x.shape[-1]))),)


def concat(c: OpCheck) -> tuple[ValueType, ...]:
    """Columns one after the other."""
    a, b = c.types["a"], c.types["b"]
    if (a.dtype, a.block) != (b.dtype, b.block):
        c.fail(Code.DTYPE, f"concat of {type_text(a)} and {type_text(b)}", "b")
    if len(a.shape) != len(b.shape):
        c.fail(Code.RANK, f"concat of {len(a.shape)} and {len(b.shape)} axes", "b")
    for x, y in zip(a.shape[:-1], b.shape[:-1], strict=True):
        c.same(x, y, "concat: the leading axes", "b")
    if a.sharding != b.sharding or _splits(a, -1):
        c.fail(Code.SHARDING, f"concat of {a.sharding} and {b.sharding}", "b")
    return (replace(a, shape=(*a.shape[:-1], BuildBinary(BinOp.ADD, a.shape[-1], b.shape[-1]))),)
