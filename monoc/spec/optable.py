"""The structured operations of the language, in one table.

An operation is what index notation cannot say: contractions with quantised weights, quantisation, RoPE, KV
records, key tables, attention, routing, exchange between ranks, re-grouping of axes. Its typing rule is in
monoc/spec/oprules.py. Shapes below are one rank's; ``t`` is the token axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from monoc.spec import oprules
from monoc.spec.opcheck import OpCheck
from monoc.spec.program import AttributeValue, ValueType

__all__ = ["OPS", "AttributeKind", "AttributeSpec", "OpSpec", "OperandSpec"]


class AttributeKind(StrEnum):
    """What an attribute of an operation may be."""

    SIZE = "size"  # an integer expression over dimensions and build parameters
    SIZES = "sizes"  # a list of them
    REAL = "real"  # a constant expression, rounded to fp32 once
    CHOICE = "choice"  # one of `choices`
    FUNCTION = "function"  # a `fn` of the spec with one of `arities` parameters


@dataclass(frozen=True)
class OperandSpec:
    """An operand of an operation."""

    name: str
    optional: bool = False  # may be left out or guarded off: the operation does without it
    written: bool = False  # the operation writes it in place


@dataclass(frozen=True)
class AttributeSpec:
    """A keyword of an operation."""

    name: str
    kind: AttributeKind
    default: AttributeValue | None = None
    choices: tuple[str, ...] = ()
    arities: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpSpec:
    """A structured operation: what it takes, how many results it has, the rule of their types."""

    name: str
    operands: tuple[OperandSpec, ...]
    attributes: tuple[AttributeSpec, ...]
    results: int | None  # None: as many as the statement names
    rule: Callable[[OpCheck], tuple[ValueType, ...]]
    doc: str


def _operands(text: str) -> tuple[OperandSpec, ...]:
    """``x w? cache!``: ``?`` optional, ``!`` written in place."""
    return tuple(OperandSpec(n.rstrip("?!"), n.endswith("?"), n.endswith("!")) for n in text.split())


def _size(name: str, default: AttributeValue | None = None) -> AttributeSpec:
    return AttributeSpec(name, AttributeKind.SIZE, default)


def _real(name: str, default: float | None = None) -> AttributeSpec:
    return AttributeSpec(name, AttributeKind.REAL, default)


def _function(name: str, *arities: int) -> AttributeSpec:
    return AttributeSpec(name, AttributeKind.FUNCTION, arities=arities)


_TABLE = (
    OpSpec(
        "linear", _operands("x w"), (), 1, oprules.linear,
        "Written `x @ w`: f32 [.., n] = x [.., k] times w [n, k] transposed. bf16 x with bf16 w; MXFP8 x with "
        "MXFP8 or MXFP4 w. fp32 accumulation, in any order. A weight sharded by columns gives a partial sum.",
    ),
    OpSpec(
        "grouped_linear", _operands("x w"), (), 1, oprules.grouped_linear,
        "f32 [t, g, n] = each group's x [t, g, k] times its n rows of w [g * n, k].",
    ),
    OpSpec(
        "expert_linear", _operands("x w ids"), (), 1, oprules.expert_linear,
        "f32 [t, p, n] = x [t, k] (or [t, p, k]) times rows of expert ids[t, p] of w [experts, n, k].",
    ),
    OpSpec(
        "mxfp8", _operands("x"), (AttributeSpec("rule", AttributeKind.CHOICE, None, ("V", "M")),), 1, oprules.mxfp8,
        "MXFP8 of x: e4m3 values and an E8M0 code per 32 along the last axis. Rule V takes q = max(amax, "
        "2^-126) / 448 and codes 0..254, rule M q = max(amax, 1e-10) * fp32(1 / 448) and codes 1..254; the "
        "code is the biased exponent of the smallest power of two >= q.",
    ),
    OpSpec(
        "rope", _operands("x table positions"), (), 1, oprules.rope,
        "f32: pairs (2j, 2j+1) of the last w columns of x turned by row positions[t] of table [*, w] (w/2 "
        "cosines, then w/2 sines): e*cos - o*sin, e*sin + o*cos, each product rounded. Other columns pass.",
    ),
    OpSpec(
        "unrope", _operands("x table positions"), (), 1, oprules.rope,
        "The inverse of `rope`: e*cos + o*sin, o*cos - e*sin.",
    ),
    OpSpec(
        "kv_insert", _operands("cache! x slots"), (_size("rope"),), 0, oprules.kv_insert,
        "Writes the KV record of x [t, d] (bf16) at slot slots[t] of the cache, nothing for slot -1: d - rope "
        "columns as e4m3 with a code per 64 (q = max(amax, 1e-4) / 448), rope columns as bf16.",
    ),
    OpSpec(
        "key_table",
        _operands("positions slots window_slots window_lens requests picks? block_table? compressed?"),
        (_size("ratio"),), 2, oprules.key_table,
        "keys i32 [t, picks + window], counts i32 [2, t]. First min((position + 1) // ratio, picks) "
        "compressed rows through the block table, bit 31 set (-1 stays -1), none for ratio 0; then the "
        "window's slots; then -1. Without a block table the picks are slots of the compressed cache. Where picks has "
        "`<= n` columns, as many as its rows are wide count for n (several rows further apart than wide: as many as "
        "lie between two), and entries past the keys may be anything. counts: keys and compressed keys of the token, "
        "0 for slot -1.",
    ),
    OpSpec(
        "attend", _operands("q keys counts sink window compressed? factor?"),
        (_function("score", 1, 2), _size("rope")), 1, oprules.attend,
        "bf16 [t, h, d]: sink attention of q [t, h, d] over the KV records the table lists (keys with bit 31 "
        "are rows of `compressed`); keys are values. score(q . k), with a factor score(q . k, factor[t, h]), is the "
        "base-2 logit; softmax in base 2, "
        "sink * log2 e of the head in the denominator only, probabilities rounded to bf16 for the values. No "
        "keys: zeros.",
    ),
    OpSpec(
        "sinkhorn", _operands("z"), (_size("iterations"), _real("eps")), 1, oprules.sinkhorn,
        "f32 [t, n, n]: e = exp2((z - rowmax) * log2 e); first e = fma(e, rcp(rowsum), eps), then columns e * "
        "rcp(colsum + eps); then iterations - 1 times rows e * rcp(rowsum + eps) and columns. Sums pairwise.",
    ),
    OpSpec(
        "route", _operands("score bias? ids?"), (_size("topk"), _function("weigh", 2)), 2, oprules.route,
        "ids i32 [t, topk], weights f32 [t, topk]: the topk largest score + bias (a NaN never wins; ties: "
        "lowest expert % 64, then lowest expert), or the given ids (one out of range or given twice becomes the "
        "lowest expert the token does not have, with score 0); weights are weigh(score, sum of the picked scores in "
        "pick order). A NaN score is 0.",
    ),
    OpSpec(
        "all_reduce", _operands("x"), (), 1, oprules.all_reduce,
        "The ranks' partial x added in rank order in fp32, rounded once to x's type; every rank gets the same "
        "bits.",
    ),
    OpSpec(
        "split", _operands("x"), (AttributeSpec("sizes", AttributeKind.SIZES),), None, oprules.split,
        "x's last axis cut into `sizes`, or into as many equal parts as there are results.",
    ),
    OpSpec("group", _operands("x"), (_size("into"),), 1, oprules.group, "[.., d] as [.., into, d / into]."),
    OpSpec("flatten", _operands("x"), (), 1, oprules.flatten, "The last two axes as one."),
    OpSpec("concat", _operands("a b"), (), 1, oprules.concat, "a and b along the last axis."),
)  # fmt: skip

OPS: Mapping[str, OpSpec] = {op.name: op for op in _TABLE}
