"""How far a value may be off because of bf16 values before it that a kernel does not leave in memory.

Such a hidden value, behind a sum, may have been rounded to a neighbour: one place off. What one place of its operands
makes of a value is found by computing it with them moved: all up, all down, every second one the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch

__all__ = ["place", "reach"]

Tensor = torch.Tensor
_BF16_DIGITS = 8  # binary, of a normal number
_PATTERNS = ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0))  # of even and odd columns


def place(x: Tensor) -> Tensor:
    """The distance of ``x`` from the next bf16 number away from zero; 0 for what is zero or no number."""
    x = x.nan_to_num(0.0, 0.0, 0.0)
    return torch.where(x == 0, 0.0, torch.ldexp(torch.ones_like(x), torch.frexp(x).exponent - _BF16_DIGITS))


def reach(
    again: Callable[[int, Mapping[str, Any]], Any], stated: Sequence[Tensor], moved: Mapping[str, Sequence[Tensor]],
    values: Mapping[str, Sequence[Tensor]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """For every rank, how far a value goes from ``stated`` when its operands move by ``moved``.

    ``again(rank, values)`` computes the value with other ``values`` of some operands."""
    found = []
    for rank, base in enumerate(stated):
        furthest = torch.zeros_like(base)
        for signs in product(_PATTERNS, repeat=len(moved)):
            other = {
                n: values[n][rank] + moved[n][rank] * _alternating(values[n][rank], s)
                for n, s in zip(moved, signs, strict=True)
            }
            away = (again(rank, other).reshape(base.shape) - base).abs()
            furthest = torch.maximum(furthest, away.nan_to_num(0.0, 0.0, 0.0))
        found.append(furthest)
    return tuple(found)


def _alternating(like: Tensor, signs: tuple[float, float]) -> Tensor:
    columns = torch.arange(like.shape[-1]) % 2 if like.dim() else torch.zeros(())
    return torch.where(columns == 0, *signs)
