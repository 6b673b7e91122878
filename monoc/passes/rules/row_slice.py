"""row-slice: streams folded, collapsed and mixed, a column slice of every token a task.

    S[t,s,c] = fold(...) when folding else R[t,s,c]        h[t,c] = collapse(sum over s of ...)
    mix[t,j] = sum[s,c] (bf16(w) + bf16(w - bf16(w))) * S[t,s,c]        ss[t] = sum[s,c] S[t,s,c]^2

S is stored; h goes out column by column, mix and ss as partial sums of the slice. The rank sum of the folded value is
taken along: its slices are the same.
"""

from __future__ import annotations

from monoc.expr.ir import Access, Binary, BinaryOp, Reduce, ReduceOp, walk
from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser, slice_units
from monoc.passes.knobs import SLICE_COLUMNS
from monoc.passes.patterns import is_copy, squared, two_bf16_parts
from monoc.schedule.model import TRUE, Units
from monoc.skeletons.row_slice import Coefficients, RowSliceParams

__all__ = ["fuse_row_slice"]


def fuse_row_slice(f: Fuser, mix: Operation) -> bool:
    """A mix of streams, with what belongs to it."""
    operands = _mix_operands(mix)
    if operands is not None:
        _fuse(f, mix, *operands)
    return operands is not None


def _mix_operands(mix: Operation) -> tuple[str, str] | None:
    """(weight, streams) of a mix."""
    expr = mix.map.expr
    if not (isinstance(expr, Reduce) and expr.op is ReduceOp.SUM and len(expr.over) == 2):
        return None
    body = expr.body
    if not (isinstance(body, Binary) and body.op is BinaryOp.MUL):
        return None
    for weight, row in ((body.a, body.b), (body.b, body.a)):
        parts = two_bf16_parts(weight)
        if parts is not None and isinstance(row, Access):
            return parts.tensor, row.tensor
    return None


def _fuse(f: Fuser, mix: Operation, weight: str, streams: str) -> None:
    settle = f.graph.producers(streams)
    folds = [op for op in settle if not is_copy(op)]
    squares = next((op for op in f.graph.consumers(streams) if squared(op) == (streams, 2)), None)
    collapse = _collapse(f, streams)
    later = collapse is None or any(f.graph.producers(v) for v in collapse.reads if v != streams)
    if later:  # the norm stage collapses, by gates this launch computes from the mixes
        collapse = None
    if not settle or len(folds) > 1:
        raise f.error(mix, f"mixes {streams}, which one fold of this launch has to make")
    if squares is None:
        raise f.error(mix, f"needs the sum of squares of {streams} in the same launch")
    fold = folds[0] if folds else None
    pending = _pending(f, fold, streams)
    residual = _residual(f, settle, streams)
    coefficients = _coefficients(f, [op for op in (fold, collapse) if op is not None], {streams, residual, pending})
    from_ranks = [op for op in f.graph.producers(pending) if op.kind == "rank_sum"] if pending else []
    reads: dict[str, Units] = {}
    if from_ranks:
        made = f.held(pending, "ranks")
        reads = {made.region: slice_units(SLICE_COLUMNS, made)}
    hidden = f.dim(streams, 2)
    slices = f"({hidden} // {SLICE_COLUMNS})"
    name = f.stage_name(mix, "slice")
    params = RowSliceParams(
        stage=name,
        hidden=hidden,
        streams=f.dim(streams, 1),
        mixes=f.dim(mix.writes[0], 1),
        columns=SLICE_COLUMNS,
        residual=f.names.argument(residual),
        settled=f.names.argument(streams),
        weight=f.names.argument(weight),
        partials=f.hold(mix.writes[0], "parts", slices, SLICE_COLUMNS),
        row=f.hold(collapse.writes[0], "row", slices, SLICE_COLUMNS) if collapse else "",
        settled_region=f.hold(streams, "streams", slices, SLICE_COLUMNS) if later else "",
        fold=f.slot(f"{name}_fold", fold) if fold else None,
        collapse=f.slot(f"{name}_collapse", collapse) if collapse else None,
        fold_when=f.when(fold) if fold else TRUE,
        pending=f.names.argument(pending) if pending and not from_ranks else "",
        pending_region=next(iter(reads), ""),
        coefficients=coefficients,
        two_hop=f.second_hop(pending, slices, SLICE_COLUMNS) if from_ranks else None,
        residual_value=residual,
        pending_value=pending,
        settled_value=streams,
        stream_index=settle[0].map.index[1],
    )
    f.add(
        name,
        params,
        [*from_ranks, *settle, *([collapse] if collapse else []), mix, squares],
        guard=mix.guard,
        reads=reads,
    )


def _collapse(f: Fuser, streams: str) -> Operation | None:
    """The sum over the streams alone: a row a token."""
    for op in f.graph.consumers(streams):
        if op.kind == "reduce" and len(op.map.index) == 2 and all(len(r.over) == 1 for r in op.map.reductions):
            return op
    return None


def _residual(f: Fuser, settle: tuple[Operation, ...], streams: str) -> str:
    """The streams as they came: read by the fold in the same shape."""
    shape = f.graph.types[streams].shape
    found = dict.fromkeys(v for op in settle for v in op.reads if f.graph.types[v].shape == shape)
    if len(found) != 1:
        raise f.error(settle[0], f"makes {streams} of {len(found)} values of its shape, not of one")
    return next(iter(found))


def _pending(f: Fuser, fold: Operation | None, streams: str) -> str:
    """The value folded in: one row a token."""
    if fold is None:
        return ""
    tokens, _, hidden = f.graph.types[streams].shape
    found = [v for v in fold.reads if f.graph.types[v].shape == (tokens, hidden)]
    if len(found) != 1:
        raise f.error(fold, f"folds {len(found)} rows into {streams}, not one")
    return found[0]


def _coefficients(f: Fuser, maps: list[Operation], others: set[str]) -> tuple[Coefficients, ...]:
    """Per-token numbers the fold and the collapse read."""
    values = dict.fromkeys(n.tensor for op in maps for n in walk(op.map.expr) if isinstance(n, Access))
    return tuple(
        Coefficients(v, f.names.argument(v), tuple(f.dim(v, a) for a in range(1, len(f.graph.types[v].shape))))
        for v in values
        if v not in others
    )
