"""bf16 rows to MXFP8 rows: where no stage in front holds whole groups of 32 columns in one task."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import formula
from monoc.schedule.model import Form, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.mxrows import mx_row_words

__all__ = ["QuantiseParams"]


@dataclass(frozen=True)
class QuantiseParams:
    """Task i: columns ``columns`` i .. (a multiple of 32) of every token; unit i of ``out``.

    ``rows``: region of bf16 pairs [token][width / 2] whose unit holds ``unit_columns`` columns (divides ``columns``) of
    every token. ``out``: region of MXFP8 rows of ``width`` values (``monoc/device/mxrows.py``). ``code``: device
    function of a group's E8M0 code, ``mx_code`` for rule V, ``mx_code_floor`` for rule M.
    """

    stage: str
    rows: str
    out: str
    width: str
    unit_columns: str
    columns: str = "32"
    code: str = "mx_code"
    tokens: str = "b.tokens"
    template: str = "quantise"

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        return ()

    def describe(self) -> StageShape:
        tasks = formula(f"cdiv({self.width}, {self.columns})")
        units = f"({self.columns}) // ({self.unit_columns})"
        return StageShape(
            tasks=tasks,
            reads=(RegionRead(self.rows, Units(formula(f"i * ({units})", task=True), formula(units))),),
            writes=(
                RegionWrite(
                    self.out,
                    words=formula(f"{self.tokens} * {mx_row_words(self.width)}"),
                    units=tasks,
                    task_units=Units(formula("i", task=True)),
                    default=Form.FLAG,
                ),
            ),
        )
