"""Hand-offs between CTAs and between GPUs: regions of 32-bit words with one writer stage.

A region is used through four methods, whatever its form (docs/architecture.md, "Hand-offs"): ``put`` words,
``done`` with a unit, ``wait`` for units, ``get`` words. Which form a region has in a build is the plan's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr, rocdl

from monoc.device.frozen import Frozen
from monoc.device.intrinsics import lanes_unlike
from monoc.device.limit import WaitLimit
from monoc.device.memory import DEVICE, PLAIN, SYSTEM, load, store

__all__ = ["FlagRegion", "PairRegion", "PeerRegion", "PlainRegion", "drain_and_meet", "poll_pairs"]

# Words polled together: bounds the registers a poll holds.
_POLL_WORDS = 24


def _interleave(words: list[Any], tag: Any) -> Any:
    both: list[Any] = []
    for word in words:
        both += [fx.Int32(word), tag]
    return fx.Vector.from_elements(both, fx.Int32)


def _store_pairs(address: Any, index: Any, words: list[Any], tag: Any, policy: int) -> None:
    """Words at pairs ``index`` ..: two pairs (16 bytes) a store, each pair 8-byte aligned and whole."""
    for first in range(0, len(words), 2):
        store(address, (fx.Int32(index) + first) * 2, _interleave(words[first : first + 2], tag), policy)


@flyc.jit
def poll_pairs(
    address: Any, tag: Any, wanted: list[tuple[Any, int]], policy: int, limit: Any = None
) -> list[list[Any]]:
    """The words of pairs ``wanted`` = [(pair index, pairs)], loaded together until every tag is ``tag``.

    While they are not there only the last of them is asked for: a waiting wave leaves memory to those it waits for.
    A wave waits for all of its lanes, which may see one and the same store at different times. Past ``limit`` (a
    :class:`WaitLimit` or None), the wave ends instead.
    """
    total = sum(count for _, count in wanted)
    last = fx.Int32(wanted[-1][0]) + (wanted[-1][1] - 1)

    def load_all() -> Any:
        words: list[Any] = []
        for index, count in wanted:
            for first in range(0, count, 2):
                some = min(2, count - first)
                got = load(address, (fx.Int32(index) + first) * 2, fx.Int32, 2 * some, policy)
                words += [got[e] for e in range(2 * some)]
        return fx.Vector.from_elements(words, fx.Int32)

    def stale(words: Any) -> Any:
        lanes = lanes_unlike(words[1], tag)
        for e in range_constexpr(3, 2 * total, 2):
            lanes = lanes | lanes_unlike(words[e], tag)
        return lanes

    def stale_tag() -> Any:
        # loaded again: kept for it, the loop's tags would need registers of their own
        found = tag
        for index, count in wanted:
            for e in range(count):
                seen = load(address, (fx.Int32(index) + e) * 2 + 1, policy=policy)
                found = (seen != tag).select(seen, found)
        return found

    v = load_all()
    if const_expr(limit is None):
        while stale(v) != 0:
            rocdl.s_sleep(1)  # a side effect: keeps the loads inside the loop
            if const_expr(total > 2):
                pair = load(address, last * 2, fx.Int32, 2, policy)
                while lanes_unlike(pair[1], tag) != 0:
                    rocdl.s_sleep(1)
                    pair = load(address, last * 2, fx.Int32, 2, policy)
            v = load_all()
    else:
        own, begun = limit.own(), limit.begin()
        over = fx.Int32(0)
        while (stale(v) != 0) & (over == 0):
            rocdl.s_sleep(1)
            over = limit.over(own, begun)
            if const_expr(total > 2):
                pair = load(address, last * 2, fx.Int32, 2, policy)
                while (lanes_unlike(pair[1], tag) != 0) & (over == 0):
                    rocdl.s_sleep(1)
                    over = limit.over(own, begun)
                    pair = load(address, last * 2, fx.Int32, 2, policy)
            v = load_all()
        limit.settle(stale(v), tag, stale_tag, begun)
    out: list[list[Any]] = []
    at = 0
    for _, count in wanted:
        out.append([v[2 * (at + e)] for e in range(count)])
        at += count
    return out


def drain_and_meet(cta: Any) -> None:
    """All of the CTA's stores have left it: a flag may follow (a workgroup-scope release would not wait for them)."""
    rocdl.s_waitcnt(vmcnt=0)
    cta.meet()


def _batches(wanted: list[tuple[Any, int]], limit: int) -> list[list[tuple[Any, int]]]:
    out: list[list[tuple[Any, int]]] = [[]]
    for item in wanted:
        if out[-1] and sum(count for _, count in out[-1]) + item[1] > limit:
            out.append([])
        out[-1].append(item)
    return out


@dataclass(frozen=True)
class PairRegion(Frozen):
    """(word, tag) pairs: a reader polls the words themselves, one round trip. ``address`` Int64, 8 bytes a word."""

    polled = True  # who reads waits: better few waves than many

    address: Any
    tag: Any
    policy: int = DEVICE
    limit: WaitLimit | None = None

    def put(self, index: Any, words: list[Any]) -> None:
        _store_pairs(self.address, index, words, self.tag, self.policy)

    def done(self, cta: Any, unit: Any) -> None:
        """Nothing: every word carries its own tag."""

    def wait(self, cta: Any, first: Any, count: Any) -> None:
        """Nothing: ``get`` polls."""

    def get(self, wanted: list[tuple[Any, int]], batch: int = _POLL_WORDS) -> list[list[Any]]:
        out: list[list[Any]] = []
        for some in _batches(wanted, batch):
            out += poll_pairs(self.address, self.tag, some, self.policy, self.limit)
        return out


@dataclass(frozen=True)
class PlainRegion(Frozen):
    """Words at device scope behind a grid barrier (or the launch's end): nothing to raise, nothing to poll."""

    polled = False

    address: Any
    policy: int = DEVICE
    # Behind a grid barrier every line is whole and nothing here read it before: it may be loaded through the caches.
    read_policy: int = PLAIN

    def put(self, index: Any, words: list[Any]) -> None:
        for first in range(0, len(words), 4):
            some = words[first : first + 4]
            value = (
                fx.Int32(some[0]) if len(some) == 1 else fx.Vector.from_elements([fx.Int32(w) for w in some], fx.Int32)
            )
            store(self.address, fx.Int32(index) + first, value, self.policy)

    def done(self, cta: Any, unit: Any) -> None:
        """Nothing: the launch's barrier follows the stage."""

    def wait(self, cta: Any, first: Any, count: Any) -> None:
        """Nothing: the launch's barrier came before the stage."""

    def get(self, wanted: list[tuple[Any, int]], batch: int = 0) -> list[list[Any]]:
        out: list[list[Any]] = []
        for index, count in wanted:
            got = load(self.address, index, fx.Int32, count, self.read_policy)
            out.append([got] if count == 1 else [got[e] for e in range(count)])
        return out


@dataclass(frozen=True)
class FlagRegion(Frozen):
    """Plain words announced by one tagged flag a unit: half a pair region's bytes, one more round trip."""

    polled = False

    words: PlainRegion
    flags: Any  # Int64 address of the units' (1, tag) pairs
    tag: Any
    limit: WaitLimit | None = None

    def put(self, index: Any, words: list[Any]) -> None:
        self.words.put(index, words)

    @flyc.jit
    def done(self, cta: Any, unit: Any) -> None:
        drain_and_meet(cta)
        if cta.tid == 0:
            _store_pairs(self.flags, unit, [fx.Int32(1)], self.tag, self.words.policy)

    @flyc.jit
    def wait(self, cta: Any, first: Any, count: Any) -> None:
        """Every thread polls at most one flag (``count`` up to the CTA's threads), then the CTA meets."""
        if cta.tid < count:
            poll_pairs(self.flags, self.tag, [(fx.Int32(first) + cta.tid, 1)], self.words.policy, self.limit)
        cta.meet()

    def get(self, wanted: list[tuple[Any, int]], batch: int = 0) -> list[list[Any]]:
        # At the region's scope, not through the caches: a line may also hold words of a unit that is not announced yet,
        # and would then lie in this XCD's L2, old, for whoever waits for that unit.
        return PlainRegion(self.words.address, self.words.policy, self.words.policy).get(wanted)


@dataclass(frozen=True)
class PeerRegion(Frozen):
    """Tagged pairs in every rank's symmetric buffer: ``put`` stores to all ranks, ``get`` polls this rank's copy.

    ``copies``: the region's Int64 address in each rank's buffer, rank order; ``own``: in this rank's.
    """

    copies: tuple[Any, ...]
    own: Any
    tag: Any
    limit: WaitLimit | None = None

    def put(self, index: Any, words: list[Any]) -> None:
        for rank in range_constexpr(len(self.copies)):
            _store_pairs(self.copies[rank], index, words, self.tag, SYSTEM)

    def owned(self, rank: Any) -> PeerRegion:
        """The region whose ``put`` stores to ``rank``'s copy alone (a two-hop reduce's first hop)."""
        address = self.copies[0]
        for other in range_constexpr(1, len(self.copies)):
            address = (rank == other).select(self.copies[other], address)
        return PeerRegion((address,), self.own, self.tag, self.limit)

    def done(self, cta: Any, unit: Any) -> None:
        """Nothing: every word carries its own tag."""

    def wait(self, cta: Any, first: Any, count: Any) -> None:
        """Nothing: ``get`` polls."""

    def get(self, wanted: list[tuple[Any, int]], batch: int = _POLL_WORDS) -> list[list[Any]]:
        out: list[list[Any]] = []
        for some in _batches(wanted, batch):
            out += poll_pairs(self.own, self.tag, some, SYSTEM, self.limit)
        return out
