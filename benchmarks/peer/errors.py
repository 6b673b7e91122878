"""Errors of both sides' values against the exact mode of the reference (``peer/walk.py``), and where the sides part."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

__all__ = ["BF16_FLOOR", "F32_FLOOR", "ErrorRow", "Parting", "pooled"]

BF16_FLOOR = 2.0**-8  # one bf16 ulp, where it is smallest beside its number
F32_FLOOR = 1e-6
WORST = 1.1


@dataclass(frozen=True)
class ErrorRow:
    """Relative L2 errors of a value of both sides, each a sequence of draws (input seeds).

    ``way``: "same" or "own" (see ``peer/walk.py``); ``apart``: relative L2 distance between the two sides."""

    launch: str
    tokens: int
    kind: str
    way: str
    value: str
    floor: float
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    apart: tuple[float, ...]

    @property
    def mean(self) -> tuple[float, float]:
        """Root mean squares over the draws, ours and theirs."""
        return _rms(self.ours), _rms(self.theirs)

    @property
    def ratio(self) -> float:
        """Ours / theirs; 1 where both are nothing."""
        ours, theirs = self.mean
        return ours / theirs if theirs else (float("inf") if ours else 1.0)

    @property
    def good(self) -> bool:
        """At most 1.1 times theirs, or below the floor."""
        ours, theirs = self.mean
        return ours <= max(WORST * theirs, self.floor)


@dataclass(frozen=True)
class Parting:
    """The first quantised value of a launch in which the two sides differ: everything quantised before it is the same.

    ``differ`` of ``total`` numbers do; ``furthest``: how far the number to be quantised, computed exactly, lies at most
    from the middle of the two sides' numbers, in bf16 ulps of its own. About half an ulp or less: the sums behind it,
    added in two orders, round to bf16 numbers on two sides of an fp8 boundary, and neither side is wrong."""

    launch: str
    tokens: int
    kind: str
    value: str
    differ: int
    total: int
    furthest: float

    def __str__(self) -> str:
        return (
            f"{self.launch} {self.kind} at {self.tokens} rows: the sides part in {self.value}, {self.differ} of "
            f"{self.total} fp8 numbers, at most {self.furthest:.2f} bf16 ulps from the boundary between the two"
        )


def _rms(draws: Sequence[float]) -> float:
    return float(torch.tensor(draws, dtype=torch.float64).square().mean().sqrt())


def pooled(draws: Iterable[Sequence[ErrorRow]]) -> list[ErrorRow]:
    """The rows of several draws, one a value."""
    found: dict[tuple[str, int, str, str, str], ErrorRow] = {}
    for rows in draws:
        for r in rows:
            key = (r.launch, r.tokens, r.kind, r.way, r.value)
            if (old := found.get(key)) is None:
                found[key] = r
            else:
                more = (old.ours + r.ours, old.theirs + r.theirs, old.apart + r.apart)
                found[key] = ErrorRow(*key, r.floor, *more)
    return list(found.values())
