"""Another order of adding: what sums come out as whose order is the kernel's choice.

Only the size of such differences is wanted: a layer that rounds to bf16 and e4m3 between its sums makes more of them,
and how much more is measured by running the reference with them (monoc/verify/noise.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

__all__ = ["Reordered"]

Tensor = torch.Tensor
_ROUNDING = 2.0**-24  # of one fp32 addition, relative to its result
_BLOCK = 32  # terms a matrix instruction takes at least, as one addition to what was there
_CHUNKS = (64, 128)  # keys whose probabilities are summed on their own


@dataclass(frozen=True)
class Reordered:
    """Tokens from ``first`` on are summed in another order; those before as stated."""

    first: int
    generator: torch.Generator

    def tokens(self, count: int) -> Tensor:
        """Which of ``count`` tokens are summed otherwise."""
        return torch.arange(count) >= self.first

    def error(self, size: Tensor, terms: int, there: Tensor) -> Tensor:
        """What ``terms`` terms may sum to beside what they do, fp64: zero where ``there`` (broadcast) is false.

        ``size``: that of the partial sums. Each of the ``terms / 32`` additions rounds by at most 2^-24 of its partial
        sum; independent roundings add up to the square root of their number."""
        deviation = _ROUNDING * math.sqrt(max(1.0, terms / _BLOCK))
        drawn = torch.randn(size.shape, generator=self.generator, dtype=torch.float64)
        return torch.where(there, drawn * size * deviation, 0.0)

    def chunks(self, keys: int) -> Iterator[slice]:
        """``keys`` keys cut another way: chunks whose probabilities have a largest of their own."""
        size = _CHUNKS[int(torch.randint(len(_CHUNKS), (), generator=self.generator))]
        start = int(torch.randint(1, size + 1, (), generator=self.generator))
        bounds = [0, *range(min(start, keys), keys, size), keys]
        return (slice(a, b) for a, b in pairwise(bounds) if b > a)
