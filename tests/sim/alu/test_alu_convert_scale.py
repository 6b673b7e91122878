"""Conversions with a block scale: all codes, all positions, scale exponents, one rounding."""

import numpy as np
import pytest
from alu_support import BF6, BF8, FP4, FP6, FP8, Minifloat, bits32, f32, run, same_floats

FORMATS = {"fp8": FP8, "bf8": BF8, "fp6": FP6, "bf6": BF6, "fp4": FP4}
SCALES = np.array([0, 1, 64, 126, 127, 128, 150, 254, 255], np.uint32)


def scale_value(code: int) -> float:
    return float("nan") if code == 255 else 2.0 ** (code - 127)


def scale_words(code: int, count: int) -> np.ndarray:
    """f32 scales with a sign and a mantissa that must not matter."""
    return np.full(count, 0x80123456 | code << 23, np.uint32)


def to_wide(values: np.ndarray, kind: str) -> np.ndarray:
    """uint32 codes of float64 numbers (exact in f32) in f32, f16 or bf16, nearest even, one NaN."""
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        if kind == "f16":
            codes = single.astype(np.float16).view(np.uint16).astype(np.uint32)
            return np.where(np.isnan(values), 0x7E00, codes)
        word = single.view(np.uint32)
        if kind == "f32":
            return np.where(np.isnan(values), 0x7FC00000, word)
        return np.where(
            np.isnan(values), 0x7FC0, (word.astype(np.uint64) + 0x7FFF + (word >> 16 & 1) >> 16).astype(np.uint32)
        )


@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
def test_pairs_to_wide(name: str, wide: str) -> None:
    form, width = FORMATS[name], 4 if name == "fp4" else 8
    codes = np.arange(2 * form.sign, dtype=np.uint32)
    for position in range(4 if name == "fp4" else 2):
        word = (codes | codes[::-1] << width) << 2 * width * position
        for scale in SCALES:
            want = to_wide(form.values * scale_value(int(scale)), wide)
            out = run(f"v_cvt_scalef32_pk_{wide}_{name}", word, scale_words(int(scale), codes.size), op_sel=position)
            low, high = out if wide == "f32" else (out & 0xFFFF, out >> 16)
            np.testing.assert_array_equal(low, want)
            np.testing.assert_array_equal(high, want[::-1])


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_single_bytes(name: str) -> None:
    form = FORMATS[name]
    codes = np.arange(256, dtype=np.uint32)
    scale = scale_words(130, 256)
    for byte in range(4):
        word = codes << 8 * byte
        np.testing.assert_array_equal(
            run(f"v_cvt_scalef32_f32_{name}", word, scale, op_sel=byte), to_wide(form.values * 8, "f32")
        )
        half = to_wide(form.values * 8, "f16")
        old = np.full(256, 0xAAAABBBB, np.uint32)
        np.testing.assert_array_equal(
            run(f"v_cvt_scalef32_f16_{name}", word, scale, op_sel=byte, old=old), half | 0xAAAA0000
        )
        np.testing.assert_array_equal(
            run(f"v_cvt_scalef32_f16_{name}", word, scale, op_sel=byte | 8, old=old), half << 16 | 0xBBBB
        )


def near(form: Minifloat, seed: int, scale: float) -> np.ndarray:
    """float32 numbers about the codes and midpoints of a format times a scale."""
    points = np.concatenate([form.magnitudes, (form.magnitudes[1:] + form.magnitudes[:-1]) / 2]).astype(np.float32)
    around = np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(0))])
    rng = np.random.default_rng(seed)
    loose = (rng.standard_normal(300) * 2.0 ** rng.integers(-18, 18, 300)).astype(np.float32)
    with np.errstate(over="ignore"):
        return (np.concatenate([around, -around, loose]).astype(np.float64) * scale).astype(np.float32)


@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
def test_pairs_to_narrow(name: str, wide: str) -> None:
    form, width = FORMATS[name], 4 if name == "fp4" else 8
    for code in (120, 127, 133):
        x = near(form, code, scale_value(code))
        if wide == "f16":
            with np.errstate(over="ignore"):
                x = x.astype(np.float16).astype(np.float32)
        elif wide == "bf16":
            x = f32(bits32(x) & 0xFFFF0000)
        want = form.encode(x.astype(np.float64) / scale_value(code), saturate=name == "fp4")
        pair = want | want[::-1] << width
        old = np.full(x.size, 0x12345678, np.uint32)
        scale = scale_words(code, x.size)
        for position in range(4 if name == "fp4" else 2):
            op_sel = position << 2 if name == "fp4" else position << 3
            if wide == "f32":
                out = run(f"v_cvt_scalef32_pk_{name}_f32", x, x[::-1].copy(), scale, old=old, op_sel=op_sel)
            else:
                low = to_wide(x.astype(np.float64), wide)
                out = run(f"v_cvt_scalef32_pk_{name}_{wide}", low | low[::-1] << 16, scale, old=old, op_sel=op_sel)
            mask = ((1 << 2 * width) - 1) << 2 * width * position
            np.testing.assert_array_equal(out, (pair << 2 * width * position) | (0x12345678 & ~mask))


def test_fp4_saturates_and_keeps_the_sign() -> None:
    x = np.array([np.inf, -np.inf, 7.0, -100.0, -0.0, 0.25, 0.75, 5.0, np.nan], np.float32)
    one = scale_words(127, x.size)
    out = run("v_cvt_scalef32_pk_fp4_f32", x, np.zeros_like(x), one) & 0xF
    np.testing.assert_array_equal(out, [7, 15, 7, 15, 8, 0, 2, 6, 7])


def test_byte_formats_overflow_to_nan_and_infinity() -> None:
    x = np.array([1e9, -1e9, 464.0, 57344.0 * 1.2], np.float32)
    one = scale_words(127, x.size)
    np.testing.assert_array_equal(run("v_cvt_scalef32_pk_fp8_f32", x, x, one) & 0xFF, [0x7F, 0xFF, 0x7E, 0x7F])
    np.testing.assert_array_equal(run("v_cvt_scalef32_pk_bf8_f32", x, x, one) & 0xFF, [0x7C, 0xFC, 0x5F, 0x7C])
    ovfl = 0x3F0 | 1 << 23
    np.testing.assert_array_equal(
        run("v_cvt_scalef32_pk_fp8_f32", x, x, one, mode=ovfl) & 0xFF, [0x7E, 0xFE, 0x7E, 0x7E]
    )


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
def test_stochastic_bytes(name: str, wide: str) -> None:
    form = FORMATS[name]
    exact = np.array([form.values[c] for c in (0, 1, 9, 0x38, 0x40)])
    seed = np.full(exact.size, 0xFFFFFFFF, np.uint32)
    source = to_wide(exact * 4, wide)
    for byte in range(4):
        out = run(f"v_cvt_scalef32_sr_{name}_{wide}", source, seed, scale_words(129, exact.size), op_sel=byte << 2)
        np.testing.assert_array_equal(out, np.array([0, 1, 9, 0x38, 0x40], np.uint32) << 8 * byte)
    quarter = to_wide(np.full(4096, 1.0 + (0.25 / 8 if name == "fp8" else 0.25 / 4)), wide)
    out = run(
        f"v_cvt_scalef32_sr_{name}_{wide}",
        quarter,
        (np.arange(4096, dtype=np.uint64) << 20).astype(np.uint32),
        scale_words(127, 4096),
    )
    one = 0x38 if name == "fp8" else 0x3C
    assert np.count_nonzero(out == one + 1) == 1024
    assert np.count_nonzero(out == one) == 3072


@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
def test_stochastic_fp4(wide: str) -> None:
    low = to_wide(np.full(4096, 2.25 * 8), wide)  # a quarter of the way from 2 to 3
    high = to_wide(np.full(4096, -6.0 * 8), wide)
    source = np.stack([low, high]) if wide == "f32" else low | high << 16
    seeds = (np.arange(4096, dtype=np.uint64) << 20).astype(np.uint32)
    out = run(f"v_cvt_scalef32_sr_pk_fp4_{wide}", source, seeds, scale_words(130, 4096), op_sel=2 << 2)
    assert set(out) == {0xF4 << 16, 0xF5 << 16}
    assert np.count_nonzero(out == 0xF5 << 16) == 1024


@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["fp6", "bf6"])
def test_thirty_two_six_bit_values(name: str, wide: str) -> None:
    form = FORMATS[name]
    codes = np.random.default_rng(1).integers(0, 64, (32, 64)).astype(np.uint32)
    registers = np.zeros((6, 64), np.uint32)
    for lane in range(64):
        stream = sum(int(codes[j, lane]) << 6 * j for j in range(32))
        registers[:, lane] = [stream >> 32 * r & 0xFFFFFFFF for r in range(6)]
    scale = scale_words(128, 64)
    out = run(f"v_cvt_scalef32_pk32_{wide}_{name}", registers, scale)
    want = to_wide(form.values[codes] * 2, wide)
    np.testing.assert_array_equal(out, want if wide == "f32" else want[::2] | want[1::2] << 16)
    if wide != "f32":
        np.testing.assert_array_equal(run(f"v_cvt_scalef32_pk32_{name}_{wide}", out, scale), registers)


def test_scale_exponent_alone_counts() -> None:
    one = np.full(4, 0x38, np.uint32)
    scales = np.array([0x3F800000, 0x3FFFFFFF, 0xBF800000, 0x7F800000], np.uint32)
    same_floats(f32(run("v_cvt_scalef32_f32_fp8", one, scales)), np.array([1, 1, 1, np.nan], np.float32))
