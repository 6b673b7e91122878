"""The two halves of an all-reduce over tensor-parallel ranks, by column slices of every token's row."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import formula
from monoc.schedule.model import Form, RegionRead, RegionWrite, Scope, StageShape, Units
from monoc.skeletons.base import TensorArg

__all__ = ["RankPushParams", "RankReduceParams"]


def _tasks(hidden: str, columns: str) -> str:
    return f"cdiv({hidden}, {columns})"


@dataclass(frozen=True)
class RankPushParams:
    """This rank's partial rows in memory, stored to every rank's copy of ``region``.

    ``source``: bf16 [tokens, hidden]; ``rank``: this rank's number (a scalar argument). ``region``: bf16 pairs
    [source rank][token][hidden / 2]; its unit (rank, slice) holds one slice of every token. Task i moves
    columns ``columns`` i .. + ``columns`` (a multiple of 4 that divides ``hidden``).
    """

    stage: str
    region: str
    source: str
    rank: str
    hidden: str
    columns: str
    tokens: str = "b.tokens"
    tp: str = "b.tp"
    template: str = "rank_push"

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        return (TensorArg(self.source, "bf16", (self.tokens, self.hidden)), TensorArg(self.rank, "i64", ()))

    def describe(self) -> StageShape:
        tasks = formula(_tasks(self.hidden, self.columns))
        return StageShape(
            tasks=tasks,
            writes=(
                RegionWrite(
                    self.region,
                    words=formula(f"{self.tp} * {self.tokens} * ({self.hidden} // 2)"),
                    units=tasks,
                    task_units=Units(formula("i", task=True)),
                    scope=Scope.SYSTEM,
                    default=Form.PEER,
                    forms=(Form.PEER,),
                ),
            ),
        )


@dataclass(frozen=True)
class RankReduceParams:
    """``out[t, c] = bf16(sum over ranks in order of region[rank][t][c])``, stored plainly.

    ``out``: bf16 [tokens, hidden]; ``region`` and ``columns`` as in :class:`RankPushParams`.
    """

    stage: str
    region: str
    out: str
    hidden: str
    columns: str
    tokens: str = "b.tokens"
    tp: str = "b.tp"
    template: str = "rank_reduce"

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        return (TensorArg(self.out, "bf16", (self.tokens, self.hidden)),)

    def describe(self) -> StageShape:
        return StageShape(
            tasks=formula(_tasks(self.hidden, self.columns)),
            reads=(RegionRead(self.region, Units(formula("i", task=True))),),
        )
