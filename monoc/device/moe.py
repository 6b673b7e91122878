"""Expert matrices: MXFP4 weights against MXFP8 rows, by 16-row tiles.

Weights ``[experts * rows, k / 2]`` bytes, two e2m1 a byte, low nibble the lower K, every 16 rows in aiter's (16, 16)
byte shuffle: ``[k / 32 chunks of 16 bytes][16 rows][16 bytes]``, so a wave's 64 lanes read a K step of 128 as 1 KiB in
a row. Scales ``[experts * rows, columns]`` E8M0 in aiter's ``shuffle_scale`` order: a 32-row block is
``[columns / 8][4][16 rows][2 halves of 4 columns][2 tiles]`` bytes, so lane l's word holds the codes of two K steps
times two tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr

from monoc.device.frozen import Frozen
from monoc.device.handoff import FlagRegion, poll_pairs
from monoc.device.intrinsics import opaque_scalar
from monoc.device.items import divide
from monoc.device.lanes import reduce_lanes
from monoc.device.memory import STREAM, gload, lds_load, lds_store, load_within
from monoc.device.mfma import FP4, FP8, UNIT_SCALE, mfma_mx
from monoc.device.mxrows import MxRows, mx_words
from monoc.device.numeric import power_of_two_inverse
from monoc.device.route import part_pieces
from monoc.device.rows import passes

__all__ = [
    "FILL_ROWS", "K_STEP", "ROWS", "ExpertMatrix", "MidRows", "RowTile", "fp8_operand", "mid_operands", "mx_multiply",
    "pairwise_sum", "publish_mx_quad", "unit_code", "wave_wait", "zero_unless",
]  # fmt: skip

ROWS = 16  # rows of a matrix instruction
K_STEP = 128  # K of the scaled one
_STEP_BYTES = ROWS * K_STEP // 2
_CHUNK_COLUMNS = 8  # scale columns of a word's two K steps
# rows staged at a time: few experts have more picks in a decode step, and a thread holds few 16-byte pieces of them
FILL_ROWS = 4


@dataclass(frozen=True)
class ExpertMatrix(Frozen):
    """Every expert's ``rows`` x ``k`` MXFP4 matrix: Int64 addresses of its weights and of its scales.

    ``columns``: scale columns as stored (k / 32, or that padded to a multiple of 8).
    """

    weights: Any
    scales: Any
    rows: int
    k: int
    columns: int

    def tile_address(self, expert: Any, tile: Any) -> Any:
        """Of ``expert``'s rows 16 ``tile`` .. (both wave-uniform), opaque: a load adds its lane's 32-bit offset to two
        scalar registers, where LLVM would otherwise add the lane first and hold a 64-bit address a lane."""
        row = expert * self.rows + tile * ROWS
        return opaque_scalar(fx.Int64(self.weights) + fx.Int64(fx.Uint32(row)) * fx.Int64(self.k // 2))

    def block_address(self, expert: Any, block: Any) -> Any:
        """Of the scales of ``expert``'s rows 32 ``block`` .. (both wave-uniform), opaque."""
        row = expert * self.rows + block * (2 * ROWS)
        return opaque_scalar(fx.Int64(self.scales) + fx.Int64(fx.Uint32(row)) * fx.Int64(self.columns))

    def load_step(self, tile_address: Any, step: Any, lane_byte: Any, live: Any = None) -> Any:
        """A lane's operand of K step ``step`` (``lane_byte``: 16 times the lane); zeros, and no memory traffic, where
        the wave-uniform ``live`` (None: everywhere) does not hold."""
        if live is not None:
            word = (lane_byte + step * _STEP_BYTES) // 4
            return load_within(ROWS * self.k // 2, tile_address, word, fx.Int32, 4, STREAM, live)
        return gload(tile_address, lane_byte + step * _STEP_BYTES, fx.Int32, 4, stream=True)

    def load_codes(self, block_address: Any, pair: Any, lane: Any) -> Any:
        """A lane's codes of K steps 2 ``pair`` and the next: byte ``2 * (step % 2) + tile % 2``."""
        return gload(block_address, lane * 4 + pair * (2 * ROWS * _CHUNK_COLUMNS), fx.Int32, 1, stream=True)


@dataclass(frozen=True)
class MidRows(MxRows):
    """MXFP8 rows with the codes [4 groups of a K step][K step]: those a matrix lane wants are consecutive words."""

    def code(self, row: Any, group: Any) -> Any:
        return row * self.stride + (self.values + (group & 3) * (self.k // K_STEP) + (group >> 2))


def fp8_operand(low: Any, high: Any) -> fx.Vector:
    """A lane's operand of a K step: K bytes 16 j .. and 64 + 16 j .., four words each."""
    return fx.Vector.from_elements([fx.Int32(w[e]) for w in (low, high) for e in range(4)], fx.Int32)


def mx_multiply(weight: Any, row: Any, total: Any, weight_codes: Any, row_code: Any, byte: int) -> fx.Vector:
    """``total`` + fp4 ``weight`` x fp8 ``row`` over one K step; the weight's code is byte ``byte`` of its word."""
    return mfma_mx(weight, row, total, weight_codes, row_code, FP4, FP8, byte, 0)


def publish_mx_quad(
    region: Any, rows: MxRows, row: Any, word: Any, values: list[Any], code_of: Callable[[Any], Any], live: Any
) -> None:
    """Four f32 ``values`` as word ``word`` of MXFP8 row ``row``, where ``live``.

    Lanes 8 n .. 8 n + 7 hold a group of 32, ``word`` ascending; their common code is ``code_of`` the largest magnitude.
    """
    largest = fx.max(fx.max(abs(values[0]), abs(values[1])), fx.max(abs(values[2]), abs(values[3])))
    code = code_of(reduce_lanes(largest, (1, 2, 4), fx.max))
    _put_quad(region, rows, row, word, mx_words(values, power_of_two_inverse(code)), code, live)


@flyc.jit
def _put_quad(region: Any, rows: MxRows, row: Any, word: Any, words: list[Any], code: Any, live: Any) -> None:
    if live:
        region.put(rows.value(row, word), words)
    if live & ((word & 7) == 0):
        region.put(rows.code(row, word >> 3), [code])


@flyc.jit
def wave_wait(region: Any, lane: Any, first: Any, count: int) -> None:
    """One wave, before it reads units ``first`` .. + ``count``; no other wave waits."""
    if const_expr(isinstance(region, FlagRegion)):
        for turn in range_constexpr(passes(count, 64)):
            item = fx.min(lane + 64 * turn, count - 1)
            poll_pairs(region.flags, region.tag, [(first + item, 1)], region.words.policy, region.limit)


def unit_code(past: Any, code: Any) -> Any:
    """``code``, or that of 1.0 where ``past``."""
    return past.select(fx.Int32(UNIT_SCALE), code)


@dataclass(frozen=True)
class RowTile(Frozen):
    """MXFP8 rows in LDS (Int32 array ``array``), each as in its region; an odd number of 16-byte pieces apart, so that
    16 lanes reading the same piece of 16 rows meet no bank twice."""

    array: Any
    rows: MxRows

    @property
    def stride(self) -> int:
        return (self.rows.stride // 4 | 1) * 4

    def _mine(self, cta: Any, count: int) -> list[tuple[Any, Any]]:
        """A thread's (row, 16-byte piece) of ``count`` rows.

        A thread past the last piece has that piece again: left out, it would make LLVM wait for every load in flight,
        the weights' too, before the next turn's.
        """
        pieces = self.rows.stride // 4
        turns = passes(count * pieces, cta.threads)
        return [divide(fx.min(cta.tid + turn * cta.threads, count * pieces - 1), pieces) for turn in range(turns)]

    def fetch(self, cta: Any, region: Any, token_of: Callable[[Any], Any], count: int) -> list[fx.Vector]:
        """A thread's pieces of the region's rows ``token_of(0)`` .. ``token_of(count - 1)``, on their way."""
        wanted = [(self.rows.value(token_of(row), piece * 4), 4) for row, piece in self._mine(cta, count)]
        return [fx.Vector.from_elements([fx.Int32(w) for w in words], fx.Int32) for words in region.get(wanted)]

    def place(self, cta: Any, at: Any, count: int, fetched: list[fx.Vector]) -> None:
        """What :meth:`fetch` got as rows ``at`` .. + ``count``; the caller lets the CTA meet."""
        for (row, piece), words in zip(self._mine(cta, count), fetched, strict=True):
            lds_store(self.array, (at + row) * self.stride + piece * 4, words)

    def fill(self, cta: Any, region: Any, count: int) -> None:
        """Rows 0 .. ``count`` become the region's, a few at a time; the caller lets the CTA meet."""
        for at in range(0, count, 2 * FILL_ROWS):
            some = min(2 * FILL_ROWS, count - at)

            def token_of(row: Any, at: int = at) -> Any:
                return at + row

            self.place(cta, at, some, self.fetch(cta, region, token_of, some))

    def operand(self, row: Any, step: Any, lane: Any) -> fx.Vector:
        """A lane's fp8 operand of K step ``step`` of row ``row``."""
        at = row * self.stride + step * (K_STEP // 4) + lane // 16 * 4
        return fp8_operand(lds_load(self.array, at, 4), lds_load(self.array, at + K_STEP // 8, 4))

    def code(self, row: Any, step: Any, lane: Any) -> fx.Int32:
        """The code of a lane's K block of 32 in that step."""
        return lds_load(self.array, row * self.stride + (self.rows.values + step * 4 + lane // 16))


def zero_unless(live: Any, operand: Any) -> fx.Vector:
    """``operand``, or zero words where ``live`` does not hold."""
    words = [fx.Int32(live.select(operand[e], fx.Int32(0))) for e in range(operand.numel)]
    return fx.Vector.from_elements(words, fx.Int32)


def pairwise_sum(values: list[Any]) -> Any:
    """(v0 + v1) + (v2 + v3), ...: a balanced tree, neighbours first; a power of two of them."""
    while len(values) > 1:
        values = [values[i] + values[i + 1] for i in range(0, len(values), 2)]
    return values[0]


def mid_operands(region: Any, rows: MidRows, row: Any, real: int, lane: Any) -> tuple[list[Any], list[Any]]:
    """A lane's fp8 operands and codes of ``row``'s K steps, straight from the region.

    Columns past ``real`` (a multiple of 32) were never written: they read as zeros under the code of 1.0.
    """
    j = lane // 16
    steps = -(-real // K_STEP)
    full = real // K_STEP
    wanted: list[tuple[Any, int]] = []
    past: list[Any] = []  # of each half step: no lane, every lane, or which lanes lie past the real columns
    for half in range(2 * steps):
        first = half * (K_STEP // 2)
        word = first // 4 + j * 4
        if first >= real:
            past.append(True)
            continue
        past.append(False if first + K_STEP // 2 <= real else word * 4 >= real)
        wanted.append((rows.value(row, word if past[-1] is False else past[-1].select(fx.Int32(0), word)), 4))
    code_words = [(first, n) for first, n in part_pieces(full)]
    wanted += [(rows.code(row, j + 4 * first), n) for first, n in code_words]
    if full < steps:
        code_past = (full * 4 + j) * 32 >= real
        wanted.append((rows.code(row, code_past.select(fx.Int32(0), full * 4 + j)), 1))
    got = region.get(wanted)
    halves, at = [], 0
    for beyond in past:
        if beyond is True:
            halves.append([fx.Int32(0)] * 4)
            continue
        words = got[at]
        at += 1
        if beyond is not False:
            words = [fx.Int32(beyond.select(fx.Int32(0), fx.Int32(w))) for w in words]
        halves.append(words)
    codes = [fx.Int32(w) for piece in got[at : at + len(code_words)] for w in piece]
    if full < steps:
        codes.append(unit_code(code_past, fx.Int32(got[-1][0])))
    return [fp8_operand(halves[2 * s], halves[2 * s + 1]) for s in range(steps)], codes
