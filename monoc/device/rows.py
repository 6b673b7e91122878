"""Pieces of the stages that work on whole rows or column slices of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flydsl.expr as fx
from flydsl.expr import rocdl

from monoc.device.memory import PLAIN, load
from monoc.device.numeric import bf16_high, bf16_low, bf16_pack

__all__ = [
    "lanes_apart",
    "largest",
    "load_values",
    "loads_issued",
    "pack_row",
    "passes",
    "rank_sum",
    "split_index",
    "sum_squares",
    "unpack_row",
]  # fmt: skip


def passes(items: int, threads: int) -> int:
    """Rounds of ``threads`` items each that cover ``items``."""
    return -(-items // threads)


def split_index(u: Any, width: Any) -> tuple[fx.Int32, fx.Int32]:
    """``(u // width, u % width)`` of non-negative Int32s, a traced width."""
    q = fx.Int32(fx.Uint32(u) // fx.Uint32(width))
    return q, u - q * width


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


def load_values(address: Any, index: Any, count: int, dtype: Any = fx.Float32, policy: int = PLAIN) -> list[Any]:
    """``count`` elements of ``dtype`` from ``index`` (a multiple of ``count``), in accesses as wide as that allows."""
    step = next(n for n in (4, 2, 1) if count % n == 0)
    out: list[Any] = []
    for first in range(0, count, step):
        got = load(address, index + first, dtype, step, policy)
        out += [got] if step == 1 else [got[e] for e in range(step)]
    return out


def sum_squares(values: list[Any], start: Any) -> fx.Float32:
    """``start`` plus the squares of ``values`` in order, square and sum rounded apart."""
    for v in values:
        start = start + v * v
    return start


def largest(values: list[Any]) -> fx.Float32:
    """The largest magnitude of ``values``."""
    top = abs(values[0])
    for v in values[1:]:
        top = fx.max(top, abs(v))
    return fx.Float32(top)


def lanes_apart(lanes: int, first: int = 1) -> tuple[int, ...]:
    """The distances ``first`` * 1, 2, 4, ... that reduce ``lanes`` lanes (a power of two) so far apart."""
    return tuple(first << i for i in range(lanes.bit_length() - 1))


def loads_issued() -> None:
    """Keeps the loads above here above what follows: LLVM sinks those used late: a round trip each."""
    rocdl.sched_barrier(0)
