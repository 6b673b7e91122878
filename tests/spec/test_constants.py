"""Constants are folded exactly and rounded to fp32 once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoc.spec.constants import FoldError, fold, round_f32


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_fp32_values_stay(x: float) -> None:
    assert round_f32(Fraction(x)) == x


@given(st.integers(0, (1 << 23) - 1), st.integers(-100, 100), st.fractions(0, 1))
def test_rounds_to_the_nearer_neighbour(mantissa: int, exponent: int, between: Fraction) -> None:
    step = Fraction(2) ** exponent
    low = ((1 << 23) + mantissa) * step
    x = low + between * step
    got = Fraction(round_f32(x))
    assert abs(got - x) == min(abs(low - x), abs(low + step - x))
    if between == Fraction(1, 2):
        assert (got / step) % 2 == 0


def test_no_double_rounding() -> None:
    # Just above the middle of two fp32 values: fp64 rounds it to the middle, then to even, the wrong way.
    x = 1 + Fraction(1, 1 << 24) + Fraction(1, 1 << 60)
    assert np.float32(float(x)) == np.float32(1)
    assert round_f32(x) == np.nextafter(np.float32(1), np.float32(2))


def test_beyond_fp32() -> None:
    with pytest.raises(FoldError, match="beyond"):
        round_f32(Fraction(10) ** 39)
    with pytest.raises(FoldError, match="to zero"):
        round_f32(Fraction(1, 10**60))


@pytest.mark.parametrize(
    ("op", "args", "value"),
    [("/", (1, 3), Fraction(1, 3)), ("**", (2, -3), Fraction(1, 8)), ("neg", (2,), Fraction(-2)), ("-", (1, 3), -2)],
)
def test_fold(op: str, args: tuple[int, ...], value: Fraction) -> None:
    assert fold(op, tuple(map(Fraction, args))) == value


def test_fractional_power_goes_through_fp64() -> None:
    assert float(fold("**", (Fraction(512), Fraction(-1, 2)))) == 512**-0.5


@pytest.mark.parametrize(("op", "args"), [("/", (1, 0)), ("**", (0, -1)), ("**", (Fraction(-1), Fraction(1, 2)))])
def test_no_value(op: str, args: tuple[Fraction, ...]) -> None:
    with pytest.raises(FoldError):
        fold(op, tuple(map(Fraction, args)))
