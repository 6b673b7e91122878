"""Proof 4: no live tag is 0, and a word that is ever a tag is never plain data, in any build that shares its
buffer.

Freshly allocated buffers hold zeros, so a live tag of 0 would be current before anybody wrote. And a poll
cannot tell a tag from data: were one word a tag in one build and data in another, or tags of two regions of
one launch, a poll could take the one for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from monoc.schedule.loader import PlanModule
from monoc.schedule.memo import ByFields
from monoc.schedule.proofs.failure import Failure

__all__ = ["prove_scratch_kinds", "prove_tags_live"]

NAME = "tags"


def prove_tags_live(plan: PlanModule) -> list[Failure]:
    """The tags of every launch rise from above 0 to below 2^32 over the epoch's range."""
    found = []
    for name, launch in plan.LAUNCHES.items():
        for epoch in sorted({0, plan.EPOCHS - 1, *_zeros(plan, launch.tag)}):
            if 0 <= epoch < plan.EPOCHS and plan.tag(epoch, name) == 0:
                message = (
                    f"launch {name}'s tag is 0 at epoch {epoch}, which is what freshly zeroed memory carries: "
                    "let the epoch start over before"
                )
                found.append(Failure(NAME, name, "every build", (name, f"epoch {epoch}"), message))
    return found


def _zeros(plan: PlanModule, tag: int) -> Iterator[int]:
    """Epochs at which TAGS_PER_EPOCH * e + tag is a multiple of 2^32."""
    for wraps in range(1, plan.TAGS_PER_EPOCH * plan.EPOCHS // 2**32 + 2):
        at, rest = divmod(wraps * 2**32 - tag, plan.TAGS_PER_EPOCH)
        if rest == 0:
            yield at


@dataclass(frozen=True)
class _Span:
    low: int
    high: int
    tagged: bool
    launch: str
    what: str
    build: str


def prove_scratch_kinds(plan: PlanModule, builds: Iterable[Any], describe: Any) -> list[Failure]:
    """``builds`` share one scratch buffer and one peer buffer. ``describe(b)`` names a build."""
    spans: dict[tuple[Any, ...], _Span] = {}
    layout = ByFields(lambda b: (plan.regions(b), plan.scratch(b), plan.peer(b)))
    for b in builds:
        (table, scratch, peer), new = layout(b)
        if not new:
            continue
        for space, offsets in (("scratch", scratch), ("peer", peer)):
            for name, offset in offsets.items():
                for low, high, tagged, part in _kinds(table[name], offset):
                    span = _Span(low, high, tagged, name.partition(".")[0], name + part, describe(b))
                    spans.setdefault((space, low, high, tagged, name), span)
    found: list[Failure] = []
    for space in ("scratch", "peer"):
        found += _clashes([s for key, s in spans.items() if key[0] == space], space)
    return found


def _kinds(region: Any, offset: int) -> Iterator[tuple[int, int, bool, str]]:
    if region.form in ("pair", "peer", "two_hop"):
        yield offset, offset + region.bytes, True, ""
        return
    yield offset, offset + region.flags, False, ""
    if region.form == "flag":
        yield offset + region.flags, offset + region.bytes, True, " flags"


def _clashes(spans: list[_Span], space: str) -> Iterator[Failure]:
    """Sweep by address: spans still open when another begins overlap it."""
    still: list[_Span] = []
    for span in sorted(spans, key=lambda s: (s.low, s.high)):
        still = [s for s in still if s.high > span.low]
        for other in still:
            wrong = _wrong(other, span)
            if wrong and span.high > span.low:
                message = f"{other.what!r} ({other.build}) and {span.what!r} share bytes of {space}: {wrong}"
                yield Failure(NAME, "", span.build, (other.what, span.what), message)
                return
        still.append(span)


def _wrong(a: _Span, b: _Span) -> str:
    if a.tagged != b.tagged:
        return "a word is a tag of one and plain data of the other"
    if a.tagged and (b.low - a.low) % 8:
        return "the value of one pair is the tag of the other"
    if a.tagged and a.launch == b.launch and a.what != b.what and a.build == b.build:
        return "one launch hands both over with the same tag"
    return ""
