"""bf16 rows quantised by the CTA that reads them: once, into LDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.items import Item, spread
from monoc.device.lanes import reduce_lanes
from monoc.device.memory import lds_store
from monoc.device.mxrows import MX_GROUP, mx_words
from monoc.device.numeric import bf16_high, bf16_low, power_of_two_inverse

__all__ = ["Bf16Rows", "fetch_bf16", "lds_row_words", "put_mx"]


@dataclass(frozen=True)
class Bf16Rows(Frozen):
    """Rows in flight: a thread's items of eight values (four words), four neighbours a group of 32."""

    items: list[Item]
    words: list[Any]


def lds_row_words(k: int) -> int:
    """LDS words from one row of ``k`` e4m3 values and their codes to the next: 4 past a multiple of 32, so that 16
    rows spread over the banks."""
    return -(-(k // 4 + k // MX_GROUP) // 32) * 32 + 4


def fetch_bf16(cta: Any, region: Any, pitch: int, first: Any, count: int, k0: Any, k: int) -> Bf16Rows:
    """Values ``k0`` .. + ``k`` (multiples of 32) of rows ``first`` .. + ``count`` of bf16 ``region``, ``pitch`` a
    row.
    """
    items = spread(cta, count, k // 8, together=4)
    got = region.get([((first + item.row) * (pitch // 2) + (k0 // 2 + item.col * 4), 4) for item in items])
    return Bf16Rows(items, got)


def put_mx(rows: Bf16Rows, x: Any, k: int, code: Callable[[Any], Any]) -> None:
    """The rows as MXFP8 into LDS rows 0 .. of ``x``: values, then codes a word each; a barrier must follow.

    ``code``: a group's E8M0 code of its amax. Threads that repeat another's item store the same words again.
    """
    for item, words in zip(rows.items, rows.words, strict=True):
        values = [v for word in words for v in (bf16_low(word), bf16_high(word))]
        amax = abs(values[0])
        for v in values[1:]:
            amax = fx.max(amax, abs(v))
        e8m0 = code(reduce_lanes(amax, (1, 2), fx.max))
        at = item.row * lds_row_words(k)
        lds_store(x, at + item.col * 2, fx.Vector.from_elements(mx_words(values, power_of_two_inverse(e8m0)), fx.Int32))
        lds_store(x, at + (item.col >> 2) + k // 4, e8m0)
