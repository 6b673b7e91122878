"""Values every rank must hold alike, bit for bit, and where they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from monoc.reference.formats import Mx
from monoc.verify.regions import Seen

__all__ = ["RankDifference", "rank_difference"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class RankDifference:
    """``elements`` of ``total`` differ between ranks; at ``index``, the first of them, the ranks hold ``values``."""

    value: str
    elements: int
    total: int
    index: tuple[int, ...]
    values: tuple[float, ...]


def rank_difference(seen: Seen) -> RankDifference | None:
    """Where the ranks' bits of a value differ, None if they do not. Of MXFP8 the bytes or, if they agree, the codes."""
    first = seen.ranks[0]
    if isinstance(first, Mx):
        return _apart(seen, [v.values for v in seen.ranks], lambda v: v.exact()) or _apart(
            seen, [v.codes for v in seen.ranks], lambda v: v.codes
        )
    bits = [v.contiguous().view(torch.int32) if v.is_floating_point() else v for v in seen.ranks]
    return _apart(seen, bits, lambda v: v)


def _apart(seen: Seen, bits: list[Tensor], shown: Callable[[Any], Tensor]) -> RankDifference | None:
    """By ``bits``, a tensor a rank; ``shown``: the numbers of a rank's value."""
    if all(torch.equal(other, bits[0]) for other in bits[1:]):
        return None
    apart = torch.zeros_like(bits[0], dtype=torch.bool)
    for other in bits[1:]:
        apart |= other != bits[0]
    index = tuple(int(i) for i in torch.nonzero(apart)[0])
    held = tuple(float(shown(v)[index]) for v in seen.ranks)
    return RankDifference(seen.value, int(apart.sum()), apart.numel(), index, held)
