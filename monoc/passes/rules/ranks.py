"""ranks: a push of rows that lie in memory, and the sum over ranks of what nobody folds."""

from __future__ import annotations

from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser, slice_units
from monoc.passes.knobs import SLICE_COLUMNS
from monoc.skeletons.rank_reduce import RankPushParams, RankReduceParams

__all__ = ["fuse_push", "fuse_rank_sum"]


def fuse_push(f: Fuser, op: Operation) -> bool:
    """A push of an input."""
    source = op.reads[0]
    if f.graph.producers(source):
        return False
    value, hidden = op.writes[0].partition("@")[0], f.dim(source, 1)
    slices = f"({hidden} // {SLICE_COLUMNS})"
    params = RankPushParams(
        stage=f"{f.short(source)}_push",
        region=f.hold(value, "ranks", slices, SLICE_COLUMNS),
        source=f.names.argument(source),
        rank="rank",
        hidden=hidden,
        columns=SLICE_COLUMNS,
        two_hop=f.two_hop,
    )
    f.add(params.stage, params, [op])
    return True


def fuse_rank_sum(f: Fuser, op: Operation) -> bool:
    """A sum over ranks that leaves the launch."""
    value = op.writes[0]
    if not f.in_memory(value):
        return False
    made = f.held(value, "ranks")
    params = RankReduceParams(
        stage=f"{f.short(value)}_reduce",
        region=made.region,
        out=f.names.argument(value),
        hidden=f.dim(value, 1),
        columns=SLICE_COLUMNS,
        two_hop=f.second_hop(value, f"({f.dim(value, 1)} // {SLICE_COLUMNS})", SLICE_COLUMNS),
    )
    f.add(params.stage, params, [op], reads={made.region: slice_units(SLICE_COLUMNS, made)})
    return True
