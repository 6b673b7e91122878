"""A small program a token: split-K partials of its mixes summed, then slots over them, one value a lane."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from monoc.expr.ir import Access, ReduceOp
from monoc.expr.slot import Slot
from monoc.schedule.formula import formula
from monoc.schedule.model import ZERO, LdsMember, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.inputs import SlotOperandError, index_text
from monoc.skeletons.row_slice import partial_words

__all__ = ["MatrixProgram", "MatrixStep", "TokenOutput", "TokenProgramParams", "TokenWeight"]


@dataclass(frozen=True)
class TokenWeight:
    """An fp32 tensor all tokens share, read by the slots as ``tensor``; ``argument``: its kernel argument."""

    tensor: str
    argument: str
    extents: tuple[str, ...]


@dataclass(frozen=True)
class MatrixStep:
    """``e[r,c] = slot(e[r,c], reduction over its row (columns c) or its column (rows r))``.

    ``reduce``: PAIRWISE_SUM or MAX. The slot's inputs, in order: the element, the reduction.
    """

    slot: Slot
    along: Literal["row", "column"]
    reduce: ReduceOp = ReduceOp.PAIRWISE_SUM


@dataclass(frozen=True)
class MatrixProgram:
    """``first`` steps, then ``loop`` steps ``iterations`` times, on a matrix of a power of two rows and columns."""

    first: tuple[MatrixStep, ...]
    loop: tuple[MatrixStep, ...] = ()
    iterations: str = "0"


@dataclass(frozen=True)
class TokenOutput:
    """``out[t, *index] = program(slot(...))``: fp32 [tokens, *extents] in memory (``argument``) and / or region
    ``region``.

    ``extents``: one, or two with a ``program``; at most 64 elements. ``index``: the slot's variables for them.
    """

    slot: Slot
    extents: tuple[str, ...]
    index: tuple[str, ...]
    argument: str = ""
    region: str = ""
    program: MatrixProgram | None = None

    @property
    def label(self) -> str:
        """What the stage's code calls it by."""
        return self.argument or self.region

    @property
    def count(self) -> str:
        return " * ".join(self.extents)


@dataclass(frozen=True)
class TokenProgramParams:
    """Task t: token t's ``partials`` (of :class:`~monoc.skeletons.row_slice.RowSliceParams`) summed over slices, then
    outputs.

    Slots read ``mixes_value`` [t, j], ``squares_value`` [t] (the sum of S^2) and ``weights``. Sum order: consecutive
    slices in order, ``slices / groups`` a lane group; the groups of a wave pairwise; the waves in order.
    """

    stage: str
    hidden: str
    columns: str
    mixes: str
    partials: str
    outputs: tuple[TokenOutput, ...]
    weights: tuple[TokenWeight, ...] = ()
    mixes_value: str = "mix"
    squares_value: str = "ss"
    tokens: str = "b.tokens"
    template: str = "token_program"

    @property
    def slices(self) -> str:
        return f"({self.hidden} // {self.columns})"

    @property
    def part(self) -> str:
        return partial_words(self.mixes)

    def slots(self) -> tuple[Slot, ...]:
        steps = [s for o in self.outputs if o.program for s in (*o.program.first, *o.program.loop)]
        return tuple(dict.fromkeys([*(o.slot for o in self.outputs), *(s.slot for s in steps)]))

    def _variables(self, out: TokenOutput) -> dict[str, str]:
        at = f"{out.label}_at"
        if len(out.index) == 1:
            return {out.index[0]: at}
        return {out.index[0]: f"({at} // {out.extents[1]})", out.index[1]: f"({at} % {out.extents[1]})"}

    def _flat(self, out: TokenOutput, access: Access, extents: tuple[str, ...], first: int) -> str:
        variables = self._variables(out)
        try:
            terms = [index_text(term, variables) for term in access.index[first:]]
        except KeyError as error:
            raise SlotOperandError(f"slot {out.slot.name}: {access.tensor} is indexed by unknown {error}") from None
        text = terms[0]
        for term, extent in zip(terms[1:], extents[1:], strict=True):
            text = f"({text}) * {extent} + {term}"
        return text

    def loads(self, out: TokenOutput) -> tuple[tuple[str, str], ...]:
        """The weight elements the slot of ``out`` reads: (kernel argument, element index), each once."""
        weights = {w.tensor: w for w in self.weights}
        found = []
        for given in out.slot.inputs:
            if given.access is not None and given.access.tensor in weights:
                weight = weights[given.access.tensor]
                found.append((weight.argument, self._flat(out, given.access, weight.extents, 0)))
        return tuple(dict.fromkeys(found))

    def sums(self, out: TokenOutput) -> tuple[str, ...]:
        """The words of a token's summed partials the slot of ``out`` reads, each once."""
        words = {self.squares_value: "part - 2"}
        found = []
        for given in out.slot.inputs:
            if given.access is None:
                raise SlotOperandError(f"slot {out.slot.name}: input {given.name} is no element of anything")
            if given.access.tensor == self.mixes_value:
                found.append(self._flat(out, given.access, (self.mixes,), 1))
            elif given.access.tensor in words:
                found.append(words[given.access.tensor])
        return tuple(dict.fromkeys(found))

    def call(self, out: TokenOutput) -> str:
        """The slot of ``out`` on ``<label>_weights[..]`` and ``total[..]``, as :meth:`loads` and :meth:`sums` order."""
        loads, sums, arguments = self.loads(out), self.sums(out), []
        for given in out.slot.inputs:
            single = replace(out, slot=replace(out.slot, inputs=(given,)))
            if one := self.loads(single):
                arguments.append(f"{out.label}_weights[{loads.index(one[0])}]")
            elif some := self.sums(single):
                arguments.append(f"total[{sums.index(some[0])}]")
            else:
                raise SlotOperandError(f"slot {out.slot.name}: input {given.name} is not at hand")
        return f"{out.slot.name}({', '.join(arguments)})"

    def arguments(self) -> tuple[TensorArg, ...]:
        outs = [TensorArg(o.argument, "f32", (self.tokens, *o.extents)) for o in self.outputs if o.argument]
        return (*(TensorArg(w.argument, "f32", w.extents) for w in self.weights), *outs)

    def describe(self) -> StageShape:
        unit = Units(formula("i", task=True))
        return StageShape(
            tasks=formula(self.tokens),
            lds=(LdsMember("sums", "f32", formula(f"THREADS // 64 * {self.part}")),),
            reads=(RegionRead(self.partials, Units(ZERO, formula(self.slices)), part=formula(self.tokens)),),
            writes=tuple(
                RegionWrite(
                    o.region,
                    words=formula(f"{self.tokens} * {o.count}"),
                    units=formula(self.tokens),
                    task_units=unit,
                )
                for o in self.outputs
                if o.region
            ),
        )
