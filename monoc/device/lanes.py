"""Exchanges between the 64 lanes of a wave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flydsl.expr as fx

from monoc.device.intrinsics import ballot_bits, dpp_update, lane_permute, permlane_swap

__all__ = ["add", "gather", "lanes_below", "reduce_lanes", "shuffle_xor"]

# DPP controls: quad permutations [1,0,3,2] and [2,3,0,1]; row shifts by 4 and 8 lanes (left reads lane + n).
_QUAD_SWAP_1 = 0xB1
_QUAD_SWAP_2 = 0x4E
_ROW_SHIFT_LEFT = 0x100
_ROW_SHIFT_RIGHT = 0x110


def add(a: Any, b: Any) -> Any:
    """``a + b``: the usual reduction."""
    return a + b


def _words(v: Any) -> Any:
    return v.bitcast(fx.Int32) if isinstance(v, fx.Float32) else fx.Int32(v)


def _like(v: Any, word: Any) -> Any:
    return word.bitcast(fx.Float32) if isinstance(v, fx.Float32) else word


def shuffle_xor(v: Any, distance: int) -> Any:
    """Lane ``lane ^ distance``'s ``v`` (Int32 or Float32; ``distance`` a power of two below 64), by VALU moves."""
    x = _words(v)
    if distance >= 16:
        a, b = permlane_swap(distance, x, x)
        lane = fx.thread_idx.x % 64
        return _like(v, ((lane & distance) == 0).select(b, a))
    if distance >= 4:
        # Two row shifts, each into the banks of four lanes whose source lies in the row.
        down, up = (0xA, 0x5) if distance == 4 else (0xC, 0x3)
        y = dpp_update(x, x, _ROW_SHIFT_RIGHT + distance, bank_mask=down)
        return _like(v, dpp_update(y, x, _ROW_SHIFT_LEFT + distance, bank_mask=up))
    return _like(v, dpp_update(x, x, _QUAD_SWAP_1 if distance == 1 else _QUAD_SWAP_2))


def reduce_lanes(v: Any, distances: tuple[int, ...], operation: Callable[[Any, Any], Any] = add) -> Any:
    """``v`` reduced over the lanes that ``distances`` (powers of two, in this order) reach, the result in all of them.

    Each step gives ``operation(v, v of lane ^ distance)``; the operation must commute, so all lanes agree bit for bit.
    """
    for distance in distances:
        if distance >= 16:
            x = _words(v)
            a, b = permlane_swap(distance, x, x)
            v = operation(_like(v, a), _like(v, b))
        else:
            v = operation(v, shuffle_xor(v, distance))
    return v


def gather(v: Any, source: Any) -> Any:
    """Lane ``source``'s ``v`` (Int32 or Float32; a source a lane), through the LDS crossbar."""
    return _like(v, lane_permute(_words(v), source))


def lanes_below(predicate: Any, lane: Any) -> fx.Int32:
    """How many lanes below ``lane`` hold ``predicate``."""
    below = (fx.Int64(1) << fx.Int64(lane)) - fx.Int64(1)
    return fx.Int32(fx.ctpop(ballot_bits(predicate) & below))
