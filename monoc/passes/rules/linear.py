"""linear: MXFP8 rows times an e4m3 weight, with what follows as its epilogue.

y = bf16(x8 @ w) and then
  a push to every rank                       -> push
  mxfp8(y), mxfp8(activation(gate, up))      -> mx        (y's halves gate and up)
  bf16(rope(y)), or nothing                  -> rows
  norms of y's parts (a latent pair)         -> partials  (K split, the norm stage adds the parts)
"""

from __future__ import annotations

from dataclasses import dataclass

from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser
from monoc.passes.knobs import GATED_TILES, LINEAR_TILES, SPLIT_K
from monoc.passes.patterns import rounds
from monoc.schedule.formula import formula
from monoc.schedule.model import ZERO, Form, Units
from monoc.skeletons.gemv import GemvParams, MxOut, Partials, Push, Rope, Rows, Source
from monoc.spec.buildexpr import BuildInt
from monoc.spec.program import Layout, TensorDecl

__all__ = ["fuse_linear"]

_CODES = {"V": "mx_code", "M": "mx_code_floor"}


@dataclass(frozen=True)
class _Linear:
    """A linear and what its stage takes along. ``value``: what the stage makes; ``gated``: the activation behind it."""

    op: Operation
    weight: TensorDecl
    rows: str
    k: str
    source: Source
    operations: tuple[Operation, ...]
    value: str
    gated: Operation | None = None


def fuse_linear(f: Fuser, op: Operation) -> bool:
    """A linear with a block-scaled e4m3 weight."""
    weight = f.names.program.tensor[f.operand(op, "w")]
    if weight.scale is None:
        return False
    _fuse(f, _found(f, op, weight))
    return True


def _found(f: Fuser, op: Operation, weight: TensorDecl) -> _Linear:
    rounded = f.consumer(op.writes[0], ("map",))
    if rounded is None or not rounds(rounded, op.writes[0]):
        raise f.error(op, "has to be rounded to bf16 by its one reader: write bf16(x @ w)")
    rows, k = (f.width_of(extent.size, op) for extent in weight.shape)
    x = f.operand(op, "x")
    quantise = f.producer(x)
    if quantise.name not in f.taken and f.holds(f.operand(quantise, "x"), "rows"):
        made = f.held(f.operand(quantise, "x"), "rows")
        code = _CODES[str(f.attribute(quantise, "rule"))]
        source = Source(made.region, k, units=Units(ZERO, formula(made.units)), quantised=False, code=code)
        return _Linear(op, weight, rows, k, source, (quantise, op, rounded), rounded.writes[0])
    made = f.held(x, "mx")
    source = Source(made.region, k, units=Units(ZERO, formula(made.units)))
    if op.kind == "grouped_linear":
        source = _grouped(f, op, source)
    return _Linear(op, weight, rows, k, source, (op, rounded), rounded.writes[0])


def _grouped(f: Fuser, op: Operation, source: Source) -> Source:
    """Row tiles of group g contract with columns ``g * k ..`` of the whole row; wait for the units that hold them."""
    x = f.operand(op, "x")
    groups, per_group = f.dim(x, 1), f.dim(op.writes[0], 2)
    made = f.held(x, "mx")
    group = f"(i // ({per_group} // 32))"
    if made.columns:  # units by column blocks, then tokens: a group's are consecutive
        blocks = f"({source.k} // ({made.columns}))"
        units = Units(formula(f"{group} * {blocks} * b.tokens", task=True), formula(f"{blocks} * b.tokens"))
    else:
        units = source.units
    return Source(source.region, f"({groups} * {source.k})", offset=f"{group} * {source.k}", units=units)


def _fuse(f: Fuser, found: _Linear) -> None:
    value = found.value
    views = [v for v in f.graph.views if f.graph.base(v) == value and f.graph.views[v].offset != BuildInt(0)]
    readers = f.graph.consumers(value)
    if views and len(readers) == 1 and readers[0].kind == "map":
        return _gated(f, found, readers[0])
    if views:
        return _partials(f, found)
    after = f.consumer(value, ("push", "mxfp8", "rope"))
    if after is None:
        return _rows(f, found)
    if after.kind == "push":
        return _push(f, found, after)
    if after.kind == "mxfp8":
        return _mx(f, found, after)
    return _rope(f, found, after)


def _add(
    f: Fuser,
    found: _Linear,
    epilogue: Partials | Rows | MxOut | Push,
    operations: list[Operation],
    tiles: int | str = 1,
    parts: int = 1,
) -> GemvParams:
    weight = found.weight
    name = f"{weight.name}_gemv"
    assert weight.scale is not None
    if weight.scale.block != (32, 32) or weight.layout not in (Layout.ROWS, Layout.ROWS_PAD256, Layout.SHUFFLE16):
        raise f.error(found.op, f"needs {weight.name} in 32x32 blocks, row-major or shuffled by 16 x 16 bytes")
    activation = None
    if found.gated is not None:
        gate, up = _halves(f, found)
        activation = f.slot(f"{name}_activation", found.gated, order=(gate, up))
    params = GemvParams(
        stage=name,
        weight=weight.name,
        scale=weight.scale.name,
        rows=found.rows,
        k=found.k,
        source=found.source,
        epilogue=epilogue,
        shuffled=weight.layout is Layout.SHUFFLE16,
        pitch=_pitch(weight, found.k),
        activation=activation,
        tiles=tiles,
        parts=parts,
    )
    f.add(name, params, operations)
    return params


def _pitch(weight: TensorDecl, k: str) -> str:
    """Bytes from a row of ``k`` bytes to the next, "" where rows follow each other."""
    return f"({k} + 256 if {k} % 512 == 0 else {k})" if weight.layout is Layout.ROWS_PAD256 else ""


def _halves(f: Fuser, found: _Linear) -> tuple[str, str]:
    """(gate, up): the first and the second half of the linear's columns."""
    assert found.gated is not None
    parts = sorted(found.gated.reads, key=lambda v: f.graph.views[v].offset != BuildInt(0))
    if len(parts) != 2:
        raise f.error(found.gated, "has to read the two halves of the linear, and nothing else")
    return parts[0], parts[1]


def _gated(f: Fuser, found: _Linear, gated: Operation) -> None:
    found = _Linear(
        found.op, found.weight, found.rows, found.k, found.source, (*found.operations, gated), gated.writes[0], gated
    )
    quantise = f.consumer(found.value, ("mxfp8",))
    reader = f.consumer(quantise.writes[0], ("linear",)) if quantise is not None else None
    if quantise is None or reader is not None:
        # Eight outputs a task instead of an MXFP8 group of 32: four times the tasks for a weight few CTAs would stream;
        # the one linear that reads them quantises them itself.
        return _rows(f, found)
    return _mx(f, found, quantise)


def _partials(f: Fuser, found: _Linear) -> None:
    """The norm stage adds the parts and rounds: only the product is this stage's."""
    tasks = f"cdiv({found.rows}, 16) * {SPLIT_K}"
    region = f.hold(found.value, "parts", tasks)
    _add(f, found, Partials(region), [found.op], parts=SPLIT_K)


def _tiles(f: Fuser, found: _Linear) -> tuple[str, str]:
    """(row tiles, outputs) of a task of a linear that makes bf16."""
    tiles = f.named(f"{found.weight.name}_tiles", LINEAR_TILES.format(rows=found.rows))
    return tiles, f"(16 * {tiles})"


def _rows(f: Fuser, found: _Linear) -> None:
    if found.gated:
        region = f.hold(found.value, "rows", f"cdiv({found.rows} // 2, 8)", "8")
        _add(f, found, Rows(region), list(found.operations))
        return
    tiles, outputs = _tiles(f, found)
    region = f.hold(found.value, "rows", f"cdiv({found.rows}, {outputs})", outputs)
    _add(f, found, Rows(region), list(found.operations), tiles=tiles)


def _mx(f: Fuser, found: _Linear, quantise: Operation) -> None:
    tiles = GATED_TILES if found.gated else 2
    outputs = f"({found.rows} // 2)" if found.gated else found.rows
    rule = str(f.attribute(quantise, "rule"))
    region = f.hold(found.value, f"mx_{rule.lower()}", f"cdiv({outputs}, 32)")
    f.also(quantise.writes[0], "mx", f.held(found.value, f"mx_{rule.lower()}"))
    _add(f, found, MxOut(region, _CODES[rule]), [*found.operations, quantise], tiles=tiles)


def _push(f: Fuser, found: _Linear, push: Operation) -> None:
    tiles, outputs = _tiles(f, found)
    region = f.hold(push.writes[0].partition("@")[0], "ranks", f"cdiv({found.rows}, {outputs})", outputs)
    _add(f, found, Push(region, "rank", two_hop=f.two_hop), [*found.operations, push], tiles=tiles)


def _rope(f: Fuser, found: _Linear, rope: Operation) -> None:
    rounded = f.consumer(rope.writes[0], ("map",))
    if rounded is None or not rounds(rounded, rope.writes[0]):
        raise f.error(rope, "has to be rounded to bf16 by its one reader")
    value = rounded.writes[0]
    table = f.operand(rope, "table")
    turned = Rope(
        f.names.argument(table),
        f.names.argument(f.operand(rope, "positions")),
        f.dim(rope.writes[0], -1),
        f.dim(table, 1),
    )
    tiles, outputs = _tiles(f, found)
    region = f.hold(value, "rows", f"cdiv({found.rows}, {outputs})")
    _add(f, found, Rows(region, turned, default=Form.FLAG), [*found.operations, rope, rounded], tiles=tiles)
