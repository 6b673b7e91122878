"""Which experts the tokens of a step picked: every CTA sorts the picks by expert for itself, in LDS.

A *pick* is token ``t``'s choice number ``k``, numbered ``t * topk + k``. A *tile* is up to 16 picks of one expert: what
one matrix instruction takes as columns. Tiles ascend by expert, an expert's picks by token, so every CTA derives the
same order from the same picks, whatever order its threads run in.
"""

from __future__ import annotations

from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr

from monoc.device.frozen import Frozen
from monoc.device.intrinsics import ballot_bits, dpp_update, read_lane
from monoc.device.items import divide
from monoc.device.memory import lds_load, lds_store, load
from monoc.device.rows import passes

__all__ = [
    "NO_KEY", "PICK_TILE", "PickTiles", "best_picks", "by_lane", "given_picks", "lane_prefix", "lane_sum", "order_key",
    "part_pieces", "part_sum", "top_picks", "wave_experts", "wave_max",
]  # fmt: skip

PICK_TILE = 16  # columns of a matrix instruction
_ROW_SHIFT_RIGHT = 0x110
# A wave's scan carries two sums: picks in the low half, tiles in the high one (at most 2^15 of either).
_HIGH = 16
NO_KEY = -(2**31)  # below every key of a value
_NEGATIVE_ZERO = -(2**31)
_LEAST_KEY = -(2**31) + 0x7FFFFF  # minus infinity's


def lane_prefix(v: Any, lane: Any) -> fx.Int32:
    """The sum of Int32 ``v`` over the wave's lanes up to and including this one."""
    for distance in (1, 2, 4, 8):  # inside rows of 16 lanes: a lane whose source lies outside adds 0
        v = v + dpp_update(fx.Int32(0), v, _ROW_SHIFT_RIGHT + distance)
    below = fx.Int32(0)
    for row in (1, 2, 3):
        below = below + (lane >= 16 * row).select(read_lane(v, 16 * row - 1), fx.Int32(0))
    return v + below


class PickTiles(Frozen):
    """The picks of ``tokens`` tokens, ``topk`` distinct experts of ``experts`` each, sorted into tiles.

    ``lds``: Int32 arrays ``ids`` and ``weights`` (a word a pick, by pick), ``order`` (the picks by expert),
    ``tile_expert`` and ``tile_first`` (a word a tile, and one more: where a tile starts in ``order``; the next one's
    is its end), ``masks`` (``mask_words`` an expert: a bit a token that picked it), ``starts`` (a word an expert),
    ``totals`` (a word a group of 64 experts, and one for the tile count).
    """

    def __init__(self, lds: Any, tokens: int, topk: int, experts: int) -> None:
        self.lds = lds
        self.tokens = tokens
        self.topk = topk
        self.experts = experts
        self.picks = tokens * topk
        self.mask_words = -(-tokens // 32)
        self.groups = -(-experts // 64)

    @property
    def max_tiles(self) -> int:
        """Tiles there may be: one an expert picked, and one more for every 16 picks; never more than picks."""
        return min(self.picks, min(self.picks, self.experts) + self.picks // PICK_TILE)

    @flyc.jit
    def build(self, cta: Any, route: Any, copy: Any) -> None:
        """Sort the picks of region ``route`` (copy ``copy`` of it; word ``2 * pick`` the expert, the next its weight).

        Called by the whole CTA; afterwards every thread may read the table. One token's picks are distinct experts: its
        tiles are its picks as they come.
        """
        lds = self.lds
        base = copy * (2 * self.picks)
        if const_expr(self.tokens == 1):
            route.wait(cta, 0, 1)
            if cta.tid < self.picks:
                self._take(route, base, cta.tid)
                lds_store(lds.order, cta.tid, cta.tid)
                lds_store(lds.tile_expert, cta.tid, lds_load(lds.ids, cta.tid))
                lds_store(lds.tile_first, cta.tid, cta.tid)
            if cta.tid == 0:
                lds_store(lds.tile_first, self.picks, fx.Int32(self.picks))
                lds_store(lds.totals, self.groups, fx.Int32(self.picks))
            cta.meet()
        else:
            self._sort(cta, route, base)

    def _take(self, route: Any, base: Any, pick: Any) -> Any:
        """Store ``pick``'s expert and weight; the expert."""
        expert, weight = route.get([(base + 2 * pick, 2)])[0]
        lds_store(self.lds.ids, pick, fx.Int32(expert))
        lds_store(self.lds.weights, pick, fx.Int32(weight))
        return fx.Int32(expert)

    @flyc.jit
    def _sort(self, cta: Any, route: Any, base: Any) -> None:
        lds = self.lds
        masks = self.experts * self.mask_words
        for turn in range_constexpr(passes(masks, cta.threads)):
            at = cta.tid + turn * cta.threads
            if at < masks:
                lds_store(lds.masks, at, fx.Int32(0))
        route.wait(cta, 0, self.tokens)
        cta.meet()
        mine = [cta.tid + turn * cta.threads for turn in range(passes(self.picks, cta.threads))]
        for turn in range_constexpr(len(mine)):
            pick = mine[turn]
            if pick < self.picks:
                token = self.token(pick)
                at = self._take(route, base, pick) * self.mask_words + (token >> 5)
                fx.llvm.atomic_or(lds.masks.ptr + at, fx.Int32(1) << (token & 31), syncscope="workgroup")
        cta.meet()
        # A lane an expert, a wave 64 of them: how many picks and tiles lie before it, first inside its group of 64.
        rounds = passes(self.groups, cta.waves)
        local = []
        for turn in range_constexpr(rounds):
            group = cta.wave + turn * cta.waves
            expert = group * 64 + cta.lane
            known = fx.min(expert, self.experts - 1)
            count = fx.Int32(0)
            for word in range_constexpr(self.mask_words):
                count = count + fx.Int32(fx.ctpop(lds_load(lds.masks, known * self.mask_words + word)))
            count = (expert < self.experts).select(count, fx.Int32(0))
            tiles = divide(count + (PICK_TILE - 1), PICK_TILE)[0]
            both = count | (tiles << _HIGH)
            through = lane_prefix(both, cta.lane)
            before = through - both
            local.append((group, known, tiles, before))
            if expert < self.experts:
                lds_store(lds.starts, expert, before & ((1 << _HIGH) - 1))
            if (group < self.groups) & (cta.lane == 63):
                lds_store(lds.totals, group, through)
        cta.meet()
        totals = [lds_load(lds.totals, group) for group in range(self.groups)]
        for turn in range_constexpr(rounds):
            group, known, tiles, before = local[turn]
            for g in range_constexpr(self.groups - 1):
                before = before + (group > g).select(totals[g], fx.Int32(0))
            tile = before >> _HIGH
            first = before & ((1 << _HIGH) - 1)
            for j in range_constexpr(-(-self.tokens // PICK_TILE)):
                if (group < self.groups) & (tiles > j):
                    lds_store(lds.tile_expert, tile + j, known)
                    lds_store(lds.tile_first, tile + j, first + j * PICK_TILE)
        for turn in range_constexpr(len(mine)):
            pick = mine[turn]
            if pick < self.picks:
                self._place(pick, totals)
        if cta.tid == 0:
            everything = totals[0]
            for g in range_constexpr(1, self.groups):
                everything = everything + totals[g]
            lds_store(lds.totals, self.groups, everything >> _HIGH)
            lds_store(lds.tile_first, everything >> _HIGH, fx.Int32(self.picks))
        cta.meet()

    @flyc.jit
    def _place(self, pick: Any, totals: list[Any]) -> None:
        """Store ``pick`` at its position: after its expert's picks of lower tokens."""
        lds = self.lds
        expert = lds_load(lds.ids, pick)
        token = self.token(pick)
        at = lds_load(lds.starts, expert)
        for g in range_constexpr(self.groups - 1):
            at = at + ((expert >> 6) > g).select(totals[g] & ((1 << _HIGH) - 1), fx.Int32(0))
        for word in range_constexpr(self.mask_words):
            bits = lds_load(lds.masks, expert * self.mask_words + word)
            if const_expr(self.mask_words > 1):
                lower = token - 32 * word
                below = (fx.Int32(1) << fx.max(lower, 0)) - 1
                kept = (lower >= 32).select(fx.Int32(-1), (lower > 0).select(below, fx.Int32(0)))
            else:
                kept = (fx.Int32(1) << token) - 1
            at = at + fx.Int32(fx.ctpop(bits & kept))
        lds_store(lds.order, at, pick)

    def tiles(self) -> Any:
        """How many tiles there are."""
        return lds_load(self.lds.totals, self.groups)

    def expert(self, tile: Any) -> Any:
        return lds_load(self.lds.tile_expert, tile)

    def first(self, tile: Any) -> Any:
        """The position in the order of ``tile``'s first pick; ``tile`` may be the tile count."""
        return lds_load(self.lds.tile_first, tile)

    def token(self, pick: Any) -> Any:
        """Whose ``pick`` is."""
        return divide(pick, self.topk)[0]

    def pick(self, position: Any) -> Any:
        return lds_load(self.lds.order, position)

    def weight(self, pick: Any) -> Any:
        return lds_load(self.lds.weights, pick).bitcast(fx.Float32)


def order_key(v: Any) -> fx.Int32:
    """An Int32 that orders as f32 ``v`` does (+0 and -0 alike); a NaN's is minus infinity's."""
    bits = fx.Float32(v).bitcast(fx.Int32)
    key = (bits < 0).select(bits ^ 0x7FFFFFFF, bits)
    key = (bits == _NEGATIVE_ZERO).select(fx.Int32(0), key)
    return fx.isnan(v).select(fx.Int32(_LEAST_KEY), key)


def wave_experts(cta: Any, experts: int) -> list[tuple[Any, Any]]:
    """A lane's experts, as (expert, whether it is one; past them some expert again).

    Wave w has the experts whose number modulo 64 is in the w-th of the waves' shares of 0 .. 63, in lanes ascending by
    that number, then by the expert: the order in which equal keys win.
    """
    share = 64 // cta.waves
    rounds = -(-experts // 64)
    held = -(-share * rounds // 64)
    out = []
    for i in range(held):
        place = cta.lane * held + i
        low, high = divide(place, rounds)
        expert = cta.wave * share + low + high * 64
        out.append((fx.min(expert, experts - 1), (place < share * rounds) & (expert < experts)))
    return out


def best_picks(lds: Any, count: int, topk: int, lane: Any) -> tuple[Any, Any]:
    """Lane k's expert and score: pick k of the ``count`` (``keys``, ``ids``) the waves left in LDS, in their order.

    ``lds``: also the f32 array ``scores``, a word an expert.
    """
    held = -(-count // 64)
    places = [lane * held + i for i in range(held)]
    inside = [fx.min(place, count - 1) for place in places]
    keys = [
        (place < count).select(lds_load(lds.keys, at), fx.Int32(NO_KEY))
        for place, at in zip(places, inside, strict=True)
    ]
    ids = [lds_load(lds.ids, at) for at in inside]
    expert = by_lane([expert for _, expert in top_picks(keys, ids, topk, lane)], lane)
    return expert, lds_load(lds.scores, expert)


def given_picks(given: Any, first: Any, topk: int, scores: Any, experts: int, lane: Any) -> tuple[Any, Any]:
    """Lane k's expert and score: Int32 ``first`` + k at Int64 address ``given`` (``topk`` up to 32).

    One out of range, or given before, becomes the lowest expert nobody has, with score 0: a token's picks are distinct.
    """
    wanted = load(given, first + fx.min(lane, topk - 1))
    bad = (wanted < 0) | (wanted >= experts)
    for k in range(topk - 1):
        bad = bad | ((lane > k) & (wanted == read_lane(wanted, k)))
    others = fx.Int32(ballot_bits(bad & (lane < topk)))
    rank = fx.Int32(fx.ctpop(others & ((fx.Int32(1) << fx.min(lane, 31)) - 1)))  # bad ones before this one
    expert, free = wanted, fx.Int32(0)
    for e in range(topk):  # of so many experts the good picks leave at least as many as there are bad ones
        unused = fx.Int32(ballot_bits((lane < topk) & (wanted == e))) == 0
        expert = fx.Int32((bad & unused & (free == rank)).select(fx.Int32(e), expert))
        free = free + unused.select(fx.Int32(1), fx.Int32(0))
    expert = fx.Int32((lane < topk).select(expert, fx.Int32(0)))
    return expert, fx.Float32(bad.select(fx.Float32(0.0), lds_load(scores, expert)))


def lane_sum(v: Any, count: int) -> fx.Float32:
    """The f32 ``v`` of lanes 0 .. ``count``, added in order."""
    total = read_lane(v.bitcast(fx.Int32), 0).bitcast(fx.Float32)
    for lane in range(1, count):
        total = total + read_lane(v.bitcast(fx.Int32), lane).bitcast(fx.Float32)
    return total


def wave_max(v: Any) -> fx.Int32:
    """The largest Int32 ``v`` of the wave's lanes, as a scalar."""
    for distance in (1, 2, 4, 8):  # inside rows of 16 lanes, towards the last
        v = fx.max(v, dpp_update(fx.Int32(NO_KEY), v, _ROW_SHIFT_RIGHT + distance))
    rows = [read_lane(v, 16 * row + 15) for row in range(4)]
    return fx.max(fx.max(rows[0], rows[1]), fx.max(rows[2], rows[3]))


def top_picks(keys: list[Any], ids: list[Any], topk: int, lane: Any) -> list[tuple[Any, Any]]:
    """The ``topk`` largest of the wave's keys, largest first, as scalars (key, id); lanes hold ``keys`` and ``ids``.

    Equal keys: the lowest lane first, then the first in its list. :data:`NO_KEY` never wins while another key is left.
    """
    left = list(keys)
    picked: list[tuple[Any, Any]] = []
    for _ in range(topk):
        best, mine = left[0], ids[0]
        for i in range(1, len(left)):
            better = left[i] > best
            best = better.select(left[i], best)
            mine = better.select(ids[i], mine)
        top = wave_max(best)
        winner = fx.Int32(fx.cttz(ballot_bits(best == top)))
        won = read_lane(mine, winner)
        picked.append((top, won))
        for i in range(len(left)):
            left[i] = ((lane == winner) & (ids[i] == won)).select(fx.Int32(NO_KEY), left[i])
    return picked


def by_lane(values: list[Any], lane: Any) -> Any:
    """``values[lane]`` (the last one past them)."""
    out = values[-1]
    for k in range(len(values) - 1):
        out = (lane == k).select(values[k], out)
    return out


def part_pieces(parts: int) -> list[tuple[int, int]]:
    """``parts`` consecutive words as (first, 4, 2 or 1 words)."""
    out: list[tuple[int, int]] = []
    first = 0
    for size in (4, 2, 1):
        while parts - first >= size:
            out.append((first, size))
            first += size
    return out


def part_sum(pieces: list[list[Any]]) -> fx.Float32:
    """The f32 words of ``pieces``, added in order."""
    words = [fx.Int32(word).bitcast(fx.Float32) for piece in pieces for word in piece]
    total = words[0]
    for word in words[1:]:
        total = total + word
    return total
