"""Column slices of a row made of several residual streams: fold, collapse, and partial projections of them all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, LdsMember, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.inputs import Operand, slot_call
from monoc.skeletons.rank_reduce import TwoHop, owner_text

__all__ = ["Coefficients", "RowSliceParams", "partial_words"]


@dataclass(frozen=True)
class Coefficients:
    """A per-token fp32 tensor [tokens, *extents] the slots read as ``tensor``; ``argument``: its kernel argument."""

    tensor: str
    argument: str
    extents: tuple[str, ...]

    @property
    def count(self) -> str:
        return " * ".join(self.extents)


def partial_words(mixes: str) -> str:
    """Words of one (token, slice) of a partials region: the mixes padded to fours, the sum of S^2, a pad."""
    return f"(round_up({mixes}, 4) + 2)"


@dataclass(frozen=True)
class RowSliceParams:
    """Every token's columns ``columns`` i .. + ``columns`` (task i), all ``streams`` of them.

    ``S[t,s,c] = fold(...)`` where ``fold_when`` holds, else the residual as it is; stored bf16 to ``settled``.
    ``h[t,c] = collapse(...)`` goes to region ``row`` (bf16 pairs [token][hidden / 2], unit: a slice). Region
    ``partials`` ([token][slice][:func:`partial_words`], unit: a slice) gets ``sum over the slice of (hi + lo)[j,s,c]
    * S[t,s,c]`` for the ``mixes`` rows j of the fp32 weight (hi = bf16(w), lo = bf16(w - hi): both products exact in
    fp32), then the sum of S^2. Region ``row_squares`` ([token][slice] fp32 words, unit: a slice) gets the sum of h^2,
    for consumers that norm the row themselves.

    ``settled_region``: S handed on too, bf16 pairs [token][stream][hidden / 2], unit: a slice (for a norm stage that
    collapses by gates not known yet).

    Slots: inputs are accesses of ``residual_value`` [t, stream, c], ``pending_value`` [t, c], ``settled_value``
    [t, stream, c] (collapse only) and ``coefficients`` [t, ...]; in ``fold`` the output's stream is variable
    ``stream_index``. ``pending``: bf16 [tokens, hidden] in memory, or with ``pending_region`` the all-reduce region of
    :class:`~monoc.skeletons.rank_reduce.RankPushParams`, summed over ranks in order and rounded to bf16.

    ``two_hop``: the builds in which each rank sums its own columns of ``pending_region`` and gets the others'.
    ``columns``: a multiple of 32, ``columns / vector`` a power of two up to 64; ``vector``: columns a thread (4 or 8).
    """

    stage: str
    hidden: str
    streams: str
    mixes: str
    columns: str
    residual: str
    settled: str
    weight: str
    partials: str
    row: str = ""
    fold: Slot | None = None
    collapse: Slot | None = None
    fold_when: Formula = TRUE
    pending: str = ""
    pending_region: str = ""
    coefficients: tuple[Coefficients, ...] = ()
    residual_value: str = "R"
    pending_value: str = "x"
    settled_value: str = "S"
    stream_index: str = "s"
    settled_region: str = ""
    row_squares: str = ""
    two_hop: TwoHop | None = None
    vector: str = "4"
    tokens: str = "b.tokens"
    tp: str = "b.tp"
    template: str = "row_slice"

    @property
    def slices(self) -> str:
        return f"({self.hidden} // {self.columns})"

    @property
    def part(self) -> str:
        return partial_words(self.mixes)

    @property
    def owner(self) -> str:
        """The rank that owns a task's columns on two hops."""
        return owner_text(f"task * {self.columns}", self.hidden, self.tp)

    def slots(self) -> tuple[Slot, ...]:
        return tuple(s for s in (self.fold, self.collapse) if s is not None)

    def _operands(self) -> tuple[Operand, ...]:
        return tuple(
            Operand(c.tensor, f"in_{c.argument}", tuple((i + 1, e) for i, e in enumerate(c.extents)))
            for c in self.coefficients
        )

    @property
    def fold_call(self) -> str:
        """S of stream ``stream_index``, column v of the thread's."""
        if self.fold is None:
            return ""
        own = (
            Operand(self.residual_value, "old", ((1, self.streams),), "[v]"),
            Operand(self.pending_value, "x", (), "[v]"),
        )
        return slot_call(self.fold, (*own, *self._operands()), {self.stream_index: "stream"})

    @property
    def collapse_call(self) -> str:
        """h of column v of the thread's."""
        assert self.collapse is not None
        own = (Operand(self.settled_value, "new", ((1, self.streams),), "[v]"),)
        return slot_call(self.collapse, (*own, *self._operands()), {})

    def arguments(self) -> tuple[TensorArg, ...]:
        stream_rows = (self.tokens, self.streams, self.hidden)
        pending = () if not self.pending else (TensorArg(self.pending, "bf16", (self.tokens, self.hidden)),)
        return (
            TensorArg(self.residual, "bf16", stream_rows),
            *pending,
            *(TensorArg(c.argument, "f32", (self.tokens, *c.extents)) for c in self.coefficients),
            TensorArg(self.weight, "f32", (self.mixes, f"{self.streams} * {self.hidden}")),
            TensorArg(self.settled, "bf16", stream_rows),
            *(self.two_hop.arguments() if self.two_hop else ()),
        )

    def describe(self) -> StageShape:
        tasks, unit = formula(self.slices), Units(formula("i", task=True))
        reads = (RegionRead(self.pending_region, unit),) if self.pending_region else ()
        sums: tuple[RegionWrite, ...] = ()
        if self.two_hop:
            reads = (*reads, self.two_hop.read())
            sums = (self.two_hop.write(self.tokens, self.hidden, self.slices),)
        row = RegionWrite(
            self.row, words=formula(f"{self.tokens} * ({self.hidden} // 2)"), units=tasks, task_units=unit
        )
        partials = RegionWrite(
            self.partials,
            words=formula(f"{self.tokens} * {self.slices} * {self.part}"),
            units=tasks,
            task_units=unit,
        )
        streams = RegionWrite(
            self.settled_region,
            words=formula(f"{self.tokens} * {self.streams} * ({self.hidden} // 2)"),
            units=tasks,
            task_units=unit,
        )
        squares = RegionWrite(
            self.row_squares,
            words=formula(f"{self.tokens} * {self.slices}"),
            units=tasks,
            task_units=unit,
        )
        optional = ((self.row, row), (self.row_squares, squares), (self.settled_region, streams))
        stride = f"{self.streams} * {self.columns} // 2 + 4"
        return StageShape(
            tasks=tasks,
            lds=(
                LdsMember("slice", "i32", formula(f"{self.tokens} * ({stride})")),
                # both bf16 parts of 16 rows x 32 columns, 16 bytes a lane each
                LdsMember("weights", "i32", formula(f"cdiv({self.mixes}, 16) * {self.streams} * {self.columns} * 16")),
            ),
            writes=(
                *sums,
                *(replace(w, step=2) if sums else w for w in (*(write for name, write in optional if name), partials)),
            ),
            reads=reads,
            weight_bytes=formula(f"4 * {self.mixes} * {self.streams} * {self.columns}"),
        )
