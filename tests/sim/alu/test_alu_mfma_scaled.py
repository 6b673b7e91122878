"""Scaled f8f6f4 MFMA: formats, layouts, scale bytes, stated order, error bound."""

import numpy as np
import pytest
from alu_support import BF6, BF8, FP4, FP6, FP8, Minifloat, f32, run, same_floats
from hypothesis import given, settings
from hypothesis import strategies as st

FORMATS: list[tuple[Minifloat, int]] = [(FP8, 8), (BF8, 8), (FP6, 6), (BF6, 6), (FP4, 4)]
SHAPES = {"16x16x128": (16, 128), "32x32x64": (32, 64)}


def element_k(width: int, size: int, k: int, lane: int, e: int) -> int:
    group = lane // size
    if width == 8:
        return 16 * group + e if e < 16 else k // 2 + 16 * group + e - 16
    return 32 * group + e


def place(codes: np.ndarray, width: int) -> np.ndarray:
    """uint32 [width, 64] registers of element codes [size, k]."""
    size, k = codes.shape
    out = np.zeros((width, 64), np.uint32)
    for lane in range(64):
        stream = sum(int(codes[lane % size, element_k(width, size, k, lane, e)]) << (e * width) for e in range(32))
        for r in range(width):
            out[r, lane] = stream >> 32 * r & 0xFFFFFFFF
    return out


def result_index(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns [registers, 64] of the result's elements."""
    reg, lane = np.meshgrid(np.arange(size * size // 64), np.arange(64), indexing="ij")
    return (
        (4 * (lane // 16) + reg, lane % 16) if size == 16 else (8 * (reg // 4) + 4 * (lane // 32) + reg % 4, lane % 32)
    )


def emulate(a: np.ndarray, b: np.ndarray, sa: np.ndarray, sb: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 [size, size]: f32 sums of 32 products, ascending k; scaled and added to c in f64; one rounding."""
    with np.errstate(all="ignore"):
        total = c.astype(np.float64)
        for block in range(a.shape[1] // 32):
            acc = np.zeros(c.shape, np.float32)
            for k in range(32 * block, 32 * block + 32):
                acc = acc + np.outer(a[:, k], b[:, k]).astype(np.float32)
            total = total + acc.astype(np.float64) * np.outer(sa[:, block], sb[:, block])
        return total.astype(np.float32)


def scale_values(codes: np.ndarray) -> np.ndarray:
    return np.where(codes == 255, np.nan, np.exp2(codes.astype(np.float64) - 127))


def scale_register(codes: np.ndarray, byte: int) -> np.ndarray:
    """uint32 [64]: the scale [size, blocks] of row r, block b in a byte of lane r + size * b."""
    lanes = codes.T.ravel().astype(np.uint32)
    return (lanes << 8 * byte) | (np.uint32(0x5A5A5A5A) & ~np.uint32(0xFF << 8 * byte))


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("format_b", range(5))
@pytest.mark.parametrize("format_a", range(5))
def test_every_pair_of_formats(shape: str, format_a: int, format_b: int) -> None:
    size, k = SHAPES[shape]
    rng = np.random.default_rng(format_a * 5 + format_b)
    (form_a, width_a), (form_b, width_b) = FORMATS[format_a], FORMATS[format_b]
    codes_a = rng.integers(0, form_a.top + 1, (size, k)) + form_a.sign * rng.integers(0, 2, (size, k))
    codes_b = rng.integers(0, form_b.top + 1, (size, k)) + form_b.sign * rng.integers(0, 2, (size, k))
    scale_a, scale_b = (rng.integers(117, 137, (size, k // 32)) for _ in range(2))
    c = rng.standard_normal((size, size)).astype(np.float32) * np.float32(1000)
    rows, cols = result_index(size)
    byte_a, byte_b = format_a % 4, (format_b + 1) % 4
    out = run(
        f"v_mfma_scale_f32_{shape}_f8f6f4",
        place(codes_a, width_a),
        place(codes_b, width_b),
        c[rows, cols].view(np.uint32),
        scale_register(scale_a, byte_a),
        scale_register(scale_b, byte_b),
        cbsz=format_a,
        blgp=format_b,
        op_sel=(byte_a & 1) | (byte_b & 1) << 1,
        op_sel_hi=(byte_a >> 1) | (byte_b >> 1) << 1,
    )
    a, b, sa, sb = form_a.values[codes_a], form_b.values[codes_b], scale_values(scale_a), scale_values(scale_b)
    want = emulate(a, b, sa, sb, c)
    same_floats(f32(out).ravel(), want[rows, cols].ravel())
    x, y = a * np.repeat(sa, 32, 1), b * np.repeat(sb, 32, 1)
    exact = x.astype(np.longdouble) @ y.T.astype(np.longdouble) + c
    assert np.all(np.abs(want - exact) <= k * 2.0**-24 * (np.abs(x) @ np.abs(y).T + np.abs(c)))
    unscaled = run(
        f"v_mfma_f32_{shape}_f8f6f4",
        place(codes_a, width_a),
        place(codes_b, width_b),
        c[rows, cols].view(np.uint32),
        cbsz=format_a,
        blgp=format_b,
    )
    ones = np.ones((size, k // 32))
    same_floats(f32(unscaled).ravel(), emulate(a, b, ones, ones, c)[rows, cols].ravel())


def test_layout_by_one_hot_operands() -> None:
    """One fp4 element of A against fp8 ones in B, each K block with a scale of its own."""
    rng = np.random.default_rng(1)
    codes_b = np.full((16, 128), 0x38)
    scale_a = rng.integers(100, 150, (16, 4))
    unit = np.full(64, 127, np.uint32)
    rows, _ = result_index(16)
    zero = np.zeros((4, 64), np.uint32)
    for row, k in [(0, 0), (3, 31), (7, 32), (15, 127), (9, 80), (12, 64)]:
        codes_a = np.zeros((16, 128), int)
        codes_a[row, k] = 2  # 1.0
        out = run(
            "v_mfma_scale_f32_16x16x128_f8f6f4",
            place(codes_a, 4),
            place(codes_b, 8),
            zero,
            scale_register(scale_a, 0),
            unit,
            cbsz=4,
        )
        want = np.where(rows == row, np.exp2(scale_a[row, k // 32] - 127.0), 0.0).astype(np.float32)
        np.testing.assert_array_equal(f32(out), want)


def test_extreme_scales_and_special_codes() -> None:
    rows, cols = result_index(16)
    codes_a, codes_b = np.full((16, 128), 0x38), np.full((16, 128), 0x38)
    codes_a[2, 5] = 0x7F  # NaN
    scale_a, scale_b = np.full((16, 4), 127), np.full((16, 4), 127)
    scale_a[0], scale_b[0] = 0, 254  # 2^-127 * 2^127
    scale_a[1, 3] = 255  # NaN
    scale_a[3] = 254
    scale_b[3] = 254  # overflows
    scale_a[4] = 0
    scale_b[4] = 0  # underflows
    c = np.zeros((4, 64), np.uint32)
    out = run(
        "v_mfma_scale_f32_16x16x128_f8f6f4",
        place(codes_a, 8),
        place(codes_b, 8),
        c,
        scale_register(scale_a, 0),
        scale_register(scale_b, 0),
    )
    want = emulate(
        FP8.values[codes_a],
        FP8.values[codes_b],
        scale_values(scale_a),
        scale_values(scale_b),
        np.zeros((16, 16), np.float32),
    )
    assert want[0, 0] == 128
    assert np.isinf(want[3, 3])
    assert want[4, 4] == 0
    same_floats(f32(out).ravel(), want[rows, cols].ravel())


@given(st.integers(0, 1 << 32), st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_random_bit_patterns(seed: int, format_a: int, format_b: int, op_sel: int, op_sel_hi: int) -> None:
    rng = np.random.default_rng(seed)
    widths = [FORMATS[f][1] for f in (format_a, format_b)]
    codes = [rng.integers(0, 1 << width, (16, 128)) for width in widths]
    c, sa, sb = rng.integers(0, 1 << 32, (4, 64), dtype=np.uint32), *rng.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
    out = run(
        "v_mfma_scale_f32_16x16x128_f8f6f4",
        place(codes[0], widths[0]),
        place(codes[1], widths[1]),
        c,
        sa,
        sb,
        cbsz=format_a,
        blgp=format_b,
        op_sel=op_sel,
        op_sel_hi=op_sel_hi,
    )
    bytes_ = [(op_sel >> n & 1) | (op_sel_hi >> n & 1) << 1 for n in (0, 1)]
    scales = [
        scale_values((s >> np.uint32(8 * byte) & 255).astype(int)).reshape(4, 16).T
        for s, byte in zip((sa, sb), bytes_, strict=True)
    ]
    rows, cols = result_index(16)
    start = np.empty((16, 16), np.float32)
    start[rows, cols] = f32(c)
    want = emulate(FORMATS[format_a][0].values[codes[0]], FORMATS[format_b][0].values[codes[1]], *scales, start)
    same_floats(f32(out).ravel(), want[rows, cols].ravel())
