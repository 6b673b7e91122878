"""Dense MXFP8 weights against MXFP8 rows in LDS, on 16x16x128 scaled MFMAs.

A task owns row tiles of 16 weight rows and a window of K. Waves split into ``groups``: a group takes ``tiles /
groups`` of the row tiles, its waves take the window's 128-steps in turn (wave w of the group: steps w, w + waves,
...), and the waves' 16x16 sums are added in wave order. Weights stay in registers while token tiles of up to 16 rows
pass through LDS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.intrinsics import buffer_load, buffer_resource
from monoc.device.lanes import reduce_lanes
from monoc.device.memory import STREAM, gload, lds_load, lds_store
from monoc.device.mfma import mfma_mx, zero_tile
from monoc.device.mxrows import MX_GROUP, MxRows, mx_words
from monoc.device.numeric import bf16_high, bf16_low, power_of_two_inverse

__all__ = ["TILE", "Item", "MxGemv", "MxWeight", "RowsInFlight", "divide", "fetch_bf16", "fetch_mx", "spread"]

TILE = 16  # rows and columns of an MFMA tile
STEP = 128  # K values of one scaled MFMA
# A byte offset outside any 16 rows of weights: a buffer load there gives zeros and costs no traffic.
_OUTSIDE = 0x7FFFFFF0


def divide(u: Any, width: int) -> tuple[Any, Any]:
    """``(u // width, u % width)`` of a non-negative Int32."""
    if width & (width - 1) == 0:
        return u >> (width.bit_length() - 1), u & (width - 1)
    q = fx.Int32(fx.Uint32(u) // fx.Uint32(width))
    return q, u - q * width


@dataclass(frozen=True)
class Item(Frozen):
    """A thread's share of a [rows, per] table: its element (row, col)."""

    row: Any
    col: Any


def spread(cta: Any, rows: int, per: int, together: int = 1) -> list[Item]:
    """The CTA's threads over a [rows, per] table of items, consecutive threads on consecutive columns.

    Threads past the table repeat elements others have (so may store them again); runs of ``together`` neighbours (a
    power of two that divides ``per``) stay whole.
    """
    threads, total = cta.threads, rows * per
    rounds = -(-total // threads)
    across = threads // per
    if across and -(-rows // across) == rounds:  # whole rows a round: one division for all of them
        row, col = divide(cta.tid, per)
        ragged = across * rounds > rows or across * per < threads
        return [Item(fx.min(row + across * i, rows - 1) if ragged else row + across * i, col) for i in range(rounds)]
    out = []
    for i in range(rounds):
        at = cta.tid + threads * i
        if threads * (i + 1) > total:
            at = (
                (fx.min(at & -together, total - together) | (at & (together - 1)))
                if together > 1
                else fx.min(at, total - 1)
            )
        out.append(Item(*divide(at, per)))
    return out


@dataclass(frozen=True)
class RowsInFlight(Frozen):
    """Loaded LDS words: ``words`` go to word ``at(item)`` of row ``item.row``."""

    items: tuple[Item, ...]
    words: tuple[list[Any], ...]
    offset: tuple[int, ...]  # first LDS word of the item's span within a row
    width: tuple[int, ...]  # words an item

    def at(self, i: int, row_words: int) -> Any:
        item = self.items[i]
        return item.row * row_words + (item.col * self.width[i] + self.offset[i])

    def join(self, other: RowsInFlight) -> RowsInFlight:
        return RowsInFlight(
            self.items + other.items, self.words + other.words, self.offset + other.offset, self.width + other.width
        )


def _fetch(
    cta: Any, region: Any, rows: int, words: int, index: Callable[[Any, Any], Any], offset: int, width: int
) -> RowsInFlight:
    items = spread(cta, rows, words // width)
    got = region.get([(index(item.row, item.col * width), width) for item in items])
    n = len(items)
    return RowsInFlight(tuple(items), tuple(got), (offset,) * n, (width,) * n)


def fetch_mx(cta: Any, region: Any, layout: MxRows, first: Any, rows: int, k0: Any, window: int) -> RowsInFlight:
    """Rows ``first`` .. + ``rows`` of an MXFP8 region, values ``k0`` .. + ``window``: LDS rows of values, then
    codes.
    """
    if window == layout.k and layout.stride == layout.values + layout.codes:  # one span; nobody puts padding words
        return _fetch(cta, region, rows, layout.stride, lambda r, w: layout.value(first + r, w), 0, 4)
    codes = window // MX_GROUP
    values = _fetch(cta, region, rows, window // 4, lambda r, w: layout.value(first + r, k0 // 4 + w), 0, 4)
    width = next(w for w in (4, 2, 1) if codes % w == 0)
    return values.join(
        _fetch(cta, region, rows, codes, lambda r, w: layout.code(first + r, k0 // MX_GROUP + w), window // 4, width)
    )


def fetch_bf16(
    cta: Any, region: Any, pitch: int, first: Any, rows: int, k0: Any, window: int, code: Callable[[Any], Any]
) -> RowsInFlight:
    """Rows of ``pitch`` bf16 values quantised here: as :func:`fetch_mx`; ``code``: a group's E8M0 code of its amax.

    A thread takes 8 values, four neighbours a group; every lane of the wave takes part.
    """
    items = spread(cta, rows, window // 8, together=4)
    got = region.get([((first + item.row) * (pitch // 2) + (k0 // 2 + item.col * 4), 4) for item in items])
    out = RowsInFlight((), (), (), ())
    for item, words in zip(items, got, strict=True):
        values = [v for word in words for v in (bf16_low(word), bf16_high(word))]
        amax = abs(values[0])
        for v in values[1:]:
            amax = fx.max(amax, abs(v))
        e8m0 = code(reduce_lanes(amax, (1, 2), fx.max))
        quantised = mx_words(values, power_of_two_inverse(e8m0))
        group = Item(item.row, item.col >> 2)
        out = out.join(RowsInFlight((item, group), (quantised, [e8m0]), (0, window // 4), (2, 1)))
    return out


@dataclass(frozen=True)
class MxWeight(Frozen):
    """An e4m3 weight [rows, k] at ``values`` and its E8M0 codes [rows / 32, k / 32] at ``codes`` (Int64 addresses).

    ``pitch``: bytes from a row to the next (row-major); ``shuffled``: (16, 16)-shuffled bytes, [rows / 16][k / 16][16
    rows][16].
    """

    values: Any
    codes: Any
    k: int
    pitch: int
    shuffled: bool = False

    def lane(self, row: Any, j: Any) -> Any:
        """The byte offset of lane group ``j``'s 16 bytes of row ``row`` in step 0."""
        if self.shuffled:
            return (row >> 4) * (TILE * self.k) + ((row & 15) * 16 + j * (TILE * 16))
        return row * self.pitch + j * 16

    def along(self, k: Any) -> Any:
        """Bytes from value 0 to value ``k`` (a multiple of 16) of a row."""
        return k * TILE if self.shuffled else k


@dataclass(frozen=True)
class _Base(Frozen):
    """A wave-uniform address weights are loaded from; ``live``: the lanes' (low, high, code) predicates, None for
    all.
    """

    address: Any
    live: Any
    wanted: Any

    def _resource(self) -> Any:
        records = fx.Int64(_OUTSIDE)
        return buffer_resource(
            self.address, records if self.wanted is None else self.wanted.select(records, fx.Int64(0))
        )

    def _masked(self, offset: Any, which: int) -> Any:
        return offset if self.live is None else self.live[which].select(offset, fx.Int32(_OUTSIDE))

    def words(self, offset: Any, further: int, half: int) -> Any:
        """Four words at ``offset + further``."""
        if self.live is None and self.wanted is None:
            return gload(self.address + fx.Int64(further), offset, fx.Int32, 4, stream=True)
        return buffer_load(self._resource(), self._masked(offset + further, half), 4, fx.Int32, STREAM)

    def code(self, offset: Any) -> Any:
        """The byte at ``offset``."""
        if self.live is None and self.wanted is None:
            return fx.Int32(gload(self.address, offset, fx.Uint8))
        return fx.Int32(buffer_load(self._resource(), self._masked(offset, 2), 1, fx.Uint8, 0))


@dataclass(frozen=True)
class MxGemv(Frozen):
    """How a task contracts ``window`` values of K for ``tiles`` row tiles on ``waves`` waves in ``groups`` groups.

    ``half``: 0: tile t is 16 consecutive rows; else tile t is rows 8 t .. + 8 and the same rows ``half`` further on
    (a gate and its up rows in one tile).
    """

    window: int
    tiles: int
    groups: int
    waves: int
    half: int = 0

    @property
    def own_tiles(self) -> int:
        """Row tiles a wave accumulates."""
        return self.tiles // self.groups

    @property
    def own_waves(self) -> int:
        """Waves that share a row tile."""
        return self.waves // self.groups

    @property
    def rounds(self) -> int:
        """Steps a wave takes."""
        return -(-self.window // (STEP * self.own_waves))

    @property
    def row_words(self) -> int:
        """LDS words from one activation row to the next: 4 past a multiple of 32, so 16 rows spread over the
        banks.
        """
        return -(-(self.window // 4 + self.window // MX_GROUP) // 32) * 32 + 4

    def _place(self, cta: Any) -> tuple[Any, Any]:
        """This wave's group and its place there."""
        return (0, cta.wave) if self.groups == 1 else divide(cta.wave, self.own_waves)

    def _ragged(self, turn: int) -> bool:
        return STEP * self.own_waves * (turn + 1) > self.window

    def _row(self, first: Any, tile: Any, lane: Any) -> Any:
        if self.half:
            return first + tile * (TILE // 2) + (lane & 7) + ((lane >> 3) & 1) * self.half
        return first + tile * TILE + (lane & 15)

    def load(self, cta: Any, weight: MxWeight, first: Any, k0: Any = 0, wanted: Any = None) -> list[Any]:
        """This wave's weights of rows ``first`` .., values ``k0`` .. + window, all in flight.

        Per turn and own tile: (low 16 bytes, high 16 bytes, code). Steps and K blocks past the window, and everything
        where the wave-uniform ``wanted`` does not hold, are zeros without memory traffic.
        """
        lane, j = cta.lane, cta.lane >> 4
        group, part = self._place(cta)
        rows = [self._row(first, group * self.own_tiles + t, lane) for t in range(self.own_tiles)]
        values = [weight.lane(row, j) for row in rows]
        codes = [(row >> 5) * (weight.k // MX_GROUP) + j for row in rows]
        out: list[Any] = []
        for turn in range(self.rounds):
            step = part + self.own_waves * turn
            live = self._live(step, j) if self._ragged(turn) else None
            value_base = _Base(weight.values + fx.Int64(weight.along(k0 + step * STEP)), live, wanted)
            code_base = _Base(weight.codes + fx.Int64(k0 // MX_GROUP + step * (STEP // MX_GROUP)), live, wanted)
            for t in range(self.own_tiles):
                low, high = (value_base.words(values[t], half * weight.along(64), half) for half in (0, 1))
                shared = t % 2 and self.own_tiles % 2 == 0  # both tiles lie in one block of 32 rows
                out.append((low, high, out[-1][2] if shared else code_base.code(codes[t])))
        return out

    def _live(self, step: Any, j: Any) -> tuple[Any, Any, Any]:
        """Whether lane group ``j``'s low bytes, its high bytes and its K block of step ``step`` lie in the window."""
        at = step * STEP + j * 16
        return at < self.window, at + 64 < self.window, at + j * 16 < self.window

    def put_rows(self, rows: RowsInFlight, x: Any) -> None:
        """The fetched rows into LDS rows 0 .. of ``x``; a barrier must follow."""
        for i, words in enumerate(rows.words):
            value = words[0] if len(words) == 1 else fx.Vector.from_elements(words, fx.Int32)
            lds_store(x, rows.at(i, self.row_words), value)

    def contract(self, cta: Any, x: Any, rows: int, weights: list[Any], sums: Any) -> None:
        """LDS rows 0 .. ``rows`` of ``x`` times ``weights`` -> the waves' sums [wave][own tile][lane][4]; a barrier
        must follow.

        K blocks past the window multiply zero weights by values of the row's start: nothing unwritten is read.
        """
        j = cta.lane >> 4
        _, part = self._place(cta)
        row = fx.min(cta.lane & 15, rows - 1) * self.row_words
        totals = [zero_tile() for _ in range(self.own_tiles)]
        for turn in range(self.rounds):
            step = part + self.own_waves * turn
            low_at = step * (STEP // 4) + j * 4
            high_at = low_at + 16
            code_at = step * (STEP // MX_GROUP) + j
            if self._ragged(turn):
                low_live, high_live, code_live = self._live(step, j)
                low_at = low_live.select(low_at, fx.Int32(0))
                high_at = high_live.select(high_at, fx.Int32(0))
                code_at = code_live.select(code_at, fx.Int32(0))
            low, high = lds_load(x, row + low_at, 4), lds_load(x, row + high_at, 4)
            code = lds_load(x, row + (code_at + self.window // 4))
            b = _operand(low, high)
            for t in range(self.own_tiles):
                w_low, w_high, w_code = weights[turn * self.own_tiles + t]
                totals[t] = mfma_mx(_operand(w_low, w_high), b, totals[t], w_code, code)
        for t, total in enumerate(totals):
            lds_store(sums, ((cta.wave * self.own_tiles + t) * 64 + cta.lane) * 4, total)

    def total(self, sums: Any, tile: Any, quad: Any, row: Any) -> list[Any]:
        """Weight rows 4 quad .. + 4 of row tile ``tile`` times activation row ``row``: the waves' sums added in wave
        order.
        """
        group, own = (0, tile) if self.groups == 1 else divide(tile, self.own_tiles)
        at = ((group * (self.own_waves * self.own_tiles) + own) * 64 + quad * TILE + row) * 4
        got = [lds_load(sums, at + w * (self.own_tiles * 256), 4, fx.Float32) for w in range(self.own_waves)]
        out = [got[0][e] for e in range(4)]
        for more in got[1:]:
            out = [out[e] + more[e] for e in range(4)]
        return out


def _operand(low: Any, high: Any) -> Any:
    return fx.Vector.from_elements([low[e] for e in range(4)] + [high[e] for e in range(4)], fx.Int32)
