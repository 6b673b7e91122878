"""GPT-J rotary embedding: pairs (2j, 2j+1) of a row's last ``rope`` values, turned by the angle of (position, j).

The table has a row a position, fp32: ``rope / 2`` cosines, then as many sines.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx

from monoc.device.memory import load

__all__ = ["position_of", "rope_angles", "rotate", "unrotate"]


def position_of(positions: Any, token: Any) -> fx.Int32:
    """Token ``token``'s position: the low half of element ``token`` of an i64 array."""
    return fx.Int32(load(positions, token * 2))


def rope_angles(table: Any, rope: int, position: Any, pair: Any, pairs: int) -> tuple[list[Any], list[Any]]:
    """The cosines and sines of pairs ``pair`` .. + ``pairs`` (1, 2 or 4) at ``position``."""
    at = position * rope + pair
    cos = load(table, at, fx.Float32, pairs)
    sin = load(table, at + rope // 2, fx.Float32, pairs)
    if pairs == 1:
        return [cos], [sin]
    return [cos[e] for e in range(pairs)], [sin[e] for e in range(pairs)]


def rotate(values: list[Any], cos: list[Any], sin: list[Any]) -> list[Any]:
    """``e' = e cos - o sin``, ``o' = e sin + o cos`` of each pair, every operation rounded to fp32."""
    out: list[Any] = []
    for j in range(len(cos)):
        e, o = values[2 * j], values[2 * j + 1]
        out += [e * cos[j] - o * sin[j], e * sin[j] + o * cos[j]]
    return out


def unrotate(values: list[Any], cos: list[Any], sin: list[Any]) -> list[Any]:
    """The inverse turn: ``e' = e cos + o sin``, ``o' = o cos - e sin``, every operation rounded to fp32."""
    out: list[Any] = []
    for j in range(len(cos)):
        e, o = values[2 * j], values[2 * j + 1]
        out += [e * cos[j] + o * sin[j], o * cos[j] - e * sin[j]]
    return out
