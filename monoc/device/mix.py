"""Partial projections of a column slice: a few fp32 weight rows against every token, by bf16 matrix instructions.

The weight w enters as hi = bf16(w) and lo = bf16(w - hi); with bf16 activations every product is exact in fp32, so only
the sums round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.memory import lds_load, load_masked
from monoc.device.mfma import mfma_bf16, zero_tile
from monoc.device.numeric import bf16_high, bf16_low, bf16_pack

__all__ = ["MixTiles", "mix_tile", "split_weights"]

_K = 32  # columns a matrix instruction takes


@dataclass(frozen=True)
class MixTiles(Frozen):
    """Tiles of 16 weight rows x 16 tokens dealt to ``waves``: a wave keeps one row tile's weights for all its
    tokens."""

    rows: int
    tokens: int
    waves: int

    def __post_init__(self) -> None:
        if self.row_tiles > self.waves:
            raise ValueError(
                f"{self.rows} mixes need {self.row_tiles} waves, a tile of 16 each; the CTA has {self.waves}"
            )

    @property
    def row_tiles(self) -> int:
        return -(-self.rows // 16)

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

    def works(self, unit: Any) -> Any:
        return unit < min(self.groups, self.token_tiles) * self.row_tiles


def split_weights(
    address: Any, mix: MixTiles, unit: Any, lane: Any, streams: int, hidden: int, column: Any, columns: int
) -> list[tuple[Any, Any]]:
    """(hi, lo) operands of each 32 columns of each stream, of the row tile of ``unit``; waves without work load
    nothing.

    ``address``: f32 [rows, streams * hidden]; the slice is columns ``column`` .. + ``columns`` of every stream.
    """
    row = fx.min(mix.row_tile(unit) * 16 + lane % 16, mix.rows - 1)
    at = row * (streams * hidden) + column + lane // 16 * 8
    live = mix.works(unit)
    steps = [stream * hidden + first for stream in range(streams) for first in range(0, columns, _K)]
    raw = [[load_masked(live, address, at + (step + half), fx.Float32, 4) for half in (0, 4)] for step in steps]
    out = []
    for pair in raw:
        values = [v[e] for v in pair for e in range(4)]
        hi = [bf16_pack(values[i], values[i + 1]) for i in range(0, 8, 2)]
        rest = []
        for i, word in enumerate(hi):
            rest += [values[2 * i] - bf16_low(word), values[2 * i + 1] - bf16_high(word)]
        lo = [bf16_pack(rest[i], rest[i + 1]) for i in range(0, 8, 2)]
        out.append((_operand(hi), _operand(lo)))
    return out


def _operand(words: list[Any]) -> Any:
    return fx.Vector.from_elements(words, fx.Int32).bitcast(fx.BFloat16)


def mix_tile(slice_rows: Any, row: Any, lane: Any, weights: list[tuple[Any, Any]]) -> Any:
    """The tile's sums: lane l, register i: weight row 4 * (l // 16) + i, token l % 16.

    ``slice_rows``: LDS words, packed bf16; ``row``: the first word of the lane's token: streams of columns in the
    weights' order.
    """
    sums = zero_tile()
    parts = [lds_load(slice_rows, row + lane // 16 * 4 + step * (_K // 2), 4) for step in range(len(weights))]
    for (hi, lo), words in zip(weights, parts, strict=True):
        values = words.bitcast(fx.BFloat16)
        sums = mfma_bf16(lo, values, mfma_bf16(hi, values, sums))
    return sums
