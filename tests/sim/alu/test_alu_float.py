"""f32 and f64 arithmetic against numpy and exact rational arithmetic."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from alu_support import EDGES_F32, EDGES_F64, bits32, f32, f64, pairs, run, run64, same_floats, words64
from hypothesis import given, settings
from hypothesis import strategies as st

MIN, MAX = np.fmin, np.fmax


def signed_zero_min(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a) | np.signbit(b), -a.dtype.type(0), a.dtype.type(0)), np.fmin(a, b))


def signed_zero_max(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -signed_zero_min(-a, -b)


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "v_add": np.add,
    "v_mul": np.multiply,
    "v_min": signed_zero_min,
    "v_max": signed_zero_max,
}


def is_signalling(words: np.ndarray) -> np.ndarray:
    return ((words & 0x7F800000) == 0x7F800000) & ((words & 0x7FFFFF) != 0) & ((words & 0x400000) == 0)


def random_f32(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


@pytest.mark.parametrize("mnemonic", sorted(BINARY))
def test_binary_f32(mnemonic: str) -> None:
    a, b = pairs(np.concatenate([EDGES_F32, random_f32(1, 60)]))
    with np.errstate(all="ignore"):
        want = BINARY[mnemonic](f32(a), f32(b))
    if mnemonic in ("v_min", "v_max"):
        want = np.where(is_signalling(a) | is_signalling(b), np.float32(np.nan), want)  # MODE.IEEE
    same_floats(f32(run(f"{mnemonic}_f32", a, b)), want)


def test_subtraction_and_legacy_multiplication() -> None:
    a, b = pairs(EDGES_F32)
    with np.errstate(all="ignore"):
        same_floats(f32(run("v_sub_f32", a, b)), f32(a) - f32(b))
        same_floats(f32(run("v_subrev_f32", a, b)), f32(b) - f32(a))
        product = f32(a) * f32(b)
    legacy = np.where((f32(a) == 0) | (f32(b) == 0), np.float32(0), product)
    same_floats(f32(run("v_mul_legacy_f32", a, b)), legacy)


def test_signalling_nan_without_ieee_mode_is_just_a_nan() -> None:
    assert run("v_max_f32", np.array([0x7F800001], np.uint32), bits32([2.0]), mode=0xF0)[0] == bits32([2.0])[0]


def exact_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 [n] of finite a * b + c rounded once, by rational arithmetic."""
    result = np.empty(a.size, np.float32)
    for i in range(a.size):
        x, y, z = (float(v[i]) for v in (a, b, c))
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            with np.errstate(all="ignore"):
                result[i] = np.float32(x * y) + np.float32(z) if x * y == 0 or z == 0 else 0.0
        else:
            result[i] = round_to_f32(exact)
    return result


def round_to_f32(exact: Fraction) -> np.float32:
    magnitude = abs(exact)
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, -126)
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    ulp = Fraction(2) ** (exponent - 23)
    steps = round(magnitude / ulp)  # Fraction rounds half to even
    with np.errstate(over="ignore"):
        value = np.float32(float(steps * ulp)) if steps * ulp < Fraction(2) ** 128 else np.float32(np.inf)
    return -value if exact < 0 else value


def test_fma_is_rounded_once() -> None:
    rng = np.random.default_rng(2)
    finite = EDGES_F32[np.isfinite(f32(EDGES_F32))]
    a, b, c = (f32(x) for x in pairs(finite, 3))
    # Products that nearly cancel or end in a tie.
    p = rng.standard_normal(3000).astype(np.float32)
    q = rng.standard_normal(3000).astype(np.float32)
    r = (-p * q * (1 + rng.integers(-2, 3, 3000) * 2.0**-24)).astype(np.float32)
    tie = np.float32(2.0) ** rng.integers(-30, 30, 3000).astype(np.float32)
    x, y, z = (
        np.concatenate([a, p, p]),
        np.concatenate([b, q, tie]),
        np.concatenate([c, r, (p * tie * 2.0**24).astype(np.float32)]),
    )
    want = exact_fma(x, y, z)
    same_floats(f32(run("v_fma_f32", x, y, z)), want)
    same_floats(f32(run("v_fmac_f32", x, y, old=z)), want)
    same_floats(f32(run("v_fmaak_f32", x, y, z)), want)
    same_floats(f32(run("v_fmamk_f32", x, y, z)), want)


def test_fma_special_values() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    cases = [
        (inf, 0, 1, nan),
        (inf, 1, -inf, nan),
        (inf, 2, inf, inf),
        (nan, 1, 1, nan),
        (1, 1, -inf, -inf),
        (3e38, 3e38, -inf, -inf),
    ]
    a, b, c, want = (np.array(x, np.float32) for x in zip(*cases, strict=True))
    same_floats(f32(run("v_fma_f32", a, b, c)), want)


@pytest.mark.parametrize("mnemonic", ["v_maximum3_f32", "v_minimum3_f32", "v_max3_f32", "v_min3_f32", "v_med3_f32"])
def test_three_operand_order(mnemonic: str) -> None:
    words = EDGES_F32[~is_signalling(EDGES_F32)]
    a, b, c = pairs(words[::2], 3)
    x, y, z = f32(a), f32(b), f32(c)
    low, high = signed_zero_min(signed_zero_min(x, y), z), signed_zero_max(signed_zero_max(x, y), z)
    nan = np.isnan(x) | np.isnan(y) | np.isnan(z)
    middle = signed_zero_max(signed_zero_min(x, y), signed_zero_min(signed_zero_max(x, y), z))
    want = {
        "v_maximum3_f32": np.where(nan, np.float32(np.nan), high),
        "v_minimum3_f32": np.where(nan, np.float32(np.nan), low),
        "v_max3_f32": high,
        "v_min3_f32": low,
        "v_med3_f32": np.where(nan, low, middle),
    }[mnemonic]
    same_floats(f32(run(mnemonic, a, b, c)), want)


def test_rounding_to_integers() -> None:
    x = np.concatenate([EDGES_F32, bits32(np.arange(-5, 5.25, 0.25)), random_f32(3, 500)])
    with np.errstate(invalid="ignore"):
        for mnemonic, function in (
            ("v_trunc", np.trunc),
            ("v_ceil", np.ceil),
            ("v_floor", np.floor),
            ("v_rndne", np.rint),
        ):
            same_floats(f32(run(f"{mnemonic}_f32", x)), function(f32(x)))
            wide = f32(x).astype(np.float64)
            same_floats(f64(run(f"{mnemonic}_f64", words64(wide))), function(wide))
        fraction = np.minimum(f32(x) - np.floor(f32(x)), f32(np.array([0x3F7FFFFF], np.uint32)))
    same_floats(f32(run("v_fract_f32", x)), fraction)
    assert f32(run("v_fract_f32", bits32([-1e-20])))[0] == np.nextafter(np.float32(1), np.float32(0))


def test_exponents_and_significands() -> None:
    x = np.concatenate([EDGES_F32, random_f32(4, 500)])
    finite = np.isfinite(f32(x))
    mantissa, exponent = np.frexp(f32(x))
    same_floats(f32(run("v_frexp_mant_f32", x)), np.where(finite, mantissa, f32(x)))
    np.testing.assert_array_equal(run("v_frexp_exp_i32_f32", x).view(np.int32), np.where(finite, exponent, 0))
    wide = EDGES_F64.view(np.float64)
    mantissa64, exponent64 = np.frexp(wide)
    same_floats(f64(run("v_frexp_mant_f64", words64(wide))), np.where(np.isfinite(wide), mantissa64, wide))
    np.testing.assert_array_equal(
        run("v_frexp_exp_i32_f64", words64(wide)).view(np.int32), np.where(np.isfinite(wide), exponent64, 0)
    )


def test_ldexp() -> None:
    x, n = pairs(EDGES_F32)[0], np.tile(np.arange(-320, 330, 22, dtype=np.int32)[: EDGES_F32.size], EDGES_F32.size)
    with np.errstate(all="ignore"):
        same_floats(f32(run("v_ldexp_f32", x, n)), np.ldexp(f32(x), n))
        wide = f32(x).astype(np.float64)
        same_floats(f64(run("v_ldexp_f64", words64(wide), n)), np.ldexp(wide, n))
    huge = np.array([0x7FFFFFFF, 0x80000000], np.uint32)
    np.testing.assert_array_equal(f32(run("v_ldexp_f32", bits32([1.0, 1.0]), huge)), [np.inf, 0.0])


@pytest.mark.parametrize("mnemonic", sorted(BINARY))
def test_binary_f64(mnemonic: str) -> None:
    a, b = pairs(np.concatenate([EDGES_F64, np.random.default_rng(5).integers(0, 1 << 63, 30, dtype=np.uint64)]))
    x, y = a.view(np.float64), b.view(np.float64)
    with np.errstate(all="ignore"):
        want = BINARY[mnemonic](x, y)
    same_floats(f64(run(f"{mnemonic}_f64", words64(a), words64(b))), want)


def test_f64_roots_and_reciprocals() -> None:
    x = np.concatenate([EDGES_F64.view(np.float64), np.random.default_rng(6).random(200) * 1e3])
    with np.errstate(all="ignore"):
        same_floats(f64(run("v_rcp_f64", words64(x))), 1 / x)
        same_floats(f64(run("v_sqrt_f64", words64(x))), np.sqrt(x))
        same_floats(f64(run("v_rsq_f64", words64(x))), 1 / np.sqrt(x))
        fused = f64(run("v_fma_f64", words64(x), words64(x), words64(-x * x)))
    good = np.isfinite(x) & (np.abs(x) < 1e100) & (np.abs(x) > 1e-100)
    want = [float(Fraction(v) ** 2 - Fraction(float(v) * float(v))) for v in x[good]]
    np.testing.assert_array_equal(fused[good], want)


def divide_f32(num: np.ndarray, den: np.ndarray) -> np.ndarray:
    """num / den by the sequence compilers emit around v_div_scale, v_div_fmas and v_div_fixup."""
    one = bits32(np.ones(num.size, np.float32))

    def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return run("v_fma_f32", a, b, c)

    def neg(a: np.ndarray) -> np.ndarray:
        return a ^ np.uint32(0x80000000)

    d = run64("v_div_scale_f32", den, den, num)[0][0]
    n, flag = run64("v_div_scale_f32", num, den, num)
    n = n[0]
    r = run("v_rcp_f32", d)
    r = fma(fma(neg(d), r, one), r, r)
    q = run("v_mul_f32", n, r)
    q = fma(fma(neg(d), q, n), r, q)
    q = run("v_div_fmas_f32", fma(neg(d), q, n), r, q, mask=flag)
    return f32(run("v_div_fixup_f32", q, den, num))


def test_division_sequence_is_correctly_rounded() -> None:
    rng = np.random.default_rng(7)
    edges = pairs(EDGES_F32)
    scattered = [random_f32(8 + i, 20000) for i in range(2)]
    close = [bits32(np.ldexp(rng.random(20000) + 1, rng.integers(-149, 127, 20000))) for _ in range(2)]
    num, den = (np.concatenate([e, s, c]) for e, s, c in zip(edges, scattered, close, strict=True))
    with np.errstate(all="ignore"):
        same_floats(divide_f32(num, den), f32(num) / f32(den))


def divide_f64(num: np.ndarray, den: np.ndarray) -> np.ndarray:
    def w(x: np.ndarray) -> np.ndarray:
        return words64(x)

    def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return f64(run("v_fma_f64", w(a), w(b), w(c)))

    d = f64(run64("v_div_scale_f64", w(den), w(den), w(num))[0])
    scaled, flag = run64("v_div_scale_f64", w(num), w(den), w(num))
    n = f64(scaled)
    r = f64(run("v_rcp_f64", w(d)))
    for _ in range(2):
        r = fma(fma(-d, r, np.ones_like(d)), r, r)
    q = n * r
    e = fma(-d, q, n)
    q = f64(run("v_div_fmas_f64", w(e), w(r), w(q), mask=flag))
    return f64(run("v_div_fixup_f64", w(q), w(den), w(num)))


def test_f64_division_sequence() -> None:
    rng = np.random.default_rng(9)
    num, den = (np.ldexp(rng.random(5000) + 1, rng.integers(-1000, 1000, 5000)) for _ in range(2))
    special = pairs(EDGES_F64)
    with np.errstate(all="ignore"):
        want = num / den
        normal = (np.abs(want) > 1e-300) | (want == 0)  # a denormal quotient is rounded twice
        same_floats(divide_f64(num, den)[normal], want[normal])
        x, y = (s.view(np.float64) for s in special)
        quotient = x / y
        normal = (np.abs(quotient) > 1e-300) | (quotient == 0) | np.isnan(quotient)
        same_floats(divide_f64(x, y)[normal], quotient[normal])


@given(st.lists(st.tuples(*[st.floats(width=32)] * 3), min_size=64, max_size=64))
@settings(max_examples=30, deadline=None)
def test_random_arithmetic(operands: list[tuple[float, float, float]]) -> None:
    a, b, c = (np.array(x, np.float32) for x in zip(*operands, strict=True))
    with np.errstate(all="ignore"):
        same_floats(f32(run("v_add_f32", a, b)), a + b)
        same_floats(f32(run("v_mul_f32", a, b)), a * b)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    same_floats(f32(run("v_fma_f32", a, b, c))[finite], exact_fma(a[finite], b[finite], c[finite]))
