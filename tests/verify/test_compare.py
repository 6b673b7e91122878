"""What a comparison lets pass and what it does not."""

import pytest
import torch

from monoc.expr.ir import DType
from monoc.reference.formats import Mx, quantise_mx
from monoc.verify.compare import Nearness, compare, nearness

BITS = Nearness(bits=True)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor([values])


def test_bits_are_bits() -> None:
    x = numbers(1.0, 2.0, torch.nan)
    assert compare(x, x, x.double(), BITS).good
    off = numbers(1.0, 2.0000002, torch.nan)
    found = compare(off, x, x.double(), BITS)
    assert not found.good
    assert (found.index, found.kernel, found.reference) == ((0, 1), pytest.approx(2.0000002), 2.0)


def test_signs_of_zero_are_free() -> None:
    assert compare(numbers(-0.0), numbers(0.0), numbers(0.0).double(), BITS).good


def test_a_nan_where_there_is_none_is_found() -> None:
    x = numbers(1.0, 2.0)
    for asked in (BITS, nearness(DType.F32, False, False, False), nearness(DType.BF16, False, False, False)):
        assert not compare(numbers(1.0, torch.nan), x, x.double(), asked).good
        assert not compare(numbers(1.0, torch.inf), x, x.double(), asked).good


@pytest.mark.parametrize(("error", "good"), [(5e-6, True), (3e-5, False), (3e-4, False)])
def test_fp32_sums(error: float, good: bool) -> None:
    x = torch.ones(4, 8)
    asked = nearness(DType.F32, False, False, False)
    assert compare(x * (1 + error), x, x.double(), asked).good is good


def test_bf16_may_round_otherwise_now_and_then() -> None:
    x = torch.rand(16, 64).bfloat16().float() + 1
    asked = nearness(DType.BF16, False, False, False)
    one = x.clone()
    one[3, 5] *= 1 + 2**-8
    assert compare(one, x, x.double(), asked).good
    truncated = x * (1 - 2**-8 * (torch.rand(16, 64) < 0.5))
    found = compare(truncated, x, x.double(), asked)
    assert not found.good
    assert "rounded otherwise" in found.why


def test_quantised_values() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    x[1, 7] = 2
    mx = quantise_mx(x, "V")
    assert compare(mx, mx, mx, BITS).good
    doubled = Mx(mx.values, (mx.codes + 1).to(torch.uint8))
    assert "E8M0" in compare(doubled, mx, mx, BITS).why
    near = nearness(DType.E4M3, False, True, False)
    assert not compare(doubled, mx, mx, near).good
    zeroed = Mx(mx.values.clone(), mx.codes)
    zeroed.values[1, 7] = 0
    assert not compare(zeroed, mx, mx, near).good


def test_integers() -> None:
    ids = torch.tensor([[3, 1]], dtype=torch.int32)
    assert compare(ids, ids, ids, nearness(DType.I32, False, False, False)).good
    assert not compare(ids.flip(1), ids, ids, nearness(DType.I32, False, False, False)).good


def test_elements_may_be_as_much_further_off_as_hidden_roundings_take_them() -> None:
    stated = torch.ones(1, 64)
    stated[0, 62] = 0.486328125  # what is left of two terms near 2.5, one of which may lie a bf16 place off
    kernel, more = stated.clone(), torch.zeros(1, 64)
    kernel[0, 62], more[0, 62] = 0.4765625, 2.0**-7
    asked = nearness(DType.BF16, False, False, False)
    assert not compare(kernel, stated, stated.double(), asked).good
    assert compare(kernel, stated, stated.double(), asked, more).good
    kernel[0, 62] = 0.46
    assert not compare(kernel, stated, stated.double(), asked, more).good
    kernel[0, 62], kernel[0, 10] = stated[0, 62], 1.02
    assert not compare(kernel, stated, stated.double(), asked, more).good
