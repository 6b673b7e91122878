"""A token's chunks merged per head, the sink in the denominator, turned back and quantised to MXFP8.

Sums: the sink's term, then the chunks in order, all relative to the running maximum; up to ``batch`` chunks a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import formula
from monoc.schedule.model import Form, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.attend_split import KeyTable
from monoc.skeletons.base import TensorArg
from monoc.skeletons.mxrows import mx_row_words

__all__ = ["AttendCombineParams"]


@dataclass(frozen=True)
class AttendCombineParams:
    """Task i: token ``i mod tokens``, heads ``task_heads * (i // tokens)`` .., a wave a head; unit i of ``out``.

    ``region``: what :class:`~monoc.skeletons.attend_split.AttendSplitParams` with the same ``keys``, ``chunk``,
    ``heads`` and ``head`` wrote. ``out``: MXFP8 rows of ``heads * head`` values. ``sink``: f32 [heads], a natural-log
    logit; ``table`` f32 [positions, rope]; ``positions`` i64 [tokens]. ``task_heads``: at most the CTA's waves,
    divides ``heads``. ``head``: a multiple of 64, a power of two of at least 4 values a lane. A token without keys
    gives zeros.
    """

    stage: str
    region: str
    keys: KeyTable
    out: str
    sink: str
    table: str
    positions: str
    heads: str
    head: str
    rope: str
    chunk: str
    task_heads: str
    code: str = "mx_code"
    batch: int = 10
    tokens: str = "b.tokens"
    template: str = "attend_combine"

    @property
    def regions(self) -> tuple[str, ...]:
        return (self.region, self.keys.region, self.out)

    @property
    def chunks(self) -> str:
        return f"cdiv({self.keys.width}, {self.chunk})"

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        return (
            TensorArg(self.sink, "f32", (self.heads,)),
            TensorArg(self.table, "f32", ("0", self.rope)),
            TensorArg(self.positions, "i64", (self.tokens,)),
        )

    def describe(self) -> StageShape:
        tasks = formula(f"{self.tokens} * (({self.heads}) // ({self.task_heads}))")
        token = f"(i % ({self.tokens}))"
        return StageShape(
            tasks=tasks,
            reads=(
                RegionRead(self.region, Units(formula(f"{token} * {self.chunks}", task=True), formula(self.chunks))),
                RegionRead(self.keys.region, Units(formula(token, task=True))),
            ),
            writes=(
                RegionWrite(
                    self.out,
                    words=formula(f"{self.tokens} * {mx_row_words(f'({self.heads}) * ({self.head})')}"),
                    units=tasks,
                    task_units=Units(formula("i", task=True)),
                    default=Form.FLAG,
                ),
            ),
        )
