"""The router's logits: bf16 rows times the bf16 gate matrix, split over K parts whose sums the route stage adds."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import formula
from monoc.schedule.model import LdsMember, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg

__all__ = ["RouterParams"]


@dataclass(frozen=True)
class RouterParams:
    """``logits[t][e][part] = sum over the part's columns of gate[e, c] * rows[t, c]`` in fp32.

    ``rows``: region of bf16 rows, ``hidden / 2`` words a token, a unit a token. ``gate``: bf16 [experts, hidden],
    row-major. ``logits``: region of f32 words [token][expert][part]; a task a unit: 16 experts at a time, then the
    ``parts`` parts, every token of theirs. ``hidden``: a multiple of 32. ``flight``: words of rows a thread asks for
    ahead.
    """

    stage: str
    rows: str
    logits: str
    gate: str
    hidden: str
    experts: str
    parts: str
    tokens: str = "b.tokens"
    flight: int = 64
    template: str = "router"

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        return (TensorArg(self.gate, "bf16", (self.experts, self.hidden)),)

    def describe(self) -> StageShape:
        tasks = formula(f"cdiv({self.experts}, 16) * ({self.parts})")
        return StageShape(
            tasks=tasks,
            # token tiles take turns with two sets of sums
            lds=(LdsMember("sums", "f32", formula(f"min(2, cdiv({self.tokens}, 16)) * THREADS * 4")),),
            reads=(RegionRead(self.rows, Units(formula("0"), formula(self.tokens)), part=formula(self.parts)),),
            writes=(
                RegionWrite(
                    self.logits,
                    words=formula(f"{self.tokens} * {self.experts} * ({self.parts})"),
                    units=tasks,
                    task_units=Units(formula("i", task=True)),
                ),
            ),
            weight_bytes=formula(f"16 * {self.hidden} * 2 // ({self.parts})"),
        )
