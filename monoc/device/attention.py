"""Flash-decoding over chunks of a token's keys, and the merge of the chunks.

Keys and values are one record of ``fp8_ds_mla``: ``head - rope`` e4m3 values, then ``rope`` bf16 values; in the
block's tail 8 bytes a record, one E8M0 code a 64 e4m3 values. A CTA takes ``chunk`` keys of one token and all of the
rank's heads: wave w loads, dequantises and scores the 16 keys of tile w mod (chunk / 16) against a group of the head
tiles, and keeps the rows as bf16 in LDS; then it multiplies 64-value blocks of every row with the probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import rocdl
from flydsl.expr.typing import T, as_ir_value

from monoc.device.frozen import Frozen
from monoc.device.intrinsics import ballot_bits
from monoc.device.lanes import gather, reduce_lanes
from monoc.device.memory import gload, lds_load, lds_store
from monoc.device.mfma import mfma_bf16, zero_tile
from monoc.device.numeric import bf16_pack, exp2, power_of_two
from monoc.device.permute import transpose_halves

__all__ = [
    "BLOCK", "COMPRESSED", "HEAD_TILE", "KEY_TILE", "LEAST", "NO_SLOT", "AttentionSplit", "KeyCache", "KeyRecord",
    "key_record",
]  # fmt: skip

LEAST = -3.4028234663852886e38  # the score of no key: the least finite fp32
HEAD_TILE = 16  # heads of an MFMA
KEY_TILE = 16  # keys of an MFMA
BLOCK = 64  # values under one E8M0 code of a record, and of a wave's share of the output
NO_SLOT = -1  # a key table entry: no key
COMPRESSED = -(2**31)  # bit 31 of a key table entry: the slot is one of the compressed cache, not the window's
CODE_BYTES = 8  # a record's codes and their pad


@dataclass(frozen=True)
class KeyCache(Frozen):
    """A paged cache: Int64 address, records a block (Int32), bytes from a block to the next (Int64)."""

    base: Any
    block: Any
    stride: Any


@dataclass(frozen=True)
class KeyRecord(Frozen):
    """Sixteen keys in flight, lane l: key l % 16's bytes 16 g .. of every 64 values, g = l // 16; its bf16 values;
    its codes.
    """

    nope: list[Any]
    rope: list[Any]
    codes: Any


def _pick(which: Any, a: KeyCache, b: KeyCache) -> KeyCache:
    return KeyCache(which.select(a.base, b.base), which.select(a.block, b.block), which.select(a.stride, b.stride))


def key_record(
    lane: Any, entry: Any, live: Any, window: KeyCache, compressed: KeyCache | None, head: int, rope: int
) -> Any:
    """The record of key table entry ``entry``: a slot of ``window``, or of ``compressed`` if :data:`COMPRESSED` is set.

    Where ``live`` does not hold, slot 0 of the window is read (it exists) and every word is zero: a zero row's
    products are 0.
    """
    cache = window if compressed is None else _pick(live & (entry < 0), compressed, window)
    slot = fx.Uint32(live.select(entry & ~COMPRESSED, fx.Int32(0)))
    block = slot // fx.Uint32(cache.block)
    inside = fx.Int32(slot - block * fx.Uint32(cache.block))
    page = cache.base + fx.Int64(block) * cache.stride
    nope, size = head - rope, head + rope
    g = lane >> 4
    data = page + fx.Int64(inside * size + g * 16)
    codes = gload(page + fx.Int64(fx.Int32(cache.block) * size + inside * CODE_BYTES), 0, fx.Int32, 2)
    low = [gload(data + fx.Int64(BLOCK * c), 0, fx.Int32, 4) for c in range(nope // BLOCK)]
    high = [gload(data + fx.Int64(nope + BLOCK * c), 0, fx.Int32, 4) for c in range(rope // 32)]

    def mask(words: Any, count: int) -> Any:
        return fx.Vector.from_elements([live.select(words[e], fx.Int32(0)) for e in range(count)], fx.Int32)

    return KeyRecord([mask(w, 4) for w in low], [mask(w, 4) for w in high], mask(codes, 2))


def _dequantise(low: Any, high: Any, scale: Any) -> Any:
    """Eight e4m3 of two words times ``scale`` (a power of two) as eight bf16, exact."""
    words = []
    for word in (low, high):
        for half in (False, True):
            pair = rocdl.cvt_scalef32_pk_bf16_fp8(
                T.bf16x2, as_ir_value(fx.Int32(word)), as_ir_value(fx.Float32(scale)), half
            )
            words.append(fx.Vector(pair).bitcast(fx.Int32)[0])
    return fx.Vector.from_elements(words, fx.Int32)


@dataclass(frozen=True)
class AttentionSplit(Frozen):
    """One chunk's shape: ``heads`` of ``head`` values (the last ``rope`` bf16 in a record), ``chunk`` keys,
    ``waves``.
    """

    heads: int
    head: int
    rope: int
    chunk: int
    waves: int

    @property
    def nope(self) -> int:
        return self.head - self.rope

    @property
    def tiles(self) -> int:
        """Head tiles, the last one padded by repeats of the last head."""
        return -(-self.heads // HEAD_TILE)

    @property
    def key_tiles(self) -> int:
        return self.chunk // KEY_TILE

    @property
    def groups(self) -> int:
        """Groups of waves that share the key tiles and split the head tiles."""
        return self.waves // self.key_tiles

    @property
    def own_tiles(self) -> int:
        """Head tiles a wave scores."""
        return -(-self.tiles // self.groups)

    @property
    def row_words(self) -> int:
        """LDS words of a row of ``head`` bf16: 4 past a multiple of 32, so 16 rows spread over the banks."""
        return self.head // 2 + 4

    @property
    def p_words(self) -> int:
        """LDS words of one head's probabilities."""
        return self.chunk // 2 + 4

    def head_tile(self, cta: Any, own: int) -> Any:
        """The head tile a wave scores as its ``own``-th (a wave without one repeats the last)."""
        if self.groups == 1:
            return own
        return fx.min((cta.wave // self.key_tiles) * self.own_tiles + own, self.tiles - 1)

    def _query(self, q: Any, lane: Any, tile: Any, word: Any) -> Any:
        row = fx.min(tile * HEAD_TILE + (lane & 15), self.heads - 1)
        return lds_load(q, row * self.row_words + word, 4).bitcast(fx.BFloat16)

    def scores(self, cta: Any, record: KeyRecord, q: Any, v: Any, squares: bool = False) -> tuple[list[Any], list[Any]]:
        """q.k of this wave's 16 keys (result rows) and each own head tile (columns); the keys' bf16 rows into LDS
        ``v``; with ``squares``, also each head's q.q (a value a lane, of head ``lane % 16``).

        The contraction takes a record's values in the order they are loaded: blocks of 64, in a block lane group g's
        16 as its two eights.
        """
        lane, g = cta.lane, cta.lane >> 4
        key = (cta.wave % self.key_tiles) * KEY_TILE + (lane & 15)
        tiles = [self.head_tile(cta, t) for t in range(self.own_tiles)]
        totals = [zero_tile() for _ in tiles]
        own = [zero_tile() for _ in tiles]
        parts: list[tuple[Any, Any]] = []
        for c, words in enumerate(record.nope):
            scale = power_of_two((record.codes[c // 4] >> (8 * (c % 4))) & 0xFF)
            parts += [(_dequantise(words[2 * h], words[2 * h + 1], scale), c * 32 + g * 8 + h * 4) for h in (0, 1)]
        parts += [(words, self.nope // 2 + c * 16 + g * 4) for c, words in enumerate(record.rope)]
        for row, word in parts:
            lds_store(v, key * self.row_words + word, row)
            for t, tile in enumerate(tiles):
                query = self._query(q, lane, tile, word)
                totals[t] = mfma_bf16(row.bitcast(fx.BFloat16), query, totals[t])
                if squares:
                    own[t] = mfma_bf16(query, query, own[t])
        return totals, [self._diagonal(lane, tile) for tile in own] if squares else []

    def _diagonal(self, lane: Any, tile: Any) -> Any:
        """Element (lane % 16, lane % 16) of a result tile."""
        i = lane & 3
        low, high = ((i & 1) == 0).select(tile[0], tile[1]), ((i & 1) == 0).select(tile[2], tile[3])
        return gather(fx.Float32((i < 2).select(low, high)), ((lane & 12) << 2) | (lane & 15))

    def valid(self, lane: Any, live: Any) -> list[Any]:
        """Which of keys 4 g .. + 4 of the tile exist, ``live`` being lane l's for key l % 16."""
        bits = fx.Int32(ballot_bits(live)) >> ((lane >> 4) * 4)
        return [(bits & (1 << i)) != 0 for i in range(4)]

    def _stat(self, tile: Any, key_tile: Any, lane: Any) -> Any:
        return (tile * self.key_tiles + key_tile) * HEAD_TILE + (lane & 15)

    def put_max(self, cta: Any, scores: list[Any], maxima: Any) -> None:
        """The maximum of each own tile's scores over this wave's keys; a barrier must follow."""
        for t, s in enumerate(scores):
            top = reduce_lanes(fx.max(fx.max(s[0], s[1]), fx.max(s[2], s[3])), (32, 16), fx.max)
            lds_store(maxima, self._stat(self.head_tile(cta, t), cta.wave % self.key_tiles, cta.lane), top)

    def top(self, maxima: Any, tile: Any, lane: Any) -> Any:
        """The chunk's maximum of head ``lane % 16`` of ``tile``."""
        got = [lds_load(maxima, self._stat(tile, k, lane)) for k in range(self.key_tiles)]
        out = got[0]
        for m in got[1:]:
            out = fx.max(out, m)
        return out

    def sum(self, sums: Any, tile: Any, lane: Any) -> Any:
        """The chunk's sum of probabilities of head ``lane % 16`` of ``tile``: key tiles in order."""
        out = lds_load(sums, self._stat(tile, 0, lane))
        for k in range(1, self.key_tiles):
            out = out + lds_load(sums, self._stat(tile, k, lane))
        return out

    def put_probabilities(self, cta: Any, scores: list[Any], valid: list[Any], maxima: Any, p: Any, sums: Any) -> None:
        """exp2(score - chunk maximum) as bf16 into ``p`` and the unrounded sum over this wave's keys into ``sums``.

        A sum: (p0 + p2) + (p1 + p3) of a lane's keys, then lanes 32 and 16 apart.
        """
        lane = cta.lane
        key_tile = cta.wave % self.key_tiles
        for t, s in enumerate(scores):
            tile = self.head_tile(cta, t)
            top = self.top(maxima, tile, lane)
            e = [fx.Float32(valid[i].select(exp2(s[i] - top), fx.Float32(0.0))) for i in range(4)]
            words = fx.Vector.from_elements([bf16_pack(e[0], e[1]), bf16_pack(e[2], e[3])], fx.Int32)
            at = (tile * HEAD_TILE + (lane & 15)) * self.p_words + key_tile * (KEY_TILE // 2) + (lane >> 4) * 2
            lds_store(p, at, words)
            total = reduce_lanes((e[0] + e[2]) + (e[1] + e[3]), (32, 16))
            lds_store(sums, self._stat(tile, key_tile, lane), total)

    def weighted(self, lane: Any, block: Any, v: Any, p: Any) -> list[list[Any]]:
        """Per head tile: the eight words of bf16 sum over the chunk of p * v, values 64 block + 16 g .. + 16 of head
        l % 16.

        A lane reads four values of each of eight keys; four MFMAs take value 4 r + d of row r each, so that a lane's
        results are 16 consecutive values.
        """
        g = lane >> 4
        totals = [[zero_tile() for _ in range(4)] for _ in range(self.tiles)]
        for step in range(self.chunk // 32):
            row = (step * 32 + g * 8) * self.row_words + block * (BLOCK // 2) + (lane & 15) * 2
            words = [lds_load(v, row + j * self.row_words, 2) for j in range(8)]
            operands: list[list[Any]] = [[], [], [], []]
            for j in range(0, 8, 2):
                for half in (0, 1):
                    low, high = transpose_halves(words[j][half], words[j + 1][half])
                    operands[2 * half].append(low)
                    operands[2 * half + 1].append(high)
            a = [fx.Vector.from_elements(o, fx.Int32).bitcast(fx.BFloat16) for o in operands]
            for t in range(self.tiles):
                at = (t * HEAD_TILE + (lane & 15)) * self.p_words + step * 16 + g * 4
                b = lds_load(p, at, 4).bitcast(fx.BFloat16)
                for d in range(4):
                    totals[t][d] = mfma_bf16(a[d], b, totals[t][d])
        out = []
        for tile in totals:
            out.append([bf16_pack(tile[2 * h][i], tile[2 * h + 1][i]) for i in range(4) for h in (0, 1)])
        return out
