"""row-norm: a row collapsed by a slice stage, scaled by its own root mean square, rounded and quantised.

hh[t] = sum[c] h[t,c]^2        y[t,c] = scale(h[t,c], rsq(... hh[t] ...), w[c])        y8 = mxfp8(y), by rule V or M

The row is handed over whole, or as streams that the norm sums by gates of the launch.
"""

from __future__ import annotations

from dataclasses import replace

from monoc.expr.ir import Access, Expr, IndexVar, walk
from monoc.expr.slot import Slot
from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser
from monoc.passes.patterns import largest, only_reads, squared, swap
from monoc.skeletons.row_norm import MxOutput, RowNormParams, RowWeight

__all__ = ["RSTD", "fuse_row_norm", "mx_outputs", "norm_slots"]

RSTD = "rstd"


def fuse_row_norm(f: Fuser, squares: Operation) -> bool:
    """A row some slice stage hands over, or the streams it is the sum of."""
    row, axes = squared(squares) or ("", 0)
    if axes != 1:
        return False
    if f"{row}/row" in f.made:
        _fuse(f, squares, row, None)
        return True
    collapse = next((op for op in f.graph.producers(row) if op.kind == "reduce"), None)
    streams = None if collapse is None else next((v for v in collapse.reads if f"{v}/streams" in f.made), None)
    if collapse is None or streams is None:
        return False
    _fuse(f, squares, row, (collapse, streams))
    return True


def _fuse(f: Fuser, squares: Operation, row: str, collapsed: tuple[Operation, str] | None) -> None:
    """``collapsed``: the sum over streams that is the row, and the streams; None: the row is handed over."""
    scale = f.consumer(squares.writes[0], ("map",))
    if scale is None or row not in scale.reads:
        raise f.error(squares, f"sums the squares of {row}, but no map scales {row} by it")
    y, made = scale.writes[0], f.held(collapsed[1], "streams") if collapsed else f.held(row, "row")
    name = f.stage_name(squares, "norm")
    quantised = [op for op in f.graph.consumers(y) if op.kind == "mxfp8"]
    plain = [op for op in f.graph.consumers(y) if op.kind != "mxfp8"]
    rstd, scaled, weights = norm_slots(f, name, squares, scale, row)
    params = RowNormParams(
        stage=name,
        hidden=f.dim(y, 1),
        row=made.region,
        row_units=made.units,
        rstd=rstd,
        scale=scaled,
        weights=weights,
        out=f.names.argument(y) if f.in_memory(y) else "",
        out_when=f.leaves_when(y),
        rows=f.hold(y, "rows", "b.tokens") if plain else "",
        mx=mx_outputs(f, y, quantised),
        row_value=row,
        rstd_value=RSTD,
    )
    if collapsed is not None:
        params = _collapsing(f, params, *collapsed)
    f.add(name, params, [*([collapsed[0]] if collapsed else []), squares, scale, *quantised])


def _collapsing(f: Fuser, params: RowNormParams, collapse: Operation, streams: str) -> RowNormParams:
    """The same norm of the sum ``collapse`` of ``streams``, by gates a token program hands over."""
    gates = [v for v in collapse.reads if v != streams]
    if len(gates) != 1:
        raise f.error(collapse, f"sums {streams} by {len(gates)} values, not by one row of gates a token")
    return replace(
        params,
        value=f.slot(f"{params.stage}_collapse", collapse),
        streams=f.dim(streams, 1),
        streams_value=streams,
        gates=f.held(gates[0], "gates").region,
        gates_value=gates[0],
        gate_count=f.dim(gates[0], 1),
    )


def mx_outputs(f: Fuser, value: str, quantised: list[Operation]) -> tuple[MxOutput, ...]:
    """A region a rule of the quantisations of ``value``, a unit a token."""
    outputs: dict[str, MxOutput] = {}
    for op in quantised:
        rule = str(f.attribute(op, "rule"))
        if rule not in outputs:
            outputs[rule] = MxOutput(f.hold(value, f"mx_{rule.lower()}", "b.tokens"), "V" if rule == "V" else "M")
        f.also(op.writes[0], "mx", f.held(value, f"mx_{rule.lower()}"))
    return tuple(outputs.values())


def norm_slots(
    f: Fuser, name: str, squares: Operation, scale: Operation, row: str
) -> tuple[Slot, Slot, tuple[RowWeight, ...]]:
    """(rstd, scale, weights) of ``y = scale(x, rstd(sum), w)``: rstd is the outermost part of the expression that reads
    the sum alone."""
    total = squares.writes[0]

    def factor_of_sum(expr: Expr) -> bool:
        return only_reads(expr, total) and not isinstance(expr, Access)

    part = largest(scale.map.expr, factor_of_sum)
    if part is None:
        raise f.error(scale, f"takes no factor computed from {total} alone")
    rest = swap(scale.map.expr, part, Access(RSTD, (IndexVar(scale.map.index[0]),)))
    weights = dict.fromkeys(n.tensor for n in walk(rest) if isinstance(n, Access) and n.tensor not in (row, RSTD))
    return (
        f.slot_of(f"{name}_rstd", scale, part),
        f.slot_of(f"{name}_scale", scale, rest),
        tuple(RowWeight(w, f.names.argument(w)) for w in weights),
    )
