"""How far a value may be off because of roundings to bf16 before it whose results a kernel does not leave in memory.

Such a hidden value, behind a sum, may have been rounded to a neighbour: one place off. What that makes of a value
behind it is found by computing it with its operands moved: all up, all down, every second one the other way; and with
one rounding of its own expression after the other moved, for a sum rounded after every term is off by a place of the
sum so far, however little is left of it in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from monoc.reference.arithmetic import bf16

__all__ = ["place", "reach", "roundings"]

Tensor = torch.Tensor
Again = Callable[..., Tensor]
_BF16_DIGITS = 8  # binary, of a normal number
_PATTERNS = ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0))  # of even and odd columns


def place(x: Tensor) -> Tensor:
    """The distance of ``x`` from the next bf16 number away from zero; 0 for what is zero or no number."""
    x = x.nan_to_num(0.0, 0.0, 0.0)
    return torch.where(x == 0, 0.0, torch.ldexp(torch.ones_like(x), torch.frexp(x).exponent - _BF16_DIGITS))


def reach(
    again: Again,
    stated: Sequence[Tensor],
    moved: Mapping[str, Sequence[Tensor]],
    values: Mapping[str, Sequence[Tensor]],
) -> tuple[Tensor, ...]:
    """For every rank, how far a value goes from ``stated`` when its operands move by ``moved``.

    ``again(rank, values)`` computes the value with other ``values`` of some operands."""
    found: list[Tensor] = []
    for rank, base in enumerate(stated):
        if rank and base is stated[0]:  # replicated
            found.append(found[0])
            continue
        furthest = torch.zeros_like(base)
        for signs in product(_PATTERNS, repeat=len(moved)):
            other = {
                n: values[n][rank] + moved[n][rank] * _alternating(values[n][rank], s)
                for n, s in zip(moved, signs, strict=True)
            }
            furthest = torch.maximum(furthest, _away(again(rank, other), base))
        found.append(furthest)
    return tuple(found)


def roundings(again: Again, stated: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """For every rank, how far a value goes from ``stated`` when one of the roundings to bf16 its expression makes goes
    to a neighbour (of all the terms of a sum at once).

    ``again(rank, values, rounded)`` computes the value with another rounding."""
    found: list[Tensor] = []
    for rank, base in enumerate(stated):
        if rank and base is stated[0]:
            found.append(found[0])
            continue
        again(rank, {}, counted := _Rounding())
        furthest = torch.zeros_like(base)
        for turn, sign in product(range(counted.calls), (1.0, -1.0)):
            furthest = torch.maximum(furthest, _away(again(rank, {}, _Rounding(turn, sign)), base))
        found.append(furthest)
    return tuple(found)


@dataclass
class _Rounding:
    """To bf16; at its call number ``turn`` a place further."""

    turn: int = -1
    sign: float = 0.0
    calls: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        rounded = bf16(x)
        self.calls += 1
        return rounded + self.sign * place(rounded) if self.calls - 1 == self.turn else rounded


def _away(value: Tensor, base: Tensor) -> Tensor:
    return (value.reshape(base.shape) - base).abs().nan_to_num(0.0, 0.0, 0.0)


def _alternating(like: Tensor, signs: tuple[float, float]) -> Tensor:
    columns = torch.arange(like.shape[-1]) % 2 if like.dim() else torch.zeros(())
    return torch.where(columns == 0, *signs)
