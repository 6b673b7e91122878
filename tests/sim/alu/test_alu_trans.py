"""Transcendental instructions: the exact function rounded to nearest, with the denormals that are flushed."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from alu_support import EDGES_F32, bits32, f32, run, same_floats

ALL16 = np.arange(1 << 16, dtype=np.uint32)
TINY = np.float32(2.0**-126)


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x).astype(np.float32)


def samples(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            EDGES_F32,
            rng.integers(0, 1 << 32, 20000, dtype=np.uint32),
            bits32(rng.standard_normal(20000) * 50),
            bits32(np.arange(-160, 160)),
        ]
    )


def turns(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) <= 256, np.remainder(x, 1), 0)


def within_half_ulp(actual: np.ndarray, exact: np.ndarray) -> None:
    """The nearest f32 of a longdouble value, 2^-20 of a spacing allowed for the reference's error and near ties."""
    finite = np.isfinite(exact) & np.isfinite(actual)
    spacing = np.maximum(np.spacing(np.abs(actual[finite]).astype(np.float32)), np.float32(2.0**-149)).astype(
        np.longdouble
    )
    assert np.all(np.abs(actual[finite] - exact[finite]) <= spacing * (0.5 + 2.0**-20))


@np.errstate(all="ignore")
def test_exp_and_log() -> None:
    x = samples(1)
    value = f32(x).astype(np.longdouble)
    out = f32(run("v_exp_f32", x))
    exact = np.exp2(value)
    want = flush(exact.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(value))
    flushed = exact < 2.0**-126 * (1 - 2.0**-26)
    assert np.all(out[flushed & ~np.isnan(value)] == 0)
    within_half_ulp(out[~flushed], exact[~flushed])
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))
    log = f32(run("v_log_f32", x))
    inputs = flush(f32(x)).astype(np.longdouble)
    exact = np.log2(inputs)
    np.testing.assert_array_equal(np.isnan(log), np.isnan(exact))
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(log[infinite], exact[infinite].astype(np.float32))
    within_half_ulp(log, exact)


def test_exp_and_log_are_exact_where_the_function_is() -> None:
    n = np.arange(-126, 128)
    powers = (2.0**n).astype(np.float32)
    np.testing.assert_array_equal(f32(run("v_exp_f32", bits32(n))), powers)
    np.testing.assert_array_equal(f32(run("v_log_f32", bits32(powers))), n)


@np.errstate(all="ignore")
def test_reciprocals_and_roots() -> None:
    x = samples(2)
    value = flush(f32(x))
    wide = value.astype(np.float64)
    for mnemonic in ("v_rcp_f32", "v_rcp_iflag_f32"):
        same_floats(f32(run(mnemonic, x)), flush(np.float32(1) / value))
    same_floats(f32(run("v_sqrt_f32", x)), np.sqrt(value))
    same_floats(f32(run("v_rsq_f32", x)), (1 / np.sqrt(wide)).astype(np.float32))


def test_rsq_is_the_nearest_number() -> None:
    """r is nearest to 1/sqrt(x) if x times the squares of the midpoints next to r bracket 1."""
    x = np.random.default_rng(3).uniform(1, 4, 500).astype(np.float32)
    out = f32(run("v_rsq_f32", bits32(x)))
    for value, r in zip(x, out, strict=True):
        low = (Fraction(float(r)) + Fraction(float(np.nextafter(r, np.float32(0))))) / 2
        high = (Fraction(float(r)) + Fraction(float(np.nextafter(r, np.float32(9))))) / 2
        assert Fraction(float(value)) * low**2 <= 1 <= Fraction(float(value)) * high**2


@np.errstate(all="ignore")
@pytest.mark.parametrize("mnemonic", ["v_sin_f32", "v_cos_f32"])
def test_sine_of_turns(mnemonic: str) -> None:
    x = np.concatenate(
        [samples(4), bits32(np.random.default_rng(5).uniform(-260, 260, 20000)), bits32(np.arange(-16, 16) / 8)]
    )
    value = flush(f32(x)).astype(np.longdouble)
    function: Callable[..., np.ndarray] = np.sin if mnemonic == "v_sin_f32" else np.cos
    shifted = np.remainder(turns(value) + np.longdouble(0.5), 1) - np.longdouble(0.5)
    reduced = np.where(np.abs(value) < 0.25, value, shifted)  # the shift costs small numbers their bits
    tau = np.longdouble("6.28318530717958647692528676655900577")
    exact = function(tau * reduced)
    out = f32(run(mnemonic, x))
    np.testing.assert_array_equal(np.isnan(out), ~np.isfinite(value))
    quarter = (np.remainder(reduced * 4, 1) == 0) & np.isfinite(value)
    np.testing.assert_allclose(out[quarter], np.rint(exact[quarter]).astype(np.float32))
    away = ~quarter & np.isfinite(value)
    within_half_ulp(out[away], exact[away])


@np.errstate(all="ignore")
def test_every_half() -> None:
    value = ALL16.astype(np.uint16).view(np.float16).astype(np.float64)
    finite = np.where(np.isfinite(value), value, 0)
    reduced = np.remainder(turns(finite) + 0.5, 1) - 0.5
    wanted = {
        "v_rcp_f16": 1 / value,
        "v_rsq_f16": 1 / np.sqrt(value),
        "v_sqrt_f16": np.sqrt(value),
        "v_exp_f16": np.exp2(value),
        "v_log_f16": np.log2(value),
        "v_sin_f16": np.where(np.isfinite(value), np.where(value == 0, value, np.sin(2 * np.pi * reduced)), np.nan),
        "v_cos_f16": np.where(np.isfinite(value), np.cos(2 * np.pi * reduced), np.nan),
    }
    for mnemonic, want in wanted.items():
        out = run(mnemonic, ALL16).astype(np.uint16).view(np.float16)
        if mnemonic in ("v_sin_f16", "v_cos_f16"):  # zeros of the sine: exact here, not in numpy
            want = np.where(np.abs(want) < 1e-9, out.astype(np.float64) * (np.abs(out) < 1e-9), want)
        same_floats(out, want.astype(np.float16))
