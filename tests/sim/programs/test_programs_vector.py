"""Element-wise programs and reductions: FlyDSL to assembly to simulated result, against numpy bit for bit."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import pytest
import torch
from flydsl.expr.typing import Int32, Int64
from program_support import STREAM, load, on_device, store

from monoc.sim import Simulator
from monoc.sim.host import simulate


@flyc.kernel(known_block_size=[256, 1, 1])
def add_tail(a: Int64, b: Int64, c: Int64, n: Int32):
    i = fx.block_idx.x * 256 + fx.thread_idx.x
    if i < n:
        store(c, i, load(a, i, fx.Float32) + load(b, i, fx.Float32))


@flyc.jit
def launch_add_tail(a: Int64, b: Int64, c: Int64, n: Int32, stream: fx.Stream = STREAM):
    add_tail(a, b, c, n).launch(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), stream=stream)


@pytest.mark.parametrize("n", [1, 255, 1000])
def test_vector_add_with_a_tail(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
    with simulate(Simulator("gfx950", ranks=1)):
        x, y = on_device(a), on_device(b)
        z = torch.full((n + 16,), -1.0, device="cuda")
        launch_add_tail(x.data_ptr(), y.data_ptr(), z.data_ptr(), n)
        result = z.cpu().numpy()
    np.testing.assert_array_equal(result[:n], a + b)
    np.testing.assert_array_equal(result[n:], -1.0)


@flyc.kernel
def scale_tiles(A: fx.Tensor, C: fx.Tensor, block: fx.Constexpr[int], width: fx.Constexpr[int]):
    tile = fx.make_layout(block * width, 1)
    atom = fx.make_copy_atom(fx.UniversalCopy(width * 32), fx.Float32)
    registers = fx.make_rmem_tensor(fx.make_layout(width, 1), fx.Float32)
    mine = [
        fx.slice(
            fx.logical_divide(
                fx.slice(fx.logical_divide(tensor, tile), (None, fx.block_idx.x)), fx.make_layout(width, 1)
            ),
            (None, fx.thread_idx.x),
        )
        for tensor in (A, C)
    ]
    fx.copy_atom_call(atom, mine[0], registers)
    value = fx.Vector(fx.memref_load_vec(registers))
    fx.memref_store_vec(value * 3.0, registers)
    fx.copy_atom_call(atom, registers, mine[1])


@flyc.jit
def launch_scale(
    A: fx.Tensor,
    C: fx.Tensor,
    tiles: Int32,
    block: fx.Constexpr[int],
    width: fx.Constexpr[int],
    stream: fx.Stream = STREAM,
):
    scale_tiles(A, C, block, width).launch(grid=(tiles, 1, 1), block=(block, 1, 1), stream=stream)


def test_tensor_arguments_and_layouts() -> None:
    a = np.random.default_rng(7).standard_normal(4 * 64 * 4, dtype=np.float32)
    with simulate(Simulator("gfx950", ranks=1)):
        x, z = on_device(a), torch.empty(a.size, device="cuda")
        launch_scale(x, z, 4, 64, 4)
        result = z.cpu().numpy()
    np.testing.assert_array_equal(result, a * np.float32(3))


@fx.struct
class WaveSums:
    sums: fx.Array[fx.Float32, 4, 16]


@flyc.kernel(known_block_size=[256, 1, 1])
def block_sum(a: Int64, out: Int64):
    tid = fx.thread_idx.x
    v = load(a, fx.block_idx.x * 256 + tid, fx.Float32)
    for step in fx.range_constexpr(6):
        v = v + fx.gpu.shuffle_xor(v, 1 << step, 64)
    shared = fx.SharedAllocator().allocate(WaveSums).peek()
    if tid % 64 == 0:
        fx.ptr_store(v, shared.sums.ptr + tid // 64)
    fx.gpu.barrier()
    if tid == 0:
        total = fx.ptr_load(shared.sums.ptr + 0)
        for wave in fx.range_constexpr(1, 4):
            total = total + fx.ptr_load(shared.sums.ptr + wave)
        store(out, fx.block_idx.x, total)


@flyc.jit
def launch_block_sum(a: Int64, out: Int64, blocks: Int32, stream: fx.Stream = STREAM):
    block_sum(a, out).launch(grid=(blocks, 1, 1), block=(256, 1, 1), stream=stream)


def _butterfly(values: np.ndarray) -> np.ndarray:
    """Sum over the last axis (64) in the order of a xor butterfly: every lane agrees."""
    lanes = np.arange(64)
    for step in range(6):
        values = values + values[..., lanes ^ (1 << step)]
    return values[..., 0]


def test_wave_and_block_reduction() -> None:
    a = np.random.default_rng(3).standard_normal((5, 4, 64), dtype=np.float32)
    with simulate(Simulator("gfx950", ranks=1)):
        x, z = on_device(a), torch.empty(5, device="cuda")
        launch_block_sum(x.data_ptr(), z.data_ptr(), 5)
        result = z.cpu().numpy()
    waves = _butterfly(a)
    np.testing.assert_array_equal(result, ((waves[:, 0] + waves[:, 1]) + waves[:, 2]) + waves[:, 3])
