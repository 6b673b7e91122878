"""Stated rounding against exact rational arithmetic."""

import math
import struct
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monoc.expr.ir import BinaryOp, DType, UnaryOp
from monoc.reference.arithmetic import EXACT, STATED, fma_f32

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def f32(x: float) -> float:
    """The nearest fp32 of a Python float."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def nearest(x: Fraction) -> float:
    """``x`` rounded to fp32, ties to even, by its two neighbours."""
    if x == 0:
        return 0.0
    exponent = max(math.floor(math.log2(abs(x))) if abs(x) > Fraction(2) ** -1000 else -149, -126)
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    while exponent > -126 and Fraction(2) ** exponent > abs(x):
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    steps = round(x / step)  # Python rounds halves to even
    value = steps * step
    return math.copysign(math.inf, value) if abs(value) >= Fraction(2) ** 128 else float(value)


@given(floats, floats, floats)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    got = fma_f32(torch.tensor(a), torch.tensor(b), torch.tensor(c)).item()
    want = nearest(Fraction(a) * Fraction(b) + Fraction(c))
    assert got == want or (got == 0 and want == 0)


def test_fma_is_not_a_product_and_a_sum() -> None:
    a, c = 1 + 2**-12, -(1 + 2**-11)
    assert fma_f32(torch.tensor(a), torch.tensor(a), torch.tensor(c)).item() == 2**-24
    assert (torch.tensor(a) * torch.tensor(a) + torch.tensor(c)).item() == 0


@given(floats, floats)
def test_each_operation_rounds_once(a: float, b: float) -> None:
    x, y = torch.tensor(a), torch.tensor(b)
    assert STATED.binary(BinaryOp.MUL, x, y).item() == nearest(Fraction(a) * Fraction(b))
    assert STATED.binary(BinaryOp.ADD, x, y).item() == nearest(Fraction(a) + Fraction(b))


@pytest.mark.parametrize(
    ("op", "x", "want"),
    [
        (UnaryOp.EXP2, -3.0, 0.125),
        (UnaryOp.EXP2, -127.0, 0.0),  # a denormal result is flushed
        (UnaryOp.EXP2, 200.0, math.inf),
        (UnaryOp.LOG2, 8.0, 3.0),
        (UnaryOp.LOG2, 2.0**-130, -math.inf),  # a denormal operand too
        (UnaryOp.RCP, 3.0, f32(1 / 3)),
        (UnaryOp.RSQ, 2.0, f32(2**-0.5)),
        (UnaryOp.EXP, 1.0, f32(math.e)),
        (UnaryOp.SQRT, 2.0, f32(2**0.5)),
    ],
)
def test_functions(op: UnaryOp, x: float, want: float) -> None:
    assert STATED.unary(op, torch.tensor(x)).item() == want


def test_exact_mode_keeps_what_bf16_drops() -> None:
    x = torch.tensor(1 + 2**-10)
    assert STATED.round(DType.BF16, x).item() == 1.0
    assert EXACT.round(DType.BF16, x.double()).item() == 1 + 2**-10


def test_constants_are_fp32_in_both_modes() -> None:
    assert STATED.constant(0.1).item() == EXACT.constant(0.1).item() == f32(0.1)
