"""The epoch word: how launches tag their hand-offs without clearing anything between steps.

The epoch buffer (Int32 words): word 0 the epoch, from ``marks`` one mark a CTA, then counters. A launch reads the epoch
first and tags what it hands over with it. A launch that ends the epoch marks that each of its CTAs has read it; its
CTA 0, once all marks are in, stores the next one. The launches of a step are ordered by their boundaries.
"""

from __future__ import annotations

from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr, rocdl

from monoc.device.cta import uniform
from monoc.device.handoff import drain_and_meet, poll_pairs
from monoc.device.intrinsics import constant_load, lanes_unlike, realtime_clock
from monoc.device.limit import WaitLimit
from monoc.device.memory import DEVICE, SYSTEM, load, store

__all__ = ["await_ranks", "end_epoch", "grid_barrier", "mark_epoch", "read_epoch", "stamp"]

# Waits of no region in a wait limit's record (the plan's ``OTHER_WAITS`` has the words).
_BARRIER_WAIT = -1
_MARKS_WAIT = -2
_CTAS_WAIT = -3
_RANKS_WAIT = -4


def read_epoch(buffer: Any) -> fx.Int32:
    """The epoch, as a scalar: every CTA of every rank reads the same."""
    return uniform(load(buffer, 0, policy=DEVICE))


@flyc.jit
def mark_epoch(cta: Any, buffer: Any, marks: int, tag: Any) -> None:
    """This CTA has read the epoch: its mark (word ``marks`` + CTA) becomes ``tag``."""
    if cta.tid == 0:
        store(buffer, marks + cta.bid, fx.Int32(tag), DEVICE)


@flyc.jit
def _await_word(buffer: Any, at: Any, tag: Any, policy: int, limit: Any) -> None:
    seen = load(buffer, at, policy=policy)
    if const_expr(limit is None):
        while lanes_unlike(seen, tag) != 0:
            rocdl.s_sleep(1)
            seen = load(buffer, at, policy=policy)
    else:
        own, begun = limit.own(), limit.begin()
        over = fx.Int32(0)
        while (lanes_unlike(seen, tag) != 0) & (over == 0):
            rocdl.s_sleep(1)
            over = limit.over(own, begun)
            seen = load(buffer, at, policy=policy)
        limit.settle(lanes_unlike(seen, tag), tag, lambda: seen, begun)


@flyc.jit
def end_epoch(
    cta: Any,
    buffer: Any,
    marks: int,
    tag: Any,
    next_epoch: Any,
    cleared: list[Any],
    limit: WaitLimit | None = None,
) -> None:
    """CTA 0, when every CTA has marked the epoch: zero the counter words ``cleared``, then store ``next_epoch``."""
    within = None if limit is None else limit.of(_MARKS_WAIT)
    if cta.bid == 0:
        for first in range_constexpr(0, cta.grid, cta.threads):
            slot = first + cta.tid
            if slot < cta.grid:
                _await_word(buffer, marks + slot, tag, DEVICE, within)
        cta.meet()
        if cta.tid == 0:
            for word in cleared:
                store(buffer, word, fx.Int32(0), DEVICE)
            rocdl.s_waitcnt(vmcnt=0)
            store(buffer, 0, fx.Int32(next_epoch), DEVICE)


@flyc.jit
def grid_barrier(cta: Any, pairs: Any, tag: Any, limit: WaitLimit | None = None) -> None:
    """All CTAs have stored what they stored before it. ``pairs``: address of grid + 1 pairs no other barrier uses.

    CTA c raises pair c; CTA 0 awaits all of them and raises the last one, which all others await.
    """
    within = None if limit is None else limit.of(_BARRIER_WAIT)
    drain_and_meet(cta)
    one = fx.Vector.from_elements([fx.Int32(1), fx.Int32(tag)], fx.Int32)
    if cta.bid == 0:
        for first in range_constexpr(0, cta.grid, cta.threads):
            peer = first + cta.tid
            if (peer > 0) & (peer < cta.grid):
                poll_pairs(pairs, tag, [(peer, 1)], DEVICE, within)
        cta.meet()
        if cta.tid == 0:
            store(pairs, 2 * cta.grid, one, DEVICE)
    else:
        if cta.tid == 0:
            store(pairs, 2 * cta.bid, one, DEVICE)
            poll_pairs(pairs, tag, [(fx.Int32(cta.grid), 1)], DEVICE, within)
    cta.meet()


@flyc.jit
def await_ranks(limit: WaitLimit, tag: Any) -> None:
    """The end of a step in a build with a wait limit: no rank is done before every CTA of every rank is.

    So what stops one rank is known to all of them before the next step. Every CTA marks in the rank's health words that
    it is done; CTA 0 awaits the marks, tells every rank, and awaits the other ranks.
    """
    cta, health, args = limit.cta, limit.health, limit.kernel.stage()
    own = limit.own()
    if cta.tid == 0:
        store(own, health.marks + cta.bid, fx.Int32(tag), DEVICE)
    if cta.bid == 0:
        for first in range_constexpr(0, cta.grid, cta.threads):
            slot = first + cta.tid
            if slot < cta.grid:
                _await_word(own, health.marks + slot, tag, DEVICE, limit.of(_CTAS_WAIT))
        cta.meet()
        if cta.tid < health.ranks:
            for r in range_constexpr(health.ranks):
                there = constant_load(args["peers"] + fx.Int64(8 * r)) + fx.Int64(health.byte)
                if cta.tid == r:
                    store(there, fx.Int32(args["rank"]) + health.ended, fx.Int32(tag), SYSTEM)
            _await_word(own, cta.tid + health.ended, tag, SYSTEM, limit.of(_RANKS_WAIT))
        cta.meet()


@flyc.jit
def stamp(cta: Any, timeline: Any, points: int, point: int) -> None:
    """A timeline build's clock stamp: entry [CTA][``point``] of the Int64 record, 100 MHz ticks."""
    if cta.tid == 0:
        store(timeline, cta.bid * points + point, realtime_clock())
