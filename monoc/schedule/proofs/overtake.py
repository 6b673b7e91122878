"""Proof 3: no write overtakes an unread value of an earlier hand-off, step or launch (RAW, WAR, WAW).

Inside a launch a word is written once an epoch (proof 2), so only regions that share bytes could meet: a grid
barrier has to lie between the last use of one and the first write of the other. Launches of a rank run one
after the other on one stream: everything of an earlier launch is done. What is left are tags (an old value
must not look current), other ranks, counters, and the epoch word starting over:

- Two launches may hand over with one tag only if each ends the epoch, so that they never run in the same one;
  a launch's tag is below the epoch's step, so that it never runs into the next epoch's.
- A rank cannot start epoch e + 2 before every rank has finished e: every launch that pushes to peers also
waits for a
  push of every rank in the same launch. So epochs e and e + 1 may be in flight together, and their halves of
  the peer buffer, whatever the two step widths, must not overlap.
- A counter's word of an epoch is cleared after its last use and before its next, also where the epoch starts
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from monoc.schedule.loader import PlanModule
from monoc.schedule.memo import ByFields
from monoc.schedule.proofs.failure import Failure
from monoc.schedule.tables import LaunchTable

__all__ = ["prove_epochs", "prove_halves", "prove_launch"]

NAME = "overtake"
PEER_FORMS = ("peer", "two_hop")


def prove_launch(plan: PlanModule, table: LaunchTable, offsets: dict[str, int], build: str) -> list[Failure]:
    """Regions of a launch on the same bytes; pushes without a wait. ``offsets``: "launch.region" -> bytes, of
    scratch and of a peer half."""
    found = [*_shared(table, offsets), *_skew(table)]
    return [Failure(NAME, table.name, build, who, message) for who, message in found]


Finding = tuple[tuple[str, str], str]


def _used(table: LaunchTable, region: str) -> list[int]:
    return [
        s.position for s in table.stages.values() for a in (*s.reads, *s.writes) if a.region == region and a.count.any()
    ]


def _shared(table: LaunchTable, offsets: dict[str, int]) -> Iterator[Finding]:
    live = [n for n in table.regions if _used(table, n)]
    for a, b in combinations(live, 2):
        ra, rb = table.regions[a], table.regions[b]
        if ra.space != rb.space:
            continue
        at_a, at_b = offsets[f"{table.name}.{a}"], offsets[f"{table.name}.{b}"]
        if at_a + ra.bytes <= at_b or at_b + rb.bytes <= at_a:
            continue
        first, then = sorted((a, b), key=lambda n: min(_used(table, n)))
        last_use, next_use = max(_used(table, first)), min(_used(table, then))
        plain = ra.form == rb.form == "barrier"
        fenced = any(last_use < table.stages[s].position <= next_use for s in table.barriers)
        if not (plain and fenced):
            yield (
                (first, then),
                f"regions {first!r} and {then!r} lie on the same bytes of {ra.space} and nothing keeps the writer of "
                f"{then!r} from overtaking the last reader of {first!r}",
            )


def _skew(table: LaunchTable) -> Iterator[Finding]:
    pushed = [n for n, r in table.regions.items() if r.form in PEER_FORMS and table.writers(n)]
    read = [r.region for s in table.stages.values() for r in s.reads if r.region in pushed and r.count.any()]
    if pushed and not read:
        writer = table.writers(pushed[0])[0][0].name
        yield (
            (writer, pushed[0]),
            f"stage {writer!r} pushes region {pushed[0]!r} to every rank and no stage of the launch waits for "
            "a push, so a rank may run two steps ahead of another",
        )


def prove_epochs(plan: PlanModule) -> list[Failure]:
    """Tags of launches, halves and counter slots over the epoch's whole range."""
    found: list[Finding] = []
    for (a, la), (b, lb) in combinations(plan.LAUNCHES.items(), 2):
        if la.tag == lb.tag and not (la.ends_epoch and lb.ends_epoch):
            found.append(
                (
                    (a, b),
                    f"launches {a} and {b} hand over with the same tag in one epoch; one would take the other's "
                    "values for its own",
                )
            )
    for name, launch in plan.LAUNCHES.items():
        if not 0 < launch.tag <= plan.TAGS_PER_EPOCH:
            found.append(
                (
                    (name, "TAGS_PER_EPOCH"),
                    f"launch {name} has tag {launch.tag} of {plan.TAGS_PER_EPOCH} an epoch, the next epoch's",
                )
            )
    if plan.EPOCHS % plan.PEER_HALVES:
        found.append(
            (
                ("EPOCHS", "PEER_HALVES"),
                f"{plan.EPOCHS} epochs do not alternate {plan.PEER_HALVES} halves where the epoch starts over",
            )
        )
    if plan.COUNTERS:
        found += _counters(plan)
    return [Failure(NAME, "", "every build", who, message) for who, message in found]


def _counters(plan: PlanModule) -> Iterator[Finding]:
    slots, ahead = plan.COUNTER_SLOTS, plan.COUNTER_AHEAD
    if not 0 < ahead < slots:
        yield (
            ("COUNTER_SLOTS", "COUNTER_AHEAD"),
            f"clearing {ahead} epochs ahead of {slots} slots clears the word in use",
        )
    if plan.EPOCHS % slots:
        yield (
            ("EPOCHS", "COUNTER_SLOTS"),
            f"{plan.EPOCHS} epochs are no multiple of {slots} counter slots: where the epoch starts over, a word is "
            "used again before it is cleared",
        )


def prove_halves(plan: PlanModule, tp: int, builds: list[Any]) -> list[Failure]:
    """No peer word of epoch e is a peer word of epoch e + 1, at any two step widths of ``builds`` (all of one
    tp)."""
    spans: dict[tuple[int, int], tuple[str, Any]] = {}
    layout = ByFields(lambda b: (plan.regions(b), plan.peer(b)))
    for b in builds:
        (table, offsets), new = layout(b)
        for name, offset in offsets.items() if new else ():
            spans.setdefault((offset, offset + table[name].bytes), (name, b))
    half = plan.peer_half_bytes(tp)
    for e in (0, plan.EPOCHS - 1):
        here, there = (plan.peer_half(x) * half for x in (e, plan.next_epoch(e)))
        clash = _overlap(spans, here, there)
        if clash is not None:
            (a, ba), (c, bc) = clash
            message = (
                f"peer region {a!r} at {ba.tokens} rows of epoch {e} and {c!r} at {bc.tokens} rows of epoch "
                f"{plan.next_epoch(e)} lie on the same bytes: a fast rank's push overwrites what a slow one "
                "has not read"
            )
            return [Failure(NAME, "", f"tp {tp}", (f"{a} ({ba.tokens} rows)", f"{c} ({bc.tokens} rows)"), message)]
    return []


def _overlap(
    spans: dict[tuple[int, int], tuple[str, Any]], here: int, there: int
) -> tuple[tuple[str, Any], tuple[str, Any]] | None:
    """Two spans that meet when one set is moved by ``here`` and the other by ``there``; empty spans meet
    nothing."""
    marked = [(lo + here, hi + here, 0, who) for (lo, hi), who in spans.items() if hi > lo]
    marked += [(lo + there, hi + there, 1, who) for (lo, hi), who in spans.items() if hi > lo]
    open_until: dict[int, tuple[int, tuple[str, Any]]] = {}
    for lo, hi, side, who in sorted(marked, key=lambda m: m[:3]):
        other = open_until.get(1 - side)
        if other is not None and other[0] > lo:
            return (other[1], who) if side else (who, other[1])
        if side not in open_until or open_until[side][0] < hi:
            open_until[side] = hi, who
    return None
