"""The form of every hand-off, by a cost rule whose numbers are kept as the reason.

Pairs cost one round trip and twice the bytes, polled again and again while the producers work; flags a drain, a CTA
barrier and a second round trip. So short
messages go as pairs and wide rows, which many CTAs read, as flags. The rule compares the two for every step
width, tp and variant with the times of :class:`~monoc.target.model.HandOffCosts`; where it changes its mind
at a step width, the region's form is piecewise. Every region also has its barrier form, the one of
``barriers`` builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from monoc.schedule.formula import formula
from monoc.schedule.model import TRUE, ZERO, Form, FormRule, RegionWrite
from monoc.target.model import HandOffCosts

__all__ = ["BARRIERS", "Traffic", "choose_form"]

BARRIERS = formula("b.barriers")


@dataclass(frozen=True)
class Traffic:
    """What a region's readers read in one build: words of the task that reads most, words of all tasks; how many CTAs
    poll at a time."""

    tokens: int
    tp: int
    task_words: int
    all_words: int
    readers: int

    def pair(self, costs: HandOffCosts, threads: int) -> int:
        """Nanoseconds from the last put until every reader has its words, as pairs."""
        batch = threads * costs.poll_words
        batches = -(-self.task_words // batch)
        polled = 8 * min(self.task_words, batch) * self.readers / costs.load  # bytes a nanosecond while they wait
        waiting = costs.spin * polled / costs.bytes_per_ns
        return round(
            costs.store + batches * costs.load + 8 * self.all_words * costs.retries / costs.bytes_per_ns + waiting
        )

    def flag(self, costs: HandOffCosts, threads: int) -> int:
        """The same as plain words behind a flag: drained, announced, polled, met, loaded."""
        return round(
            2 * costs.store + costs.store + 2 * costs.load + 2 * costs.meet + 4 * self.all_words / costs.bytes_per_ns
        )


def choose_form(
    write: RegionWrite,
    traffic: Iterable[Traffic],
    costs: HandOffCosts,
    threads: int,
    override: tuple[Form, str] | None,
) -> tuple[FormRule, ...]:
    """The rules of a region: its all-barrier form first, then the cheapest of the forms its writer serves."""
    if write.default in (Form.PEER, Form.TWO_HOP):
        every = FormRule(write.default, TRUE, "crosses ranks: tagged pairs stored into every rank's copy")
        owner = FormRule(Form.TWO_HOP, write.two_hop, "crosses ranks: tagged pairs stored into the owner rank's copy")
        return (every,) if write.two_hop == ZERO else (owner, every)
    barrier = (
        (FormRule(Form.BARRIER, BARRIERS, "the all-barrier form of the launch"),) if Form.BARRIER in write.forms else ()
    )
    if override is not None:
        barrier = () if override[0] is Form.BARRIER else barrier
        return (*barrier, FormRule(override[0], TRUE, f"the spec's schedule section: {override[1]}"))
    if Form.PAIR not in write.forms or Form.FLAG not in write.forms:
        only = Form.PAIR if Form.PAIR in write.forms else Form.FLAG
        return (*barrier, FormRule(only, TRUE, "the only form its skeleton serves"))
    return (*barrier, *_cheapest(list(traffic), costs, threads))


def _cheapest(traffic: list[Traffic], costs: HandOffCosts, threads: int) -> tuple[FormRule, ...]:
    prefers_pair = {t: t.pair(costs, threads) <= t.flag(costs, threads) for t in traffic}
    limits: dict[int, int] = {}
    for tp in sorted({t.tp for t in traffic}):
        # As pairs up to the last width before the first that is dearer, in every variant.
        dear = [t.tokens for t, pair in prefers_pair.items() if t.tp == tp and not pair]
        widths = [t.tokens for t in traffic if t.tp == tp]
        limits[tp] = max((w for w in widths if w < min(dear, default=max(widths) + 1)), default=0)
    widest = max(traffic, key=lambda t: t.tokens)
    if all(prefers_pair.values()):
        return (FormRule(Form.PAIR, TRUE, _reason(widest, costs, threads)),)
    if not any(limits.values()):
        return (FormRule(Form.FLAG, TRUE, _reason(min(traffic, key=lambda t: t.tokens), costs, threads)),)
    at = min((t for t in traffic if not prefers_pair[t]), key=lambda t: (t.tokens, t.tp))
    return (
        FormRule(Form.PAIR, formula(f"b.tokens <= {_limit(limits)}"), _reason(_narrowest(traffic), costs, threads)),
        FormRule(Form.FLAG, TRUE, _reason(at, costs, threads)),
    )


def _narrowest(traffic: list[Traffic]) -> Traffic:
    return min(traffic, key=lambda t: t.tokens)


def _limit(limits: Mapping[int, int]) -> str:
    values = list(limits.items())
    if len({limit for _, limit in values}) == 1:
        return str(values[0][1])
    text = str(values[-1][1])
    for tp, limit in reversed(values[:-1]):
        text = f"{limit} if b.tp == {tp} else {text}"
    return f"({text})"


def _reason(at: Traffic, costs: HandOffCosts, threads: int) -> str:
    return (
        f"{at.task_words} words a reader, {at.all_words} in all at {at.tokens} x tp {at.tp}: "
        f"about {at.pair(costs, threads)} ns as pairs, {at.flag(costs, threads)} ns behind flags"
    )
