"""Which item of a table a thread takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen

__all__ = ["Item", "divide", "spread"]


def divide(u: Any, width: int) -> tuple[Any, Any]:
    """``(u // width, u % width)`` of a non-negative Int32."""
    if width & (width - 1) == 0:
        return u >> (width.bit_length() - 1), u & (width - 1)
    q = fx.Int32(fx.Uint32(u) // fx.Uint32(width))
    return q, u - q * width


@dataclass(frozen=True)
class Item(Frozen):
    """A thread's share of a [rows, per] table: its element (row, col)."""

    row: Any
    col: Any


def spread(cta: Any, rows: int, per: int, together: int = 1) -> list[Item]:
    """The CTA's threads over a [rows, per] table of items, consecutive threads on consecutive columns.

    Threads past the table repeat elements others have (so may store them again); runs of ``together`` neighbours (a
    power of two that divides ``per``) stay whole.
    """
    threads, total = cta.threads, rows * per
    rounds = -(-total // threads)
    across = threads // per
    if across and -(-rows // across) == rounds:  # whole rows a round: one division for all of them
        row, col = divide(cta.tid, per)
        ragged = across * rounds > rows or across * per < threads
        return [Item(fx.min(row + across * i, rows - 1) if ragged else row + across * i, col) for i in range(rounds)]
    out = []
    for i in range(rounds):
        at = cta.tid + threads * i
        if threads * (i + 1) > total:
            at = (
                (fx.min(at & -together, total - together) | (at & (together - 1)))
                if together > 1
                else fx.min(at, total - 1)
            )
        out.append(Item(*divide(at, per)))
    return out
