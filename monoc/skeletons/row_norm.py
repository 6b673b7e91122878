"""One token's whole row: normalised, and handed on as bf16 and as MXFP8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, ZERO, Form, LdsMember, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.inputs import Operand, slot_call
from monoc.skeletons.mxrows import mx_row_words

__all__ = ["MxOutput", "RowNormParams", "RowWeight", "mx_write"]


@dataclass(frozen=True)
class RowWeight:
    """A bf16 vector [columns] the slots read as ``tensor`` [c]; ``argument``: its kernel argument."""

    tensor: str
    argument: str


@dataclass(frozen=True)
class MxOutput:
    """The row as MXFP8 in ``region`` (``monoc/device/mxrows.py``), codes by ``rule`` V or M."""

    region: str
    rule: Literal["V", "M"] = "V"

    @property
    def code(self) -> str:
        """The device function of the rule."""
        return {"V": "mx_code", "M": "mx_code_floor"}[self.rule]


def mx_write(out: MxOutput, tokens: str, columns: str) -> RegionWrite:
    """Rows of every token, a unit a token, task t writing row t. Many tasks read each row: flags by default."""
    return RegionWrite(
        out.region,
        words=formula(f"{tokens} * {mx_row_words(columns)}"),
        units=formula(tokens),
        task_units=Units(formula("i", task=True)),
        default=Form.FLAG,
    )


@dataclass(frozen=True)
class RowNormParams:
    """Task t: ``y[t,c] = scale(x[t,c], rstd(sum over c of x^2), weights[c])``, rounded to bf16 by the slot.

    ``x`` is region ``row`` (bf16 pairs [token][hidden / 2], ``row_units`` units, all waited for). With ``streams`` the
    region holds [token][streams][hidden / 2] and ``x[t,c] = value(...)`` of ``streams_value`` [t, stream, c] and, from
    region ``gates`` (fp32 words [token][``gate_count``], a unit a token), ``gates_value`` [t, k].

    ``rstd``: a slot of the sum alone (none: the sum as it is). ``scale`` reads ``row_value`` [t, c], ``rstd_value``
    [t] and ``weights`` [c]. Outputs, each optional: ``out``, bf16 [tokens, hidden] in memory where ``out_when``
    holds; ``rows``, a region of bf16 rows (a unit a token); ``mx``, MXFP8 regions. ``hidden``: a multiple of 32. Sum
    order: a thread's columns, eight at a time; lanes 1, 2, 4, ... apart; waves in order.

    With ``squares`` the sums of x^2 come from the slices: fp32 words [token][``slices``] (``row_units`` units, all
    waited for), summed by every wave for itself (``monoc/device/partials.py``): no exchange between the waves.
    """

    stage: str
    hidden: str
    row: str
    row_units: str
    scale: Slot
    rstd: Slot | None = None
    weights: tuple[RowWeight, ...] = ()
    out: str = ""
    out_when: Formula = TRUE
    rows: str = ""
    mx: tuple[MxOutput, ...] = ()
    row_value: str = "h"
    rstd_value: str = "rstd"
    value: Slot | None = None
    streams: str = ""
    streams_value: str = "S"
    gates: str = ""
    gates_value: str = "pre"
    gate_count: str = ""
    squares: str = ""
    slices: str = ""
    tokens: str = "b.tokens"
    template: str = "row_norm"

    def slots(self) -> tuple[Slot, ...]:
        return tuple(s for s in (self.value, self.rstd, self.scale) if s is not None)

    @property
    def value_call(self) -> str:
        """x of column v of a thread's eight."""
        assert self.value is not None
        own = (
            Operand(self.streams_value, "streams", ((1, self.streams),), "[v]"),
            Operand(self.gates_value, "gates", ((1, self.gate_count),)),
        )
        return slot_call(self.value, own, {})

    @property
    def scale_call(self) -> str:
        """y of column v of a thread's eight."""
        weights = tuple(Operand(w.tensor, f"in_{w.argument}[turn]", (), "[v]") for w in self.weights)
        own = (Operand(self.row_value, "x[turn]", (), "[v]"), Operand(self.rstd_value, "factor"))
        return slot_call(self.scale, (*own, *weights), {})

    def arguments(self) -> tuple[TensorArg, ...]:
        out = (TensorArg(self.out, "bf16", (self.tokens, self.hidden)),) if self.out else ()
        return (*(TensorArg(w.argument, "bf16", (self.hidden,)) for w in self.weights), *out)

    def describe(self) -> StageShape:
        unit = Units(formula("i", task=True))
        reads = [RegionRead(self.row, Units(ZERO, formula(self.row_units)), part=formula(self.tokens))]
        if self.gates:
            reads.append(RegionRead(self.gates, unit))
        if self.squares:
            units = Units(ZERO, formula(self.row_units))
            reads.append(RegionRead(self.squares, units, part=formula(self.tokens)))
        writes = [mx_write(o, self.tokens, self.hidden) for o in self.mx]
        if self.rows:
            words = formula(f"{self.tokens} * ({self.hidden} // 2)")
            rows = RegionWrite(self.rows, words=words, units=formula(self.tokens), task_units=unit, default=Form.FLAG)
            writes.insert(0, rows)
        return StageShape(
            tasks=formula(self.tokens),
            lds=() if self.squares else (LdsMember("sums", "f32", formula("THREADS // 64")),),
            reads=tuple(reads),
            writes=tuple(writes),
        )
