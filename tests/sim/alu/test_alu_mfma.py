"""Unscaled MFMA: layouts by one-hot operands, sums in the stated order, error bound, broadcasts, special values."""

import numpy as np
import pytest
from alu_support import BF8, FP8, bits32, f32, f64, run, same_floats, words64
from hypothesis import given, settings
from hypothesis import strategies as st
from mfma_model import Shape, decode, emulate, expand_operand, gather_result, parse, place_operand, scatter_result

from monoc.sim import _core

ALL = [m for m in _core.alu_mnemonics() if m.startswith("v_mfma_") and "f8f6f4" not in m and "f64" not in m]
FLOAT = [m for m in ALL if m.startswith("v_mfma_f32")]

ONE = {"f32": 0x3F800000, "bf16": 0x3F80, "f16": 0x3C00, "fp8": 0x38, "bf8": 0x3C, "i8": 1}


def random_codes(rng: np.random.Generator, shape: Shape, kind: str) -> np.ndarray:
    """Codes [blocks, size, k] of finite numbers of mixed magnitude."""
    where = (shape.blocks, shape.size, shape.k)
    if kind == "f32":
        return bits32(rng.standard_normal(where) * 2.0 ** rng.integers(-8, 8, where))
    if kind == "bf16":
        return bits32(rng.standard_normal(where) * 2.0 ** rng.integers(-8, 8, where)) >> 16
    if kind == "f16":
        return (
            (rng.standard_normal(where) * 2.0 ** rng.integers(-4, 4, where))
            .astype(np.float16)
            .view(np.uint16)
            .astype(np.uint32)
        )
    codes = rng.integers(0, 256, where, dtype=np.uint32)
    return codes if kind == "i8" else np.where(codes & 0x7F > {"fp8": FP8.top, "bf8": BF8.top}[kind], 0x11, codes)


@pytest.mark.parametrize("mnemonic", ALL)
def test_layout_by_one_hot_operands(mnemonic: str) -> None:
    """A with one element set times B with distinct small integers: the row and k of every register bit field."""
    shape = parse(mnemonic)
    integer = shape.a == "i8"
    zero = np.zeros((shape.blocks, shape.size, shape.size), np.int32 if integer else np.float32)
    rng = np.random.default_rng(1)
    small = {
        "f32": lambda x: bits32(x),
        "bf16": lambda x: bits32(x) >> 16,
        "f16": lambda x: x.astype(np.float16).view(np.uint16),
        "fp8": FP8.encode,
        "bf8": BF8.encode,
        "i8": lambda x: x.astype(np.int8).view(np.uint8),
    }
    numbers = rng.integers(1, 4, (shape.blocks, shape.size, shape.k)).astype(np.float64)
    codes_b = small[shape.b](numbers).astype(np.uint32)
    elements = [tuple(rng.integers(0, n) for n in (shape.blocks, shape.size, shape.k)) for _ in range(40)]
    for block, row, k in elements:
        codes_a = np.zeros((shape.blocks, shape.size, shape.k), np.uint32)
        codes_a[block, row, k] = ONE[shape.a]
        out = run(
            mnemonic,
            place_operand(codes_a, shape, shape.a),
            place_operand(codes_b, shape, shape.b),
            scatter_result(zero, shape),
        )
        want = zero.copy()
        want[block, row] = numbers[block, :, k]
        np.testing.assert_array_equal(gather_result(out, shape), want.view(np.uint32))


@pytest.mark.parametrize("mnemonic", FLOAT)
def test_sums_in_the_stated_order(mnemonic: str) -> None:
    shape = parse(mnemonic)
    rng = np.random.default_rng(2)
    for scale in (0.0, 1.0):
        codes_a, codes_b = random_codes(rng, shape, shape.a), random_codes(rng, shape, shape.b)
        c = (rng.standard_normal((shape.blocks, shape.size, shape.size)) * scale).astype(np.float32)
        registers = [
            place_operand(codes_a, shape, shape.a),
            place_operand(codes_b, shape, shape.b),
            scatter_result(c, shape),
        ]
        out = f32(gather_result(run(mnemonic, *registers), shape))
        a, b = decode(codes_a, shape.a), decode(codes_b, shape.b)
        np.testing.assert_array_equal(expand_operand(registers[0], shape, shape.a), a)
        same_floats(out.ravel(), emulate(a, b, c).ravel())
        exact = np.einsum("bik,bjk->bij", a.astype(np.longdouble), b.astype(np.longdouble)) + c
        bound = shape.k * 2.0**-24 * (np.einsum("bik,bjk->bij", np.abs(a), np.abs(b)) + np.abs(c))
        assert np.all(np.abs(out - exact) <= bound)


@pytest.mark.parametrize("mnemonic", [m for m in ALL if m.startswith("v_mfma_i32")])
def test_integers_are_exact(mnemonic: str) -> None:
    shape = parse(mnemonic)
    rng = np.random.default_rng(3)
    codes = [random_codes(rng, shape, "i8") for _ in range(2)]
    c = rng.integers(-(1 << 31), 1 << 31, (shape.blocks, shape.size, shape.size)).astype(np.int32)
    out = gather_result(run(mnemonic, *(place_operand(x, shape, "i8") for x in codes), scatter_result(c, shape)), shape)
    a, b = (decode(x, "i8").astype(np.int64) for x in codes)
    want = (np.einsum("bik,bjk->bij", a, b) + c).astype(np.uint64).astype(np.uint32)
    np.testing.assert_array_equal(out, want)


def test_special_values_and_denormals() -> None:
    shape = parse("v_mfma_f32_16x16x32_bf16")
    a, b = (np.zeros((1, 16, 32)) for _ in range(2))
    a[0, 0, 0], b[0, 0, 0] = np.inf, 0.0  # inf * 0
    a[0, 1, 1], b[0, 1, 1] = np.inf, 1.0
    a[0, 2, 2], b[0, 2, 2] = np.nan, 1.0
    a[0, 3, 3], b[0, 3, 3] = 2.0**-130, 1.0  # a denormal product of a denormal operand
    a[0, 4, 4:6], b[0, 4, 4:6] = 2.0**127, [2.0, -2.0]  # leaves the range and comes back: fused, so infinity stays
    c = np.zeros((1, 16, 16), np.float32)
    codes = [bits32(x) >> 16 for x in (a, b)]
    out = f32(
        gather_result(
            run(
                "v_mfma_f32_16x16x32_bf16", *(place_operand(x, shape, "bf16") for x in codes), scatter_result(c, shape)
            ),
            shape,
        )
    )
    same_floats(out.ravel(), emulate(*(decode(x, "bf16") for x in codes), c).ravel())
    assert out[0, 3, 3] == 2.0**-130


def test_broadcast_of_blocks_and_lane_permutations() -> None:
    mnemonic = "v_mfma_f32_16x16x4_4b_f16"
    shape = parse(mnemonic)
    rng = np.random.default_rng(4)
    codes_a, codes_b = random_codes(rng, shape, "f16"), random_codes(rng, shape, "f16")
    registers = [place_operand(codes_a, shape, "f16"), place_operand(codes_b, shape, "f16")]
    c = np.zeros((4, 16, 16), np.float32)
    a, b = decode(codes_a, "f16"), decode(codes_b, "f16")
    for cbsz, abid, blocks in ((1, 0, [0, 0, 2, 2]), (1, 1, [1, 1, 3, 3]), (2, 0, [0] * 4), (2, 3, [3] * 4)):
        out = run(mnemonic, *registers, scatter_result(c, shape), cbsz=cbsz, abid=abid)
        same_floats(f32(gather_result(out, shape)).ravel(), emulate(a[blocks], b, c).ravel())
    for blgp, blocks in (
        (1, [0, 1, 0, 1]),
        (2, [2, 3, 2, 3]),
        (3, [1, 2, 3, 0]),
        (4, [0] * 4),
        (5, [1] * 4),
        (6, [2] * 4),
        (7, [3] * 4),
    ):
        out = run(mnemonic, *registers, scatter_result(c, shape), blgp=blgp)
        same_floats(f32(gather_result(out, shape)).ravel(), emulate(a, b[blocks], c).ravel())


def test_double_precision() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-9, 10, (16, 4)).astype(np.float64), rng.integers(-9, 10, (4, 16)).astype(np.float64)
    c = rng.integers(-99, 100, (16, 16)).astype(np.float64)
    lanes = np.arange(64)
    place_c = np.concatenate([words64(c[4 * i + lanes // 16, lanes % 16]) for i in range(4)])
    for blgp, signs in ((0, (1, 1, 1)), (1, (-1, 1, 1)), (2, (1, -1, 1)), (4, (1, 1, -1))):
        out = run(
            "v_mfma_f64_16x16x4_f64",
            words64(a[lanes % 16, lanes // 16]),
            words64(b[lanes // 16, lanes % 16]),
            place_c,
            blgp=blgp,
        )
        want = (signs[0] * a) @ (signs[1] * b) + signs[2] * c
        for i in range(4):
            np.testing.assert_array_equal(f64(out[2 * i : 2 * i + 2]), want[4 * i + lanes // 16, lanes % 16])
    a4, b4 = rng.integers(-9, 10, (4, 4, 4)).astype(np.float64), rng.integers(-9, 10, (4, 4, 4)).astype(np.float64)
    block, row, k = lanes // 4 % 4, lanes % 4, lanes // 16
    out = run("v_mfma_f64_4x4x4_4b_f64", words64(a4[block, row, k]), words64(b4[block, k, row]), words64(np.ones(64)))
    np.testing.assert_array_equal(f64(out), (a4 @ b4 + 1)[block, k, row])


@given(
    st.integers(0, 1 << 32),
    st.sampled_from(["v_mfma_f32_16x16x32_bf16", "v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x32_fp8_bf8"]),
)
@settings(max_examples=20, deadline=None)
def test_random_bit_patterns(seed: int, mnemonic: str) -> None:
    """Any bits, infinities and NaN among them."""
    shape = parse(mnemonic)
    rng = np.random.default_rng(seed)
    counts = _core.alu_describe(mnemonic)["src_dwords"]
    a, b, c = (rng.integers(0, 1 << 32, (n, 64), dtype=np.uint32) for n in counts)
    out = f32(gather_result(run(mnemonic, a, b, c), shape))
    want = emulate(expand_operand(a, shape, shape.a), expand_operand(b, shape, shape.b), f32(gather_result(c, shape)))
    same_floats(out.ravel(), want.ravel())
