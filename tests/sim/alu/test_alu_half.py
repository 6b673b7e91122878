"""f16 arithmetic, scalar and packed, mixed-precision fma, dot products."""

from collections.abc import Callable

import numpy as np
import pytest
from alu_support import EDGES_F16, bits32, f32, halves, pairs, registers, run, same_floats
from hypothesis import given, settings
from hypothesis import strategies as st
from mfma_model import fma_f32

HALF = np.float16


def half(words: np.ndarray) -> np.ndarray:
    return (words & 0xFFFF).astype(np.uint16).view(HALF)


def quiet(words: np.ndarray) -> np.ndarray:
    return words[~(((words & 0x7C00) == 0x7C00) & ((words & 0x3FF) != 0) & ((words & 0x200) == 0))]


def zmin(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    zero = np.where(np.signbit(a) | np.signbit(b), HALF(-0.0), HALF(0))
    return np.where((a == 0) & (b == 0), zero, np.fmin(a, b))


def zmax(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -zmin(-a, -b)


def to_half(exact: np.ndarray) -> np.ndarray:
    return exact.astype(HALF)


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: to_half(a.astype(np.float64) + b),
    "mul": lambda a, b: to_half(a.astype(np.float64) * b),
    "min": zmin,
    "max": zmax,
}


def sample(seed: int) -> np.ndarray:
    return quiet(
        np.concatenate([EDGES_F16, np.random.default_rng(seed).integers(0, 1 << 16, 80).astype(np.uint16)])
    ).astype(np.uint32)


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary(name: str) -> None:
    a, b = pairs(sample(1))
    want = BINARY[name](half(a), half(b))
    same_floats(half(run(f"v_{name}_f16", a, b)), want)
    high = run(f"v_{name}_f16", a << 16, b << 16, op_sel=0b1011, old=np.full(a.size, 0x1234, np.uint32))
    same_floats(half(high >> 16), want)
    assert np.all(high & 0xFFFF == 0x1234)
    packed = run(f"v_pk_{name}_f16", a | b << 16, b | a << 16)
    same_floats(half(packed), want)
    same_floats(half(packed >> 16), BINARY[name](half(b), half(a)))
    swapped = run(f"v_pk_{name}_f16", a | b << 16, b | a << 16, op_sel=3, op_sel_hi=0, neg_lo=1, neg_hi=2)
    same_floats(half(swapped), BINARY[name](-half(b), half(a)))
    same_floats(half(swapped >> 16), BINARY[name](half(a), -half(b)))


@np.errstate(all="ignore")
def test_subtraction_and_signalling_nan() -> None:
    a, b = pairs(sample(2))
    same_floats(half(run("v_sub_f16", a, b)), to_half(half(a).astype(np.float64) - half(b)))
    same_floats(half(run("v_subrev_f16", a, b)), to_half(half(b).astype(np.float64) - half(a)))
    for mnemonic in ("v_max_f16", "v_min_f16", "v_pk_max_f16", "v_pk_min_f16"):
        assert run(mnemonic, np.array([0x7C01], np.uint32), halves([2.0]))[0] & 0xFFFF == 0x7E00


@np.errstate(all="ignore")
def test_fma_is_rounded_once() -> None:
    a, b, c = pairs(sample(3)[:40], 3)
    x, y, z = (half(v).astype(np.float64) for v in (a, b, c))
    want = (x * y + z).astype(HALF)
    same_floats(half(run("v_fma_f16", a, b, c)), want)
    same_floats(half(run("v_fmac_f16", a, b, old=c)), want)
    packed = run("v_pk_fma_f16", a | b << 16, b | c << 16, c | a << 16)
    same_floats(half(packed), want)
    same_floats(half(packed >> 16), (y * z + x).astype(HALF))
    fused = run("v_pk_fmac_f16", a | b << 16, b | c << 16, old=c | a << 16)
    same_floats(half(fused), want)
    same_floats(half(fused >> 16), (y * z + x).astype(HALF))
    separate = to_half(to_half(half(a).astype(np.float64) * half(b)).astype(np.float64) + half(c))
    same_floats(half(run("v_mad_f16", a, b, c)), separate)
    same_floats(half(run("v_mac_f16", a, b, old=c)), separate)


@np.errstate(all="ignore")
def test_three_operand_order() -> None:
    a, b, c = pairs(sample(4)[:30], 3)
    x, y, z = half(a), half(b), half(c)
    nan = np.isnan(x) | np.isnan(y) | np.isnan(z)
    low, high = zmin(zmin(x, y), z), zmax(zmax(x, y), z)
    same_floats(half(run("v_min3_f16", a, b, c)), low)
    same_floats(half(run("v_max3_f16", a, b, c)), high)
    same_floats(half(run("v_med3_f16", a, b, c)), np.where(nan, low, zmax(zmin(x, y), zmin(zmax(x, y), z))))
    same_floats(half(run("v_pk_maximum3_f16", a, b, c)), np.where(nan, HALF(np.nan), high))
    same_floats(half(run("v_pk_minimum3_f16", a, b, c)), np.where(nan, HALF(np.nan), low))


@np.errstate(all="ignore")
def test_every_half_through_unary_instructions() -> None:
    words = np.arange(1 << 16, dtype=np.uint32)
    x = half(words)
    for mnemonic, function in (
        ("v_trunc_f16", np.trunc),
        ("v_ceil_f16", np.ceil),
        ("v_floor_f16", np.floor),
        ("v_rndne_f16", np.rint),
    ):
        same_floats(half(run(mnemonic, words)), function(x))
    mantissa, exponent = np.frexp(x)
    same_floats(half(run("v_frexp_mant_f16", words)), np.where(np.isfinite(x), mantissa, x))
    np.testing.assert_array_equal(
        run("v_frexp_exp_i16_f16", words).astype(np.uint16).view(np.int16), np.where(np.isfinite(x), exponent, 0)
    )
    wide = x.astype(np.float64)
    fraction = np.minimum(wide - np.floor(wide), 1 - 2.0**-11).astype(HALF)
    same_floats(half(run("v_fract_f16", words)), fraction)
    for n in (-30, -3, 0, 5, 40):
        same_floats(
            half(run("v_ldexp_f16", words, np.full(words.size, n & 0xFFFF, np.uint32))), np.ldexp(wide, n).astype(HALF)
        )


@np.errstate(all="ignore")
def test_division_fixup() -> None:
    q, den, num = (
        halves([1.5] * 9),
        halves([2, -2, 0, 0, np.inf, np.nan, 1, np.inf, -1]),
        halves([3, 3, 1, 0, 1, 1, np.inf, np.inf, 0]),
    )
    out = half(run("v_div_fixup_f16", q, den, num))
    same_floats(out, np.array([1.5, -1.5, np.inf, np.nan, 0, np.nan, np.inf, np.nan, -0.0], HALF))


@np.errstate(all="ignore")
def test_mixed_fma() -> None:
    rng = np.random.default_rng(5)
    words = rng.integers(0, 1 << 32, (3, 2000), dtype=np.uint32)
    words &= np.uint32(0xBFFFBFFF)  # neither f16 nor f32 special
    for op_sel_hi in range(8):
        op_sel, neg, absolute = rng.integers(0, 8, 3)
        sources = []
        for n in range(3):
            if op_sel_hi >> n & 1:
                value = half(words[n] >> (16 * (op_sel >> n & 1))).astype(np.float64)
            else:
                value = f32(words[n]).astype(np.float64)
            value = np.abs(value) if absolute >> n & 1 else value
            sources.append(-value if neg >> n & 1 else value)
        want = fma_f32(*sources)
        mods = {"op_sel": int(op_sel), "op_sel_hi": op_sel_hi, "neg_lo": int(neg), "neg_hi": int(absolute)}
        same_floats(f32(run("v_fma_mix_f32", *words, **mods)), want)
        old = np.full(2000, 0x12345678, np.uint32)
        low = run("v_fma_mixlo_f16", *words, old=old, **mods)
        high = run("v_fma_mixhi_f16", *words, old=old, **mods)
        same_floats(half(low), want.astype(HALF))
        same_floats(half(high >> 16), want.astype(HALF))
        assert np.all(low >> 16 == 0x1234)
        assert np.all(high & 0xFFFF == 0x5678)


def test_packed_integers() -> None:
    edges = np.array([0, 1, 5, 15, 0x7FFF, 0x8000, 0xFFF0, 0xFFFF], np.uint32)
    a, b, c = pairs(edges, 3)

    def s(x: np.ndarray) -> np.ndarray:
        return x.astype(np.uint16).view(np.int16).astype(np.int64)

    def u(x: np.ndarray) -> np.ndarray:
        return x.astype(np.int64)

    cases: dict[str, tuple[np.ndarray, int]] = {
        "add_u16": (u(a) + u(b), 0),
        "sub_u16": (u(a) - u(b), 0),
        "add_i16": (s(a) + s(b), 1),
        "sub_i16": (s(a) - s(b), 1),
        "mad_u16": (u(a) * u(b) + u(c), 0),
        "mad_i16": (s(a) * s(b) + s(c), 1),
        "mul_lo_u16": (u(a) * u(b), 2),
        "lshlrev_b16": (u(b) << (u(a) & 15), 2),
        "lshrrev_b16": (u(b) >> (u(a) & 15), 2),
        "ashrrev_i16": (s(b) >> (u(a) & 15), 2),
        "min_u16": (np.minimum(u(a), u(b)), 2),
        "max_u16": (np.maximum(u(a), u(b)), 2),
        "min_i16": (np.minimum(s(a), s(b)), 2),
        "max_i16": (np.maximum(s(a), s(b)), 2),
    }
    for name, (exact, kind) in cases.items():
        operands = [v | v[::-1] << 16 for v in ((a, b, c) if name.startswith("mad") else (a, b))]
        for clamp in (False, True) if kind < 2 else (False,):
            bounded = exact.clip(*((0, 0xFFFF) if kind == 0 else (-32768, 32767))) if clamp else exact
            code = (bounded & 0xFFFF).astype(np.uint32)
            np.testing.assert_array_equal(run(f"v_pk_{name}", *operands, clamp=clamp), code | code[::-1] << 16)


@np.errstate(all="ignore")
@given(
    st.integers(0, 1 << 32), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_packed_f32(seed: int, op_sel: int, op_sel_hi: int, neg_lo: int, neg_hi: int, clamp: bool) -> None:
    sources = [bits32(np.random.default_rng(seed + n).standard_normal((2, 64))) for n in range(3)]
    mods = {"op_sel": op_sel, "op_sel_hi": op_sel_hi, "neg_lo": neg_lo, "neg_hi": neg_hi, "clamp": clamp}

    def operand(n: int, high: int) -> np.ndarray:
        value = f32(sources[n][(op_sel_hi if high else op_sel) >> n & 1])
        return -value if (neg_hi if high else neg_lo) >> n & 1 else value

    for high in (0, 1):
        a, b, c = (operand(n, high) for n in range(3))
        fused = fma_f32(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64))
        for mnemonic, want in (("v_pk_add_f32", a + b), ("v_pk_mul_f32", a * b), ("v_pk_fma_f32", fused)):
            count = 3 if mnemonic == "v_pk_fma_f32" else 2
            same_floats(f32(run(mnemonic, *sources[:count], **mods)[high]), want.clip(0, 1) if clamp else want)
    moved = run("v_pk_mov_b32", *sources[:2], op_sel=op_sel)
    np.testing.assert_array_equal(moved, [sources[0][op_sel & 1], sources[1][op_sel >> 1 & 1]])


@np.errstate(all="ignore")
def test_float_dot_products() -> None:
    rng = np.random.default_rng(6)
    values = rng.standard_normal((2, 2, 640))
    c = rng.standard_normal(640).astype(np.float32)
    for kind in ("f16", "bf16"):
        codes = halves(values.reshape(-1)).reshape(values.shape) if kind == "f16" else bits32(values) >> 16
        exact = half(codes).astype(np.float64) if kind == "f16" else f32(codes << 16).astype(np.float64)
        words = [codes[n, 0] | codes[n, 1] << 16 for n in (0, 1)]
        want = c
        for j in (0, 1):
            want = fma_f32(exact[0, j], exact[1, j], want.astype(np.float64))
        same_floats(f32(run(f"v_dot2_f32_{kind}", *words, bits32(c))), want)
        same_floats(f32(run(f"v_dot2c_f32_{kind}", *words, old=bits32(c))), want)


@pytest.mark.parametrize("width", [16, 8, 4])
@pytest.mark.parametrize("signed", [True, False])
def test_integer_dot_products(width: int, signed: bool) -> None:
    rng = np.random.default_rng(7)
    a, b, c = registers(rng.integers(0, 1 << 32, (3, 640), dtype=np.uint32), 640)
    a[:2], b[:2] = 0xFFFFFFFF, [0xFFFFFFFF, 0x80808080]
    total = c.astype(np.int64) if not signed else c.view(np.int32).astype(np.int64)
    for j in range(32 // width):
        x, y = (v.astype(np.int64) >> width * j & ((1 << width) - 1) for v in (a, b))
        if signed:
            x, y = (np.where(v >> (width - 1), v - (1 << width), v) for v in (x, y))
        total = total + x * y
    name = f"{32 // width}_{'i' if signed else 'u'}32_{'i' if signed else 'u'}{width}"
    np.testing.assert_array_equal(run(f"v_dot{name}", a, b, c), total.astype(np.uint64).astype(np.uint32))
    bounded = total.clip(*((-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)))
    np.testing.assert_array_equal(run(f"v_dot{name}", a, b, c, clamp=True), bounded.astype(np.uint64).astype(np.uint32))
    if signed:
        np.testing.assert_array_equal(
            run(f"v_dot{32 // width}c_i32_i{width}", a, b, old=c), total.astype(np.uint64).astype(np.uint32)
        )
