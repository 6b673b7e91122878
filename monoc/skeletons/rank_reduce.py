"""The two halves of an all-reduce over tensor-parallel ranks, by column slices of every token's row."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import ZERO, Form, RegionRead, RegionWrite, Scope, StageShape, Units
from monoc.skeletons.base import TensorArg

__all__ = ["RankPushParams", "RankReduceParams", "TwoHop", "owner_text"]


def _tasks(hidden: str, columns: str) -> str:
    return f"cdiv({hidden}, {columns})"


def owner_text(column: str, hidden: str, tp: str) -> str:
    """The rank that owns hidden column ``column`` of a two-hop reduce: each has ``hidden / tp`` in a row."""
    return f"({column}) // (({hidden}) // {tp})"


@dataclass(frozen=True)
class TwoHop:
    """The second hop of a reduce, inside the stage that needs the sum.

    In the builds where ``when`` holds, a task whose columns this rank owns sums them over the ranks in order, rounds to
    bf16 and puts them to every rank's ``sums`` (bf16 pairs [token][hidden / 2], unit: a task's slice); then every rank
    reads the sums there. ``rank``: this rank's number (a scalar argument).
    """

    sums: str
    rank: str
    when: Formula

    def write(self, tokens: str, hidden: str, slices: str) -> RegionWrite:
        """The hop's stores: after the parts, before the sums are read."""
        return RegionWrite(
            self.sums,
            words=formula(f"{tokens} * ({hidden} // 2) if {self.when} else 0"),
            units=formula(f"{slices} if {self.when} else 0"),
            task_units=self._unit,
            scope=Scope.SYSTEM,
            default=Form.PEER,
            forms=(Form.PEER,),
        )

    def read(self) -> RegionRead:
        """The sums, read by the stage that wrote them, on every rank."""
        return RegionRead(self.sums, self._unit, step=2)

    @property
    def _unit(self) -> Units:
        return Units(formula("i", task=True), formula(f"1 if {self.when} else 0"))

    def arguments(self) -> tuple[TensorArg, ...]:
        return (TensorArg(self.rank, "i64", ()),)


@dataclass(frozen=True)
class RankPushParams:
    """This rank's partial rows in memory, stored to every rank's copy of ``region``.

    ``source``: bf16 [tokens, hidden]; ``rank``: this rank's number (a scalar argument). ``region``: bf16 pairs
    [source rank][token][hidden / 2]; its unit (rank, slice) holds one slice of every token. Task i moves
    columns ``columns`` i .. + ``columns`` (a multiple of 4 that divides ``hidden``). ``two_hop``: the builds in which
    only the columns' owner gets them (:class:`TwoHop`).
    """

    stage: str
    region: str
    source: str
    rank: str
    hidden: str
    columns: str
    two_hop: Formula = ZERO
    tokens: str = "b.tokens"
    tp: str = "b.tp"
    template: str = "rank_push"

    @property
    def owner(self) -> str:
        """The rank that owns a task's columns."""
        return owner_text(f"task * {self.columns}", self.hidden, self.tp)

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
                    two_hop=self.two_hop,
                ),
            ),
        )


@dataclass(frozen=True)
class RankReduceParams:
    """``out[t, c] = bf16(sum over ranks in order of region[rank][t][c])``, stored plainly.

    ``out``: bf16 [tokens, hidden]; ``region`` and ``columns`` as in :class:`RankPushParams`; ``two_hop``: the builds in
    which each rank sums its own columns and gets the others'.
    """

    stage: str
    region: str
    out: str
    hidden: str
    columns: str
    two_hop: TwoHop | None = None
    tokens: str = "b.tokens"
    tp: str = "b.tp"
    template: str = "rank_reduce"

    @property
    def owner(self) -> str:
        """The rank that owns a task's columns."""
        return owner_text(f"task * {self.columns}", self.hidden, self.tp)

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        rank = self.two_hop.arguments() if self.two_hop else ()
        return (TensorArg(self.out, "bf16", (self.tokens, self.hidden)), *rank)

    def describe(self) -> StageShape:
        slices, hop = _tasks(self.hidden, self.columns), self.two_hop
        return StageShape(
            tasks=formula(slices),
            reads=(RegionRead(self.region, Units(formula("i", task=True))), *((hop.read(),) if hop else ())),
            writes=(hop.write(self.tokens, self.hidden, slices),) if hop else (),
        )
