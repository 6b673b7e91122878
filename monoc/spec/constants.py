"""Exact constants: folded as fractions, rounded to fp32 once."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

__all__ = ["FoldError", "fold", "round_f32"]

_LARGEST = Fraction((1 << 24) - 1) * (1 << 104)
_SMALLEST = Fraction(1, 1 << 149)


class FoldError(ArithmeticError):
    """A constant expression has no finite value; the text says why."""


def fold(op: str, args: tuple[Fraction, ...]) -> Fraction:
    """``op`` (``+ - * / ** neg``) of exact constants; ``**`` with a fractional exponent goes through fp64.

    Raises :class:`FoldError`."""
    if op == "neg":
        return -args[0]
    a, b = args
    if op == "/" and b == 0:
        raise FoldError("a division by zero")
    if op == "**":
        return _power(a, b)
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[op]()


def _power(a: Fraction, b: Fraction) -> Fraction:
    if a == 0 and b <= 0:
        raise FoldError("a power of zero")
    if b.denominator == 1 and abs(b) <= 64:
        return a ** int(b)
    if a < 0:
        raise FoldError("a fractional power of a negative number")
    try:
        return Fraction(float(a) ** float(b))
    except (OverflowError, ValueError, ZeroDivisionError) as e:
        raise FoldError("a power beyond fp64") from e


def round_f32(x: Fraction) -> float:
    """``x`` rounded to the nearest fp32, ties to even. Raises :class:`FoldError` beyond the range or below it."""
    if x == 0:
        return 0.0
    if abs(x) > _LARGEST:
        raise FoldError("a constant beyond fp32")
    if abs(x) < _SMALLEST:
        raise FoldError("a constant that fp32 rounds to zero")
    near = struct.unpack("<f", struct.pack("<f", float(x)))[0]  # may be off by one step: rounded twice
    bits = struct.unpack("<I", struct.pack("<f", near))[0]
    candidates = [(b, struct.unpack("<f", struct.pack("<I", b))[0]) for b in (bits - 1, bits, bits + 1)]
    finite = [(b, v) for b, v in candidates if math.isfinite(v)]
    return float(min(finite, key=lambda c: (abs(Fraction(c[1]) - x), c[0] & 1))[1])
