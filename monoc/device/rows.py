"""Pieces of the stages that work on whole rows or column slices of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flydsl.expr as fx

from monoc.device.numeric import bf16_high, bf16_low, bf16_pack

__all__ = ["pack_row", "passes", "rank_sum", "unpack_row"]


def passes(items: int, threads: int) -> int:
    """Rounds of ``threads`` items each that cover ``items``."""
    return -(-items // threads)


def unpack_row(words: list[Any]) -> list[fx.Float32]:
    """The bf16 values of packed ``words``, two a word, low half first, as f32."""
    out: list[fx.Float32] = []
    for word in words:
        out += [bf16_low(word), bf16_high(word)]
    return out


def pack_row(values: list[Any]) -> list[fx.Int32]:
    """f32 ``values`` rounded to bf16, two a word."""
    return [bf16_pack(values[i], values[i + 1]) for i in range(0, len(values), 2)]


def rank_sum(region: Any, ranks: int, word: Callable[[int], Any], count: int) -> list[fx.Float32]:
    """Each rank's bf16 values at words ``word(rank)`` .. + ``count``, summed in fp32 in rank order 0, 1, ..."""
    got = region.get([(word(rank), count) for rank in range(ranks)])
    total = unpack_row(got[0])
    for rank in range(1, ranks):
        total = [a + b for a, b in zip(total, unpack_row(got[rank]), strict=True)]
    return total
