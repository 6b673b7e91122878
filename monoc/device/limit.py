"""Bounded waits: a build option under which no wait is for ever, and a launch that cannot go on ends on every rank.

The health words, an area behind the regions in every rank's peer buffer (``plan.Health`` has their places): a stop
word, which every waiting wave of the rank looks at, and a record for each CTA of each rank. A wave whose wait is past
the limit, or that sees the stop word, gives up: if it is its CTA's first, it stores on every rank what the CTA waited
for, then raises all stop words. It ends, and so do the others of its CTA where they next meet: nobody goes on with what
did not come, nobody announces what was not made. Who has waited longest is seldom who waits for what is missing: the
host finds that in the records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import range_constexpr, rocdl

from monoc.device.cta import Args, Cta, end_wave_if, uniform
from monoc.device.frozen import Frozen
from monoc.device.intrinsics import constant_load, end_wave, realtime_clock
from monoc.device.memory import SYSTEM, lds_store, load, store

__all__ = ["WaitLimit", "begin_limited", "limited_cta", "wait_limit"]


def _ticks() -> fx.Int32:
    """The low word of the 100 MHz clock: differences are right up to its 42 seconds."""
    return fx.Int32(realtime_clock())


@dataclass(frozen=True)
class WaitLimit(Frozen):
    """What a wait of one stage needs to end in time and to say so.

    ``health``: the plan's :class:`Health`; ``kernel``: the launch's arguments, of which it reads ``peers`` and ``rank``
    anew each time (held, they would fill the scalar registers); ``stage`` and ``wait`` (a region, or a wait of no
    region: negative) go into the record.
    """

    cta: Cta
    health: Any
    kernel: Args
    stage: int
    wait: int = 0

    def of(self, wait: int) -> WaitLimit:
        return replace(self, wait=wait)

    def own(self) -> fx.Int64:
        """Address of this rank's health words."""
        args = self.kernel.stage()
        return constant_load(args["peers"] + args["rank"] * 8) + fx.Int64(self.health.byte)

    def begin(self) -> fx.Int32:
        """The time at which a wait begins."""
        return _ticks()

    def over(self, own: Any, begun: Any) -> fx.Int32:
        """Not 0 if the wait is to end: its limit is past, or the rank has been stopped (``own``: its health words)."""
        stopped = load(own, self.health.stop, policy=SYSTEM)
        return fx.Int32(self._late(begun).select(fx.Int32(1), stopped))

    def _late(self, begun: Any) -> Any:
        return fx.Uint32(_ticks() - begun) > fx.Uint32(self.health.ticks)

    @flyc.jit
    def settle(self, missing: Any, awaited: Any, seen: Callable[[], Any], begun: Any) -> None:
        """After a wait: if a lane's tag is ``missing`` (a bit a lane), the wave gives up (``seen``: what was there for
        the first of them)."""
        if missing != 0:
            args = self.kernel.stage()
            if self.cta.lane == fx.Int32(fx.cttz(missing)):
                first = fx.llvm.atomic_or(self.cta.lost.ptr, fx.Int32(1), syncscope="workgroup")
                if first == 0:
                    self._record(args, awaited, seen(), _ticks() - begun)
            end_wave()

    @flyc.jit
    def _record(self, args: Any, awaited: Any, seen: Any, waited: Any) -> None:
        """Say on every rank what this CTA waited for, then stop it. One lane."""
        health = self.health
        slot = fx.Int32(args["rank"]) * health.grid + self.cta.bid
        at = slot * health.record_words + health.records
        words = [fx.Int32(v) for v in (health.launch, self.stage, self.wait, awaited, seen, waited)]
        for r in range(0, health.ranks):  # one after the other: all ranks' addresses would fill the scalar registers
            there = constant_load(args["peers"] + fx.Int64(r) * 8) + fx.Int64(health.byte)
            for e in range_constexpr(len(words)):
                store(there, at + 1 + e, words[e], SYSTEM)
            rocdl.s_waitcnt(vmcnt=0)
            store(there, at, fx.Int32(1), SYSTEM)
            store(there, health.stop, fx.Int32(1), SYSTEM)


def wait_limit(health: Any, cta: Cta, kernel: Args, stage: int) -> WaitLimit | None:
    """The limit on the waits of stage number ``stage``; None in a build without (``health`` None)."""
    return None if health is None else WaitLimit(cta, health, kernel, stage)


def limited_cta(health: Any, cta: Cta, memory: Any) -> Cta:
    """``cta`` with an LDS word of ``memory`` (the kernel's allocator) for giving up; ``cta`` itself in a build without
    a limit (``health`` None)."""
    if health is None:
        return cta
    lost = memory.allocate(fx.Array[fx.Int32, 1, 16]).peek()
    return replace(cta, lost=lost)


@flyc.jit
def begin_limited(limit: WaitLimit) -> None:
    """A launch begins: its CTAs have lost no wave yet, and end at once if the rank was stopped before."""
    if limit.cta.tid == 0:
        lds_store(limit.cta.lost, 0, fx.Int32(0))
    limit.cta.meet()
    end_wave_if(uniform(load(limit.own(), limit.health.stop, policy=SYSTEM)))
