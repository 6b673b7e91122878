"""token-program: what a token's summed mixes give, one value a lane.

Every map (and Sinkhorn of a small matrix) that depends on nothing but a row slice's mixes, its sum of squares and
weights; those that leave the launch are outputs, the others are folded into their slots.
"""

from __future__ import annotations

from monoc.expr.ir import Binary, BinaryOp, Const, Expr, Fma, Local, ReduceOp, Unary, UnaryOp
from monoc.expr.slot import Slot, SlotInput
from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser
from monoc.passes.patterns import squared
from monoc.schedule.formula import formula
from monoc.skeletons.row_slice import RowSliceParams
from monoc.skeletons.token_program import MatrixProgram, MatrixStep, TokenOutput, TokenProgramParams, TokenWeight

__all__ = ["fuse_token_program"]

_LOG2E = 1.4426950408889634


def fuse_token_program(f: Fuser, anchor: Operation) -> bool:
    """The stage behind the row slice whose mixes ``anchor`` reads."""
    for stage in f.stages:
        if not isinstance(stage.params, RowSliceParams):
            continue
        inside = [f.graph.by_name[name] for name in stage.operations]
        squares = next(op for op in inside if (squared(op) or ("", 0))[1] == 2)
        mix = next(op for op in inside if f"{op.writes[0]}/parts" in f.made)
        if mix.writes[0] in anchor.reads:
            _add(f, stage.params, mix, squares, _cluster(f, {mix.writes[0], squares.writes[0]}))
            return True
    return False


def _cluster(f: Fuser, known: set[str]) -> list[Operation]:
    found: list[Operation] = []
    for op in f.graph.topological():
        made = [v for v in op.reads if f.graph.producers(v)]
        if op.name not in f.taken and op.kind in ("map", "sinkhorn") and made and all(v in known for v in made):
            found.append(op)
            known |= set(op.writes)
    return found


def _add(f: Fuser, slices: RowSliceParams, mix: Operation, squares: Operation, cluster: list[Operation]) -> None:
    name = f.stage_name(mix, "gate")
    maps = [op for op in cluster if op.kind == "map"]
    weights = dict.fromkeys(v for op in maps for v in op.reads if not f.graph.producers(v))
    outputs = []
    for op in cluster:
        value = op.writes[0]
        handed_on = any(reader not in cluster for reader in f.graph.consumers(value))
        if not f.in_memory(value) and not handed_on:
            continue
        label = f"{name}_{f.short(value)}"
        source = f.producer(f.operand(op, "z")) if op.kind == "sinkhorn" else op
        outputs.append(
            TokenOutput(
                slot=f.slot(label, source, [m for m in maps if m is not source]),
                extents=tuple(f.dim(value, a) for a in range(1, len(source.map.index))),
                index=source.map.index[1:],
                argument=f.names.argument(value) if f.in_memory(value) else "",
                region=f.hold(value, "gates", "b.tokens") if handed_on else "",
                program=_sinkhorn(f, op, label) if op.kind == "sinkhorn" else None,
            )
        )
    params = TokenProgramParams(
        stage=name,
        hidden=slices.hidden,
        columns=slices.columns,
        mixes=slices.mixes,
        partials=slices.partials,
        outputs=tuple(outputs),
        weights=tuple(
            TokenWeight(v, f.names.argument(v), tuple(f.dim(v, a) for a in range(len(f.graph.types[v].shape))))
            for v in weights
        ),
        mixes_value=mix.writes[0],
        squares_value=squares.writes[0],
    )
    f.add(name, params, cluster, guard=mix.guard)


def _sinkhorn(f: Fuser, op: Operation, label: str) -> MatrixProgram:
    """Operation ``sinkhorn`` (monoc/spec/optable.py) as steps over rows and columns of a matrix."""
    eps = f.attribute(op, "eps")
    iterations = f.attribute(op, "iterations")
    if not isinstance(eps, float | int):
        raise f.error(op, "needs a constant eps")
    e, total = Local("e"), Local("total")

    def step(suffix: str, result: Expr) -> Slot:
        return Slot(f"{label}_{suffix}", (SlotInput("e"), SlotInput("total")), (), (result,), (op.statement.origin,))

    below_max = Binary(BinaryOp.MUL, Binary(BinaryOp.SUB, e, total), Const(_LOG2E))
    exp = step("exp", Unary(UnaryOp.EXP2, below_max))
    first = step("first", Fma(e, Unary(UnaryOp.RCP, total), Const(float(eps))))
    next_ = step("next", Binary(BinaryOp.MUL, e, Unary(UnaryOp.RCP, Binary(BinaryOp.ADD, total, Const(float(eps))))))
    return MatrixProgram(
        first=(MatrixStep(exp, "row", ReduceOp.MAX), MatrixStep(first, "row"), MatrixStep(next_, "column")),
        loop=(MatrixStep(next_, "row"), MatrixStep(next_, "column")),
        iterations=formula(f"{f.size(op, iterations)} - 1"),
    )
