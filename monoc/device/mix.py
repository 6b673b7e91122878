"""Partial projections of a column slice: a few fp32 weight rows against every token, by bf16 matrix instructions.

The weight w enters as hi = bf16(w) and lo = bf16(w - hi); with bf16 activations every product is exact in fp32, so only
the sums round. The CTA loads and splits a slice's weights once, a share a wave; both operands go through LDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr

from monoc.device.frozen import Frozen
from monoc.device.items import divide
from monoc.device.memory import lds_load, lds_store, load_within
from monoc.device.mfma import mfma_bf16, zero_tile
from monoc.device.numeric import bf16_high, bf16_low, bf16_pack

__all__ = ["MixTiles", "load_weights", "mix_tile", "split_weights", "store_weights"]

_K = 32  # columns a matrix instruction takes
_TILE_WORDS = 2 * 64 * 4  # hi and lo operands of a wave, 16 bytes a lane


@dataclass(frozen=True)
class MixTiles(Frozen):
    """``rows`` mixes of ``tokens`` tokens over ``columns`` columns of ``streams`` streams, dealt to ``waves``.

    Twice: 16 weight rows x 32 columns to the wave that loads and splits them, 16 weight rows x 16 tokens (a *unit*'s
    turn) to the one that multiplies them.
    """

    rows: int
    tokens: int
    waves: int
    streams: int
    columns: int

    def __post_init__(self) -> None:
        if self.row_tiles > self.waves:
            raise ValueError(
                f"{self.rows} mixes need {self.row_tiles} waves, a tile of 16 each; the CTA has {self.waves}"
            )

    @property
    def row_tiles(self) -> int:
        return -(-self.rows // 16)

    @property
    def steps(self) -> int:
        """Products of a row tile: 32 columns of a stream each."""
        return self.streams * (self.columns // _K)

    @property
    def weight_tiles(self) -> int:
        return self.row_tiles * self.steps

    @property
    def weight_turns(self) -> int:
        """Weight tiles a wave loads."""
        return -(-self.weight_tiles // self.waves)

    @property
    def token_tiles(self) -> int:
        return -(-self.tokens // 16)

    @property
    def groups(self) -> int:
        """Waves that share a row tile."""
        return self.waves // self.row_tiles

    @property
    def turns(self) -> int:
        return -(-self.token_tiles // self.groups)

    def row_tile(self, unit: Any) -> Any:
        return unit % self.row_tiles

    def token_tile(self, unit: Any, turn: int) -> Any:
        """Unit ``unit``'s token tile of this turn; units without one get at least ``token_tiles``."""
        idle = unit >= self.groups * self.row_tiles
        return idle.select(fx.Int32(self.token_tiles), unit // self.row_tiles + turn * self.groups)


def load_weights(address: Any, mix: MixTiles, cta: Any, hidden: int, column: Any) -> list[list[Any]]:
    """A wave's weight tiles, on their way: two times four f32 a lane, of row ``lane % 16`` and 8 columns.

    ``address``: f32 [rows, streams * hidden]; the slice is columns ``column`` .. + ``columns`` of every stream. Rows
    past the mixes and tiles past the last are zeros nobody asks memory for: they lie outside the buffer's bounds.
    """
    pitch = mix.streams * hidden
    each = mix.columns // _K  # tiles of a stream
    out = []
    for turn in range(mix.weight_turns):
        tile = cta.wave + turn * mix.waves
        row_tile, step = divide(tile, mix.steps)
        stream, block = divide(step, each)
        first = stream * hidden + block * _K
        at = (row_tile * 16 + cta.lane % 16) * pitch + column + first + cta.lane // 16 * 8
        out.append([load_within(mix.rows * pitch * 4, address, at + half, fx.Float32, 4) for half in (0, 4)])
    return out


def split_weights(raw: list[Any]) -> tuple[Any, Any]:
    """The (hi, lo) operand words of a lane's 8 weights."""
    values = [v[e] for v in raw for e in range(4)]
    hi = [bf16_pack(values[i], values[i + 1]) for i in range(0, 8, 2)]
    rest = []
    for i, word in enumerate(hi):
        rest += [values[2 * i] - bf16_low(word), values[2 * i + 1] - bf16_high(word)]
    lo = [bf16_pack(rest[i], rest[i + 1]) for i in range(0, 8, 2)]
    return fx.Vector.from_elements(hi, fx.Int32), fx.Vector.from_elements(lo, fx.Int32)


@flyc.jit
def store_weights(operands: Any, mix: MixTiles, cta: Any, loaded: list[list[Any]]) -> None:
    """The wave's tiles, split, to LDS words ``operands`` ([weight tile][hi, lo][lane][4]); the caller lets the CTA
    meet."""
    for turn in range_constexpr(mix.weight_turns):
        tile = cta.wave + turn * mix.waves
        hi, lo = split_weights(loaded[turn])
        at = tile * _TILE_WORDS + cta.lane * 4
        if const_expr((turn + 1) * mix.waves > mix.weight_tiles):  # fewer tiles are left than waves
            if tile < mix.weight_tiles:
                _store_tile(operands, at, hi, lo)
        else:
            _store_tile(operands, at, hi, lo)


def _store_tile(operands: Any, at: Any, hi: Any, lo: Any) -> None:
    lds_store(operands, at, hi)
    lds_store(operands, at + _TILE_WORDS // 2, lo)


def mix_tile(slice_rows: Any, row: Any, operands: Any, mix: MixTiles, unit: Any, lane: Any) -> Any:
    """The tile's sums: lane l, register i: weight row 4 * (l // 16) + i of the unit's, token l % 16.

    ``slice_rows``: LDS words, packed bf16; ``row``: the first word of the lane's token: streams of columns in the
    weights' order. ``operands``: what :func:`store_weights` left.
    """
    sums = zero_tile()
    first = mix.row_tile(unit) * (mix.steps * _TILE_WORDS) + lane * 4
    for step in range(mix.steps):
        values = lds_load(slice_rows, row + lane // 16 * 4 + step * (_K // 2), 4).bitcast(fx.BFloat16)
        hi, lo = [
            lds_load(operands, first + step * _TILE_WORDS + part * (_TILE_WORDS // 2), 4).bitcast(fx.BFloat16)
            for part in range(2)
        ]
        sums = mfma_bf16(lo, values, mfma_bf16(hi, values, sums))
    return sums
