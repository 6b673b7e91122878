"""Conversions, over all encodings where the domain is 256 or 65,536 of them."""

import numpy as np
import pytest
import torch
from alu_support import (
    BF8,
    EDGES_F32,
    EDGES_F64,
    EDGES_I32,
    FP8,
    Minifloat,
    bits32,
    f32,
    f64,
    halves,
    pairs,
    run,
    same_floats,
    words64,
)

ALL16 = np.arange(1 << 16, dtype=np.uint32)
ALL8 = np.arange(256, dtype=np.uint32)
OVFL = 0x3F0 | 1 << 23  # MODE.FP16_OVFL
BYTE_FORMATS = {"fp8": FP8, "bf8": BF8}


def wide_range(seed: int, count: int = 4000) -> np.ndarray:
    """f32 bit patterns: edges, any bits, and numbers near the small formats' ranges."""
    rng = np.random.default_rng(seed)
    near = bits32(rng.standard_normal(count) * 2.0 ** rng.integers(-26, 18, count))
    return np.concatenate([EDGES_F32, rng.integers(0, 1 << 32, count, dtype=np.uint32), near])


def neighbours(values: np.ndarray) -> np.ndarray:
    """f32 bits of numbers, of the midpoints between them, and of what lies next to those."""
    finite = np.unique(values[np.isfinite(values)])
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2]).astype(np.float32)
    return bits32(
        np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])
    )


@np.errstate(all="ignore")
def test_f32_to_integers() -> None:
    x = np.concatenate(
        [wide_range(1), bits32(np.arange(-4, 4.25, 0.25)), bits32([2147483520, -2147483648, 4294967040, 65535.5])]
    )
    value = np.nan_to_num(f32(x).astype(np.float64), nan=0.0)
    np.testing.assert_array_equal(
        run("v_cvt_i32_f32", x).view(np.int32), np.trunc(value).clip(-(2**31), 2**31 - 1).astype(np.int64)
    )
    np.testing.assert_array_equal(run("v_cvt_u32_f32", x), np.trunc(value).clip(0, 2**32 - 1).astype(np.int64))
    np.testing.assert_array_equal(
        run("v_cvt_flr_i32_f32", x).view(np.int32), np.floor(value).clip(-(2**31), 2**31 - 1).astype(np.int64)
    )
    with np.errstate(invalid="ignore"):
        up = np.floor(np.nan_to_num(f32(x) + np.float32(0.5), nan=0.0).astype(np.float64))
    np.testing.assert_array_equal(
        run("v_cvt_rpi_i32_f32", x).view(np.int32), up.clip(-(2**31), 2**31 - 1).astype(np.int64)
    )


def test_f64_to_others() -> None:
    x = np.concatenate(
        [
            EDGES_F64.view(np.float64),
            np.random.default_rng(2).standard_normal(500) * 1e9,
            [2147483647.5, -2147483648.9, 4294967295.5],
        ]
    )
    value = np.nan_to_num(x, nan=0.0)
    np.testing.assert_array_equal(
        run("v_cvt_i32_f64", words64(x)).view(np.int32), np.trunc(value.clip(-(2**31), 2**31 - 1)).astype(np.int64)
    )
    np.testing.assert_array_equal(run("v_cvt_u32_f64", words64(x)), np.trunc(value.clip(0, 2**32 - 1)).astype(np.int64))
    with np.errstate(all="ignore"):
        same_floats(f32(run("v_cvt_f32_f64", words64(x))), x.astype(np.float32))


def test_integers_to_floats() -> None:
    x = np.concatenate(
        [
            EDGES_I32,
            np.random.default_rng(3).integers(0, 1 << 32, 3000, dtype=np.uint32),
            np.arange(1 << 24, (1 << 24) + 9, dtype=np.uint32),
        ]
    )
    signed = x.view(np.int32)
    same_floats(f32(run("v_cvt_f32_u32", x)), x.astype(np.float32))
    same_floats(f32(run("v_cvt_f32_i32", x)), signed.astype(np.float32))
    same_floats(f64(run("v_cvt_f64_u32", x)), x.astype(np.float64))
    same_floats(f64(run("v_cvt_f64_i32", x)), signed.astype(np.float64))
    for byte in range(4):
        same_floats(f32(run(f"v_cvt_f32_ubyte{byte}", x)), (x >> 8 * byte & 255).astype(np.float32))
    nibble = np.arange(16, dtype=np.uint32)
    same_floats(
        f32(run("v_cvt_off_f32_i4", nibble | 0xFFFF0)),
        np.where(nibble > 7, nibble / 16 - 1, nibble / 16).astype(np.float32),
    )


def test_f32_to_f64_and_back() -> None:
    x = wide_range(4)
    with np.errstate(invalid="ignore"):
        same_floats(f64(run("v_cvt_f64_f32", x)), f32(x).astype(np.float64))


def test_every_half() -> None:
    value = ALL16.astype(np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        same_floats(f32(run("v_cvt_f32_f16", ALL16)), value.astype(np.float32))
        same_floats(f32(run("v_cvt_f32_f16", ALL16 << 16, op_sel=1)), value.astype(np.float32))
    number = np.nan_to_num(value.astype(np.float64), nan=0.0)
    np.testing.assert_array_equal(run("v_cvt_u16_f16", ALL16), np.trunc(number.clip(0, 65535)).astype(np.uint32))
    np.testing.assert_array_equal(
        run("v_cvt_i16_f16", ALL16), np.trunc(number.clip(-32768, 32767)).astype(np.int16).view(np.uint16)
    )
    same = run("v_cvt_f16_u16", ALL16).astype(np.uint16).view(np.float16)
    with np.errstate(over="ignore"):
        same_floats(same, ALL16.astype(np.float16))
        same_floats(
            run("v_cvt_f16_i16", ALL16).astype(np.uint16).view(np.float16),
            ALL16.astype(np.uint16).view(np.int16).astype(np.float16),
        )


@np.errstate(all="ignore")
def test_f32_to_half() -> None:
    every = ALL16.astype(np.uint16).view(np.float16)
    with np.errstate(invalid="ignore", over="ignore"):
        x = np.concatenate([wide_range(5), neighbours(every.astype(np.float32))])
        want = f32(x).astype(np.float16)
    same_floats(run("v_cvt_f16_f32", x).astype(np.uint16).view(np.float16), want)
    packed = run("v_cvt_pk_f16_f32", x, x[::-1].copy())
    same_floats((packed & 0xFFFF).astype(np.uint16).view(np.float16), want)
    same_floats((packed >> 16).astype(np.uint16).view(np.float16), want[::-1].copy())
    saturated = run("v_cvt_f16_f32", x, mode=OVFL).astype(np.uint16).view(np.float16)
    same_floats(saturated, np.where(np.isinf(want) & np.isfinite(f32(x)), np.copysign(np.float16(65504), want), want))
    toward_zero = np.where(
        np.abs(want.astype(np.float64)) > np.abs(f32(x).astype(np.float64)), np.nextafter(want, np.float16(0)), want
    )
    same_floats((run("v_cvt_pkrtz_f16_f32", x, x) >> 16).astype(np.uint16).view(np.float16), toward_zero)


@np.errstate(all="ignore")
def test_bf16() -> None:
    with np.errstate(invalid="ignore"):
        x = np.concatenate(
            [wide_range(6), neighbours(f32(np.arange(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)))]
        )
    number = x[~np.isnan(f32(x))]
    want = torch.from_numpy(f32(number).copy()).to(torch.bfloat16).view(torch.uint16).numpy().astype(np.uint32)
    out = run("v_cvt_pk_bf16_f32", number, number[::-1].copy())
    np.testing.assert_array_equal(out & 0xFFFF, want)
    np.testing.assert_array_equal(out >> 16, want[::-1])
    nan = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF], np.uint32)
    np.testing.assert_array_equal(run("v_cvt_pk_bf16_f32", nan, nan) & 0xFFFF, [0x7FC0, 0xFFC1, 0x7FFF])
    np.testing.assert_array_equal(run("v_cvt_f32_bf16", ALL16), ALL16 << 16)


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_every_byte_code(name: str) -> None:
    values = BYTE_FORMATS[name].values.astype(np.float32)
    exact = (
        torch.from_numpy(ALL8.astype(np.uint8))
        .view(torch.float8_e4m3fn if name == "fp8" else torch.float8_e5m2)
        .float()
        .numpy()
    )
    np.testing.assert_array_equal(values, exact)
    decoded = f32(run(f"v_cvt_f32_{name}", ALL8 | 0xABCD00))
    np.testing.assert_array_equal(np.abs(decoded), np.abs(exact))
    np.testing.assert_array_equal(np.signbit(decoded[~np.isnan(exact)]), np.signbit(exact[~np.isnan(exact)]))
    words = ALL8 | ALL8[::-1] << 8 | ALL8 << 16 | ALL8[::-1] << 24
    for op_sel in (0, 1):
        low, high = run(f"v_cvt_pk_f32_{name}", words, op_sel=op_sel)
        np.testing.assert_array_equal(f32(low), decoded)
        np.testing.assert_array_equal(f32(high), decoded[::-1])


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("mode", [0x3F0, OVFL])
def test_f32_to_bytes(name: str, mode: int) -> None:
    form: Minifloat = BYTE_FORMATS[name]
    x = np.concatenate(
        [
            wide_range(7),
            neighbours(form.values),
            bits32([448.0, 464.0, 465.0, 480.0, 57344.0, 61440.0, 65536.0, -464.5]),
        ]
    )
    with np.errstate(invalid="ignore"):
        want = form.encode(f32(x).astype(np.float64), saturate=mode == OVFL)
    old = np.full(x.size, 0x12345678, np.uint32)
    code = want | np.roll(want, 1) << 8
    np.testing.assert_array_equal(run(f"v_cvt_pk_{name}_f32", x, np.roll(x, 1), old=old, mode=mode), code | 0x12340000)
    np.testing.assert_array_equal(
        run(f"v_cvt_pk_{name}_f32", x, np.roll(x, 1), old=old, mode=mode, op_sel=8), code << 16 | 0x5678
    )
    finite = np.isfinite(f32(x)) & (np.abs(f32(x)) <= 448)
    nearest = torch.from_numpy(f32(x)[finite].copy()).to(torch.float8_e4m3fn if name == "fp8" else torch.float8_e5m2)
    np.testing.assert_array_equal(want[finite], nearest.view(torch.uint8).numpy())


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_stochastic_rounding(name: str) -> None:
    """Exact numbers stay; others go to a neighbour, up with the probability of their distance; the byte is op_sel's."""
    form = BYTE_FORMATS[name]
    exact = form.values[: form.top + 1].astype(np.float32)
    seeds = np.random.default_rng(8).integers(0, 1 << 32, exact.size, dtype=np.uint32)
    for byte in range(4):
        out = run(
            f"v_cvt_sr_{name}_f32", exact, seeds, old=np.full(exact.size, 0xFFFFFFFF, np.uint32), op_sel=byte << 2
        )
        np.testing.assert_array_equal(
            out, (np.arange(exact.size, dtype=np.uint32) << 8 * byte) | (0xFFFFFFFF ^ (0xFF << 8 * byte))
        )
    even = (np.arange(4096, dtype=np.uint64) << 20).astype(np.uint32)  # seeds spread evenly
    for low in (0, 1, 5, 20, 70):
        x = np.float32(form.values[low] + 0.25 * (form.values[low + 1] - form.values[low]))
        out = run(f"v_cvt_sr_{name}_f32", np.full(even.size, x), even)
        assert set(out) == {low, low + 1}
        assert np.count_nonzero(out == low + 1) == even.size // 4
    bound = np.array([np.inf, -np.inf, np.nan], np.float32)
    codes = run(f"v_cvt_sr_{name}_f32", bound, np.zeros(3, np.uint32))
    np.testing.assert_array_equal(codes, [form.overflow, form.overflow | 0x80, form.nan])


@pytest.mark.parametrize("target", ["bf16", "f16"])
def test_stochastic_rounding_to_16_bits(target: str) -> None:
    mnemonic = f"v_cvt_sr_{target}_f32"
    seeds = (np.arange(4096, dtype=np.uint64) << 20).astype(np.uint32)
    step = 2.0**-7 if target == "bf16" else 2.0**-10
    x = np.full(seeds.size, -1 - 0.25 * step, np.float32)
    one = 0xBF80 if target == "bf16" else 0xBC00
    old = np.full(seeds.size, 0x12345678, np.uint32)
    low, high = run(mnemonic, x, seeds, old=old), run(mnemonic, x, seeds, old=old, op_sel=8)
    np.testing.assert_array_equal(low >> 16, np.full(seeds.size, 0x1234))
    np.testing.assert_array_equal(high, low << 16 | 0x5678)
    assert np.count_nonzero(low & 0xFFFF == one + 1) == seeds.size // 4
    assert np.count_nonzero(low & 0xFFFF == one) == 3 * seeds.size // 4
    exact = np.array([0.0, 1.5, 2.0**-14, np.inf], np.float32)
    kept = run(mnemonic, exact, np.full(4, 0xFFFFFFFF, np.uint32))
    np.testing.assert_array_equal(kept, bits32(exact) >> 16 if target == "bf16" else halves(exact))


def test_saturating_bytes() -> None:
    words = ALL16 | ALL16[::-1] << 16
    byte = ALL16.astype(np.uint16).view(np.int16).clip(0, 255).astype(np.uint32)
    np.testing.assert_array_equal(run("v_sat_pk_u8_i16", words), byte | byte[::-1] << 8)


def test_packing_of_integers_and_norms() -> None:
    a, b = pairs(EDGES_I32)
    signed = [v.view(np.int32).clip(-32768, 32767).astype(np.int16).view(np.uint16).astype(np.uint32) for v in (a, b)]
    np.testing.assert_array_equal(run("v_cvt_pk_i16_i32", a, b), signed[0] | signed[1] << 16)
    np.testing.assert_array_equal(run("v_cvt_pk_u16_u32", a, b), np.minimum(a, 65535) | np.minimum(b, 65535) << 16)
    x = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.25, 1e-9, np.inf, np.nan], np.float32)
    fixed = (
        np.rint(np.float32(32767) * np.nan_to_num(x.clip(-1, 1), nan=0.0))
        .astype(np.int16)
        .view(np.uint16)
        .astype(np.uint32)
    )
    np.testing.assert_array_equal(run("v_cvt_pknorm_i16_f32", x, x[::-1].copy()), fixed | fixed[::-1] << 16)
    unsigned = np.rint(np.float32(65535) * np.nan_to_num(x.clip(0, 1), nan=0.0)).astype(np.uint32)
    np.testing.assert_array_equal(run("v_cvt_pknorm_u16_f32", x, x[::-1].copy()), unsigned | unsigned[::-1] << 16)
    h = halves(x)
    np.testing.assert_array_equal(run("v_cvt_pknorm_i16_f16", h, h) & 0xFFFF, run("v_cvt_norm_i16_f16", h))
    np.testing.assert_array_equal(run("v_cvt_pknorm_u16_f16", h, h) >> 16, run("v_cvt_norm_u16_f16", h))
    for byte in range(4):
        out = run(
            "v_cvt_pk_u8_f32",
            bits32([-1.0, 201.5, 300.0, np.nan]),
            np.full(4, byte, np.uint32),
            np.full(4, 0x11223344, np.uint32),
        )
        keep = 0x11223344 & ~(0xFF << 8 * byte)
        np.testing.assert_array_equal(out, [keep | v << 8 * byte for v in (0, 202, 255, 0)])
