"""Routing: every token's experts and their weights from the router's logits."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, LdsMember, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg

__all__ = ["RouteParams"]


@dataclass(frozen=True)
class RouteParams:
    """The ``topk`` experts of each token with the largest ``score(logit) + bias``, and their weights.

    ``logits``: region of f32 words [token][expert][part], in :class:`~monoc.skeletons.router.RouterParams`'s units.
    ``score(logit)``: a slot of one input. A NaN score is worth 0 and never wins. Equal keys: the lowest
    ``expert % 64`` first, among those the lowest expert. ``weigh(score, total)``: a slot of two inputs; ``total`` is
    the sum of the picked scores in pick order. ``bias``: f32 [experts]. ``given``: an i32 [tokens, topk] argument with
    each token's experts in place of the search and the bias ("": search); one out of range or given twice becomes the
    lowest expert the token does not have, with score 0. They are given in the builds where ``given_when`` holds.
    ``route``: region of words [copy][token][pick][expert, f32 weight], a unit a token; ``copies`` of it spread the
    readers' polling.
    """

    stage: str
    logits: str
    route: str
    bias: str
    score: Slot
    weigh: Slot
    experts: str
    topk: str
    parts: str
    given: str = ""
    copies: str = "1"
    given_when: Formula = TRUE
    tokens: str = "b.tokens"
    threads: str = "THREADS"
    template: str = "route"

    @property
    def searches(self) -> bool:
        """Whether the experts are searched in some builds."""
        return not self.given or self.given_when != TRUE

    @property
    def search_when(self) -> str:
        """In which builds."""
        return f"not ({self.given_when})" if self.given else "True"

    def slots(self) -> tuple[Slot, ...]:
        return (self.score, self.weigh)

    def arguments(self) -> tuple[TensorArg, ...]:
        bias = (TensorArg(self.bias, "f32", (self.experts,)),) if self.searches else ()
        given = (TensorArg(self.given, "i32", (self.tokens, self.topk)),) if self.given else ()
        return (*bias, *given)

    def describe(self) -> StageShape:
        units = f"cdiv({self.experts}, 16) * ({self.parts})"
        bests = f"{self.threads} // 64 * {self.topk}"
        return StageShape(
            tasks=formula(self.tokens),
            lds=(
                LdsMember("scores", "f32", formula(self.experts)),
                *(LdsMember(name, "i32", formula(bests)) for name in (("keys", "ids") if self.searches else ())),
            ),
            reads=(RegionRead(self.logits, Units(formula("0"), formula(units)), part=formula(self.tokens)),),
            writes=(
                RegionWrite(
                    self.route,
                    words=formula(f"{self.tokens} * {self.topk} * 2"),
                    units=formula(self.tokens),
                    task_units=Units(formula("i", task=True)),
                    copies=formula(self.copies),
                ),
            ),
        )
