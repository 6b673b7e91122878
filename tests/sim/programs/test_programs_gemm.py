"""Matrix programs: one 16x16 tile a wave, bf16, scaled fp8 and scaled fp4, against numpy bit for bit.

The emulation is the order of sums the simulator states (docs/simulator-alu.md); it must also stay within
K * 2^-24 * sum|ab| of the exact product.
"""

from collections.abc import Callable
from fractions import Fraction

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import pytest
import torch
from flydsl.expr import rocdl
from flydsl.expr.typing import Int32, Int64, T, as_ir_value
from mfma_reference import FP4_VALUES, e4m3_values, fma32, mfma_scaled_tile, mfma_tile
from program_support import STREAM, load, on_device, store

from monoc.sim import Simulator
from monoc.sim.host import simulate

FP8, FP4 = 0, 4


def tile_store(c, acc, n):
    """Result layout of 16x16 tiles: lane l, register i: row 4 (l // 16) + i, column l % 16; tiles along columns."""
    lane, tile = fx.thread_idx.x, fx.block_idx.x
    for i in fx.range_constexpr(4):
        row = lane // 16 * 4 + i
        store(c, row * n + tile * 16 + lane % 16, fx.Vector(acc)[i])


def zero():
    return fx.Vector.filled(4, 0.0, fx.Float32)


@flyc.kernel(known_block_size=[64, 1, 1])
def gemm_bf16(a: Int64, b: Int64, c: Int64, k: Int32, n: Int32):
    """c[16, n] = a[16, k] @ b[n, k].T; a lane holds 8 consecutive K of its row."""
    lane, tile = fx.thread_idx.x, fx.block_idx.x
    acc = zero()
    for k0 in range(0, k, 32):
        at = k0 + lane // 16 * 8
        left = load(a, (lane % 16) * k + at, fx.BFloat16, 8)
        right = load(b, (tile * 16 + lane % 16) * k + at, fx.BFloat16, 8)
        operands = [as_ir_value(v) for v in (left, right, acc)]
        acc = fx.Vector(rocdl.mfma_f32_16x16x32_bf16(T.vec(4, T.f32), [*operands, 0, 0, 0]))
    tile_store(c, acc, n)


@flyc.jit
def launch_bf16(a: Int64, b: Int64, c: Int64, k: Int32, n: Int32, stream: fx.Stream = STREAM):
    gemm_bf16(a, b, c, k, n).launch(grid=(n // 16, 1, 1), block=(64, 1, 1), stream=stream)


def _fp8_operand(base, row, k, k0):
    """Eight words: K bytes 16 j .. and 64 + 16 j .. of the 128 from k0, j = lane // 16."""
    j = fx.thread_idx.x // 16
    low = fx.Vector(load(base, (row * k + k0) // 4 + j * 4, fx.Int32, 4))
    high = fx.Vector(load(base, (row * k + k0) // 4 + 16 + j * 4, fx.Int32, 4))
    return fx.Vector.from_elements([low[i] for i in range(4)] + [high[i] for i in range(4)], fx.Int32)


def _fp4_operand(base, row, k, k0):
    """Four words: K 32 j .. + 32 of the 128 from k0."""
    return load(base, (row * k + k0) // 8 + fx.thread_idx.x // 16 * 4, fx.Int32, 4)


def _scale(base, row, k, k0):
    """The four E8M0 codes of a row's 128 K as one word, shifted so that byte 0 is this lane's block."""
    word = load(base, (row * k + k0) // 128, fx.Int32)
    return fx.Int32(fx.Uint32(word) >> fx.Uint32(fx.thread_idx.x // 16 * 8))


def scaled_kernel(a_format, b_format):
    @flyc.kernel(known_block_size=[64, 1, 1])
    def gemm_scaled(a: Int64, a_s: Int64, b: Int64, b_s: Int64, c: Int64, k: Int32, n: Int32):
        """c[16, n] = (a, a_s)[16, k] @ (b, b_s)[n, k].T with one E8M0 code per 32 K of a row."""
        lane, tile = fx.thread_idx.x, fx.block_idx.x
        acc = zero()
        for k0 in range(0, k, 128):
            row, column = lane % 16, tile * 16 + lane % 16
            left = _fp8_operand(a, row, k, k0) if a_format == FP8 else _fp4_operand(a, row, k, k0)
            right = _fp8_operand(b, column, k, k0) if b_format == FP8 else _fp4_operand(b, column, k, k0)
            scales = [_scale(a_s, row, k, k0), _scale(b_s, column, k, k0)]
            acc = fx.Vector(
                rocdl.mfma_scale_f32_16x16x128_f8f6f4(
                    T.vec(4, T.f32),
                    [
                        *[as_ir_value(v) for v in (left, right, acc)],
                        a_format,
                        b_format,
                        0,
                        as_ir_value(scales[0]),
                        0,
                        as_ir_value(scales[1]),
                    ],
                )
            )
        tile_store(c, acc, n)

    @flyc.jit
    def launch(a: Int64, a_s: Int64, b: Int64, b_s: Int64, c: Int64, k: Int32, n: Int32, stream: fx.Stream = STREAM):
        gemm_scaled(a, a_s, b, b_s, c, k, n).launch(grid=(n // 16, 1, 1), block=(64, 1, 1), stream=stream)

    return launch


launch_fp8 = scaled_kernel(FP8, FP8)
launch_fp8_fp4 = scaled_kernel(FP8, FP4)
launch_fp4 = scaled_kernel(FP4, FP4)


Tile = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def check(result: np.ndarray, a: np.ndarray, b: np.ndarray, step: int, tile: Tile) -> None:
    """`a` [16, K], `b` [N, K] are the exact operand values (float64)."""
    expected = np.zeros_like(result)
    for k0 in range(0, a.shape[1], step):
        expected = tile(a[:, k0 : k0 + step], b[:, k0 : k0 + step], expected)
    np.testing.assert_array_equal(result, expected)
    exact = a @ b.T
    bound = a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b).T)
    assert np.all(np.abs(result.astype(np.float64) - exact) <= bound)


def test_bf16_tiles() -> None:
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.standard_normal((rows, 96))).to(torch.bfloat16) for rows in (16, 48))
    with simulate(Simulator("gfx950", ranks=1)):
        x, y, z = a.to("cuda"), b.to("cuda"), torch.empty(16, 48, device="cuda")
        launch_bf16(x.data_ptr(), y.data_ptr(), z.data_ptr(), 96, 48)
        result = z.cpu().numpy()
    check(result, a.double().numpy(), b.double().numpy(), 32, mfma_tile)


def _operand(rng: np.random.Generator, kind: int, rows: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(packed bytes, E8M0 codes, exact values) of random codes."""
    codes = rng.integers(118, 132, (rows, k // 32), dtype=np.uint8)
    if kind == FP8:
        packed = rng.integers(0, 256, (rows, k), dtype=np.uint8)
        packed[packed & 0x7F == 0x7F] = 0
        values = e4m3_values()[packed]
    else:
        packed = rng.integers(0, 256, (rows, k // 2), dtype=np.uint8)
        values = np.stack([FP4_VALUES[packed & 15], FP4_VALUES[packed >> 4]], -1).reshape(rows, k)
    return packed, codes, values * np.repeat(2.0 ** (codes.astype(np.float64) - 127), 32, axis=1)


@pytest.mark.parametrize(
    ("launch", "kinds"), [(launch_fp8, (FP8, FP8)), (launch_fp8_fp4, (FP8, FP4)), (launch_fp4, (FP4, FP4))]
)
def test_scaled_tiles(launch, kinds: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    k, n = 256, 32
    (a, a_s, a_values), (b, b_s, b_values) = (
        _operand(rng, kind, rows, k) for kind, rows in zip(kinds, (16, n), strict=True)
    )
    with simulate(Simulator("gfx950", ranks=1)):
        tensors = [on_device(array) for array in (a, a_s, b, b_s)]
        z = torch.empty(16, n, device="cuda")
        launch(*(t.data_ptr() for t in tensors), z.data_ptr(), k, n)
        result = z.cpu().numpy()
    check(result, a_values, b_values, 128, mfma_scaled_tile)


def test_the_emulated_fma_rounds_once() -> None:
    rng = np.random.default_rng(5)
    shape = (4000,)
    a, b, c = ((rng.integers(-(2**24), 2**24, shape) * 2.0 ** rng.integers(-40, 40, shape)) for _ in range(3))
    ties = rng.integers(0, 2, shape).astype(bool)
    b[ties], c[ties] = 2.0**-60, np.sign(c[ties]) * (2.0**24 + 1)  # a far smaller product beside a tie
    c = c.astype(np.float32)
    for x, y, z, got in zip(a, b, c, fma32(a, b, c), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(float(z))
        lower, upper = (np.nextafter(got, np.float32(side)) for side in (-np.inf, np.inf))
        assert abs(exact - Fraction(float(got))) <= min(abs(exact - Fraction(float(n))) for n in (lower, upper))
