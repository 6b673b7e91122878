"""The epoch word: how launches tag their hand-offs without clearing anything between steps.

The epoch buffer (Int32 words): word 0 the epoch, from ``marks`` one mark a CTA, then counters. A launch reads the epoch
first and tags what it hands over with it. A launch that ends the epoch marks that each of its CTAs has read it; its
CTA 0, once all marks are in, stores the next one. The launches of a step are ordered by their boundaries.
"""

from __future__ import annotations

from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import gpu, range_constexpr, rocdl

from monoc.device.cta import uniform
from monoc.device.handoff import drain_and_meet, poll_pairs
from monoc.device.intrinsics import realtime_clock
from monoc.device.memory import DEVICE, load, store

__all__ = ["end_epoch", "grid_barrier", "mark_epoch", "read_epoch", "stamp"]


def read_epoch(buffer: Any) -> fx.Int32:
    """The epoch, as a scalar: every CTA of every rank reads the same."""
    return uniform(load(buffer, 0, policy=DEVICE))


@flyc.jit
def mark_epoch(cta: Any, buffer: Any, marks: int, tag: Any) -> None:
    """This CTA has read the epoch: its mark (word ``marks`` + CTA) becomes ``tag``."""
    if cta.tid == 0:
        store(buffer, marks + cta.bid, fx.Int32(tag), DEVICE)


@flyc.jit
def _await_marks(buffer: Any, first: Any, tag: Any) -> None:
    seen = load(buffer, first, policy=DEVICE)
    while seen != tag:
        rocdl.s_sleep(1)
        seen = load(buffer, first, policy=DEVICE)


@flyc.jit
def end_epoch(cta: Any, buffer: Any, marks: int, tag: Any, next_epoch: Any, cleared: list[Any]) -> None:
    """CTA 0, when every CTA has marked the epoch: zero the counter words ``cleared``, then store ``next_epoch``."""
    if cta.bid == 0:
        for first in range_constexpr(0, cta.grid, cta.threads):
            slot = first + cta.tid
            if slot < cta.grid:
                _await_marks(buffer, marks + slot, tag)
        gpu.barrier()
        if cta.tid == 0:
            for word in cleared:
                store(buffer, word, fx.Int32(0), DEVICE)
            rocdl.s_waitcnt(vmcnt=0)
            store(buffer, 0, fx.Int32(next_epoch), DEVICE)


@flyc.jit
def grid_barrier(cta: Any, pairs: Any, tag: Any) -> None:
    """All CTAs have stored what they stored before it. ``pairs``: address of grid + 1 pairs no other barrier uses.

    CTA c raises pair c; CTA 0 awaits all of them and raises the last one, which all others await.
    """
    drain_and_meet()
    one = fx.Vector.from_elements([fx.Int32(1), fx.Int32(tag)], fx.Int32)
    if cta.bid == 0:
        for first in range_constexpr(0, cta.grid, cta.threads):
            peer = first + cta.tid
            if (peer > 0) & (peer < cta.grid):
                poll_pairs(pairs, tag, [(peer, 1)], DEVICE)
        gpu.barrier()
        if cta.tid == 0:
            store(pairs, 2 * cta.grid, one, DEVICE)
    else:
        if cta.tid == 0:
            store(pairs, 2 * cta.bid, one, DEVICE)
            poll_pairs(pairs, tag, [(fx.Int32(cta.grid), 1)], DEVICE)
    gpu.barrier()


@flyc.jit
def stamp(cta: Any, timeline: Any, points: int, point: int) -> None:
    """A timeline build's clock stamp: entry [CTA][``point``] of the Int64 record, 100 MHz ticks."""
    if cta.tid == 0:
        store(timeline, cta.bid * points + point, realtime_clock())
