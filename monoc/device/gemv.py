"""Dense MXFP8 weights against MXFP8 rows, on 16x16x128 scaled MFMAs, operands straight from memory to registers.

A task owns row tiles of 16 weight rows and a window of K. Waves split into ``groups``: a group takes ``tiles /
groups`` of the row tiles, its waves take the window's 128-steps in turn (wave w of the group: steps w, w + waves,
...), and the waves' 16x16 sums, which meet in LDS, are added in wave order. A wave's weights stay in registers while
token tiles of up to 16 rows pass; of those it reads just the K it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.intrinsics import buffer_load, buffer_resource
from monoc.device.items import divide
from monoc.device.memory import STREAM, gload, lds_load, lds_store
from monoc.device.mfma import mfma_mx, zero_tile
from monoc.device.mxrows import MX_GROUP, MxRows
from monoc.device.quantise import lds_row_words

__all__ = ["TILE", "MxGemv", "MxOperand", "MxWeight"]

TILE = 16  # rows and columns of an MFMA tile
STEP = 128  # K values of one scaled MFMA
_SHARED_WORDS = 20  # words a lane polls for the CTA, bounds its registers
# A byte offset outside any 16 rows of weights: a buffer load there gives zeros and costs no traffic.
_OUTSIDE = 0x7FFFFFF0


@dataclass(frozen=True)
class MxOperand(Frozen):
    """A lane's part of a 128-step of 16 rows: eight words of e4m3 (two runs of 16 values), the E8M0 code of its
    block.
    """

    words: list[Any]
    code: Any

    @property
    def vector(self) -> Any:
        return fx.Vector.from_elements(self.words, fx.Int32)


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


def _both(a: Any, b: Any) -> Any:
    return a if b is None else a & b


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
            return fx.Int32(fx.Uint8(gload(self.address, offset, fx.Uint8)))
        return fx.Int32(buffer_load(self._resource(), self._masked(offset, 2), 1, fx.Uint8, 0))


@dataclass(frozen=True)
class MxGemv(Frozen):
    """How a task contracts ``window`` values of K for ``tiles`` row tiles on ``waves`` waves in ``groups`` groups.

    ``rows``: the weight's; a task's tiles past them load and give nothing. ``half``: 0: tile t is 16 consecutive
    rows; else tile t is rows 8 t .. + 8 and the same rows ``half`` further on (a gate and its up rows in one tile).
    """

    rows: int
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
    def elements(self) -> int:
        """fp32 elements of the waves' sums of one token tile."""
        return self.waves * self.own_tiles * 256

    def _place(self, cta: Any) -> tuple[Any, Any]:
        """This wave's group and its place there."""
        return (0, cta.wave) if self.groups == 1 else divide(cta.wave, self.own_waves)

    def _ragged(self, turn: int) -> bool:
        return STEP * self.own_waves * (turn + 1) > self.window

    @property
    def outputs(self) -> int:
        """Outputs a token."""
        return self.half or self.rows

    @property
    def task_outputs(self) -> int:
        """Outputs a task."""
        return self.tiles * (TILE // 2 if self.half else TILE)

    def takes(self, tid: Any, count: int, first: Any) -> Any:
        """Whether thread ``tid`` has results: four outputs each, of ``count`` rows, from output ``first``."""
        quads = self.task_outputs // 4
        mine = tid < count * quads
        if self.outputs % self.task_outputs:
            mine = mine & (first + divide(tid, quads)[1] * 4 < self.outputs)
        return mine

    def _wanted(self, first: Any, tile: Any, wanted: Any) -> Any:
        """Whether row tile ``tile`` of a task is to be loaded, None for always."""
        if self.outputs % self.task_outputs == 0:
            return wanted
        return _both(first + tile * (self.task_outputs // self.tiles) < self.outputs, wanted)

    def _row(self, first: Any, tile: Any, lane: Any) -> Any:
        if self.half:
            return first + tile * (TILE // 2) + (lane & 7) + ((lane >> 3) & 1) * self.half
        return first + tile * TILE + (lane & 15)

    def load(self, cta: Any, weight: MxWeight, first: Any, k0: Any = 0, wanted: Any = None) -> list[MxOperand]:
        """This wave's weights of rows ``first`` .., values ``k0`` .. + window, all in flight.

        Per turn and own tile. Steps and K blocks past the window, and everything
        where the wave-uniform ``wanted`` does not hold, are zeros without memory traffic.
        """
        lane, j = cta.lane, cta.lane >> 4
        group, part = self._place(cta)
        tiles = [group * self.own_tiles + t for t in range(self.own_tiles)]
        rows = [self._row(first, tile, lane) for tile in tiles]
        wants = [self._wanted(first, tile, wanted) for tile in tiles]
        values = [weight.lane(row, j) for row in rows]
        codes = [(row >> 5) * (weight.k // MX_GROUP) + j for row in rows]
        out: list[MxOperand] = []
        for turn in range(self.rounds):
            step = part + self.own_waves * turn
            live = None
            if self._ragged(turn) and self._whole:
                wants = [_both(step < self.window // STEP, want) for want in wants]
            elif self._ragged(turn):
                live = self._live(step, j)
            value_base = weight.values + fx.Int64(weight.along(k0 + step * STEP))
            code_base = weight.codes + fx.Int64(k0 // MX_GROUP + step * (STEP // MX_GROUP))
            for t in range(self.own_tiles):
                source = _Base(value_base, live, wants[t])
                low, high = (source.words(values[t], half * weight.along(64), half) for half in (0, 1))
                shared = t % 2 and self.own_tiles % 2 == 0  # both tiles lie in one block of 32 rows
                code = out[-1].code if shared else _Base(code_base, live, wants[t]).code(codes[t])
                out.append(MxOperand([half[e] for half in (low, high) for e in range(4)], code))
        return out

    @property
    def _whole(self) -> bool:
        """Whether a step lies in the window or does not, for all lanes alike."""
        return self.window % STEP == 0

    def _live(self, step: Any, j: Any) -> tuple[Any, Any, Any]:
        """Whether lane group ``j``'s low bytes, its high bytes and its K block of step ``step`` lie in the window."""
        at = step * STEP + j * 16
        return at < self.window, at + 64 < self.window, at + j * 16 < self.window

    def _steps(self, cta: Any) -> list[tuple[Any, Any, Any]]:
        """Per turn, where in the window this lane's low 16 and its high 16 values (in fours) and its K block are.

        In place of those past the window others of it: they meet weights of zero.
        """
        j = cta.lane >> 4
        _, part = self._place(cta)
        out = []
        for turn in range(self.rounds):
            step = part + self.own_waves * turn
            if self._ragged(turn) and self._whole:
                step = fx.min(step, self.window // STEP - 1)
            low = step * (STEP // 4) + j * 4
            places = [low, low + 16, step * (STEP // MX_GROUP) + j]
            if self._ragged(turn) and not self._whole:
                zero = fx.Int32(0)
                places = [live.select(p, zero) for live, p in zip(self._live(step, j), places, strict=True)]
            out.append((places[0], places[1], places[2]))
        return out

    def rows_mx(self, cta: Any, region: Any, layout: MxRows, first: Any, count: int, k0: Any) -> list[MxOperand]:
        """Rows ``first`` .. + ``count`` (up to 16) of an MXFP8 region, this wave's steps of values ``k0`` .. +
        window.
        """
        row = first + fx.min(cta.lane & 15, count - 1)
        values, codes = layout.value(row, k0 // 4), layout.code(row, k0 // MX_GROUP)
        wanted = []
        for low, high, block in self._steps(cta):
            wanted += [(values + low, 4), (values + high, 4), (codes + block, 1)]
        got = region.get(wanted)
        return [MxOperand([*got[i], *got[i + 1]], got[i + 2][0]) for i in range(0, len(got), 3)]

    @flyc.jit
    def share_rows(self, cta: Any, region: Any, layout: MxRows, count: int, k0: Any, x: Any) -> None:
        """Rows 0 .. ``count`` of a polled MXFP8 region, values ``k0`` .. + window -> LDS ``x``, as ``rows_lds`` reads
        them; a barrier must follow. As few waves as can hold them wait, each word in one lane.
        """
        quads, codes = count * (self.window // 16), count * (self.window // MX_GROUP)
        lanes = 64 * min(cta.waves, -(-(4 * quads + codes) // (64 * _SHARED_WORDS)))
        if cta.tid < lanes:
            values = [fx.min(cta.tid + first, quads - 1) for first in range(0, quads, lanes)]
            scales = [fx.min(cta.tid + first, codes - 1) for first in range(0, codes, lanes)]
            wanted, at = [], []
            for item in values:
                row, quad = divide(item, self.window // 16)
                wanted.append((layout.value(row, k0 // 4) + quad * 4, 4))
                at.append(row * lds_row_words(self.window) + quad * 4)
            for item in scales:
                row, code = divide(item, self.window // MX_GROUP)
                wanted.append((layout.code(row, k0 // MX_GROUP) + code, 1))
                at.append(row * lds_row_words(self.window) + (self.window // 4 + code))
            for place, words in zip(at, region.get(wanted), strict=True):
                one = len(words) == 1
                lds_store(x, place, fx.Int32(words[0]) if one else fx.Vector.from_elements(words, fx.Int32))

    def rows_lds(self, cta: Any, x: Any, count: int) -> list[MxOperand]:
        """LDS rows 0 .. ``count`` (up to 16) of the window that ``put_mx`` wrote."""
        row = fx.min(cta.lane & 15, count - 1) * lds_row_words(self.window)
        out = []
        for low, high, block in self._steps(cta):
            halves = [lds_load(x, row + low, 4), lds_load(x, row + high, 4)]
            code = lds_load(x, row + (block + self.window // 4))
            out.append(MxOperand([half[e] for half in halves for e in range(4)], code))
        return out

    def contract(self, cta: Any, rows: list[MxOperand], weights: list[MxOperand], sums: Any, base: int = 0) -> None:
        """``rows`` times ``weights`` -> the waves' sums from element ``base`` of ``sums``; a barrier must follow."""
        totals = [zero_tile() for _ in range(self.own_tiles)]
        for turn, row in enumerate(rows):
            for t in range(self.own_tiles):
                w = weights[turn * self.own_tiles + t]
                totals[t] = mfma_mx(w.vector, row.vector, totals[t], w.code, row.code)
        for t, total in enumerate(totals):
            lds_store(sums, ((cta.wave * self.own_tiles + t) * 64 + cta.lane) * 4 + base, total)

    def total(self, sums: Any, tile: Any, quad: Any, row: Any, base: int = 0) -> list[Any]:
        """Weight rows 4 quad .. + 4 of row tile ``tile`` times activation row ``row``: the waves' sums added in wave
        order.
        """
        group, own = (0, tile) if self.groups == 1 else divide(tile, self.own_tiles)
        at = ((group * (self.own_waves * self.own_tiles) + own) * 64 + quad * TILE + row) * 4 + base
        got = [lds_load(sums, at + w * (self.own_tiles * 256), 4, fx.Float32) for w in range(self.own_waves)]
        out = [got[0][e] for e in range(4)]
        for more in got[1:]:
            out = [out[e] + more[e] for e in range(4)]
        return out
