"""Partial sums over the slices of a row, brought together by one CTA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.lanes import reduce_lanes
from monoc.device.memory import lds_load
from monoc.device.numeric import bf16_round
from monoc.device.rows import lanes_apart

__all__ = ["PartialSplit", "sum_parts", "sum_slices", "sum_waves"]


@dataclass(frozen=True)
class PartialSplit(Frozen):
    """``slices`` rows of ``part`` f32 words (even, up to 128) dealt to ``waves``: a lane two words of every few slices.

    A lane group spans a slice's words; groups take consecutive slices.
    """

    part: int
    slices: int
    waves: int

    @property
    def lanes(self) -> int:
        """Lanes of a group: a power of two of at least ``part / 2``."""
        return 1 << max(0, (self.part // 2 - 1).bit_length())

    @property
    def groups(self) -> int:
        """Lane groups of a wave."""
        return 64 // self.lanes

    @property
    def turns(self) -> int:
        """Slices a group sums."""
        return -(-self.slices // (self.groups * self.waves))

    def word(self, lane: Any) -> Any:
        """The first of the two words of ``lane``; lanes past the part repeat its last two."""
        return fx.min(lane % self.lanes * 2, self.part - 2)

    def sum(self, region: Any, first: Any, wave: Any, lane: Any) -> list[Any]:
        """The wave's share of the slices ``first`` .. of ``region`` at the lane's two words, all loads in flight
        together.

        Order: the group's slices one after the other, then groups pairwise; every lane of a word has the sum.
        """
        start = (wave * self.groups + lane // self.lanes) * self.turns
        at = self.word(lane)
        rows = [start + turn for turn in range(self.turns)]
        got = region.get([((first + fx.min(row, self.slices - 1)) * self.part + at, 2) for row in rows])
        totals = [fx.Float32(0.0), fx.Float32(0.0)]
        for row, words in zip(rows, got, strict=True):
            live = row < self.slices
            for i in range(2):
                value = fx.Int32(words[i]).bitcast(fx.Float32)
                totals[i] = totals[i] + live.select(value, fx.Float32(0.0))
        return [reduce_lanes(t, lanes_apart(self.groups, self.lanes)) for t in totals]


def sum_waves(sums: Any, word: Any, part: int, waves: int) -> fx.Float32:
    """The waves' sums (LDS f32 [wave][part]) at ``word``, added in wave order."""
    values = [lds_load(sums, word + wave * part) for wave in range(waves)]
    total = fx.Float32(values[0])
    for value in values[1:]:
        total = total + value
    return total


def sum_parts(parts: list[list[Any]]) -> list[fx.Float32]:
    """fp32 words of each part at the same columns, added in part order, rounded to bf16."""
    total = [fx.Int32(w).bitcast(fx.Float32) for w in parts[0]]
    for part in parts[1:]:
        total = [t + fx.Int32(w).bitcast(fx.Float32) for t, w in zip(total, part, strict=True)]
    return [bf16_round(t) for t in total]


def sum_slices(region: Any, first: Any, slices: int, lane: Any) -> fx.Float32:
    """The ``slices`` fp32 words ``first`` .. of ``region`` summed by one wave, the same bits in every lane and wave.

    Order: a lane's words 64 apart, one after the other; lanes 1, 2, 4, ... apart.
    """
    at = [lane + turn for turn in range(0, slices, 64)]
    got = region.get([(first + fx.min(slice_, slices - 1), 1) for slice_ in at])
    total = fx.Float32(0.0)
    for slice_, words in zip(at, got, strict=True):
        value = fx.Int32(words[0]).bitcast(fx.Float32)
        total = total + (slice_ < slices).select(value, fx.Float32(0.0))
    return fx.Float32(reduce_lanes(total, lanes_apart(64)))
