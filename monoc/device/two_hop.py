"""The second hop of an all-reduce: each rank sums the columns it owns and hands the sums to every rank."""

from __future__ import annotations

from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import range_constexpr

from monoc.device.items import divide
from monoc.device.rows import pack_row, passes, rank_sum

__all__ = ["sum_owned"]

_VECTOR = 4  # columns a thread sums at a time


@flyc.jit
def sum_owned(
    cta: Any,
    parts: Any,
    sums: Any,
    task: Any,
    owner: Any,
    rank: Any,
    ranks: int,
    tokens: int,
    row: int,
    columns: int,
) -> None:
    """Columns ``columns * task`` .. + ``columns`` of every token, if ``rank`` is their ``owner``: ``parts`` (bf16 pairs
    [source rank][token][``row``]) summed in fp32 in rank order, rounded to bf16, put to every rank's ``sums``
    ([token][``row``]). Called by the whole CTA.
    """
    items = columns // _VECTOR
    if owner == fx.Int32(rank):
        for turn in range_constexpr(passes(tokens * items, cta.threads)):
            item = cta.tid + turn * cta.threads
            if item < tokens * items:
                token, place = divide(item, items)
                word = task * (columns // 2) + place * (_VECTOR // 2)
                at = token * row + word
                places = [source * (tokens * row) + at for source in range(ranks)]
                total = rank_sum(parts, ranks, places.__getitem__, _VECTOR // 2)
                sums.put(at, pack_row(total))
    sums.done(cta, task)
