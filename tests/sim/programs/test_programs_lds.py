"""LDS programs: a transpose through padded LDS, histograms with LDS and global atomics."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import pytest
import torch
from flydsl.expr.typing import Int32, Int64
from program_support import STREAM, load, on_device, pointer, store

from monoc.sim import Simulator
from monoc.sim.host import simulate

TILE = 32


@fx.struct
class Tile:
    data: fx.Array[fx.Int32, TILE * (TILE + 1), 16]


@flyc.kernel(known_block_size=[256, 1, 1])
def transpose(a: Int64, out: Int64, rows: Int32, columns: Int32):
    """out[columns, rows] = a[rows, columns].T, a 32x32 tile a CTA; LDS rows are a word longer (no bank conflicts)."""
    tid = fx.thread_idx.x
    x, y = tid % TILE, tid // TILE
    r0, c0 = fx.block_idx.y * TILE, fx.block_idx.x * TILE
    lds = fx.SharedAllocator().allocate(Tile).peek()
    for step in fx.range_constexpr(TILE // 8):
        fx.ptr_store(load(a, (r0 + y + 8 * step) * columns + c0 + x), lds.data.ptr + ((y + 8 * step) * (TILE + 1) + x))
    fx.gpu.barrier()
    for step in fx.range_constexpr(TILE // 8):
        store(out, (c0 + y + 8 * step) * rows + r0 + x, fx.ptr_load(lds.data.ptr + (x * (TILE + 1) + y + 8 * step)))


@flyc.jit
def launch_transpose(a: Int64, out: Int64, rows: Int32, columns: Int32, stream: fx.Stream = STREAM):
    grid = (columns // TILE, rows // TILE, 1)
    transpose(a, out, rows, columns).launch(grid=grid, block=(256, 1, 1), stream=stream)


def test_transpose_through_lds() -> None:
    a = np.random.default_rng(0).integers(0, 2**31, (64, 96), dtype=np.int32)
    with simulate(Simulator("gfx950", ranks=1)):
        x, z = on_device(a), torch.empty(96, 64, dtype=torch.int32, device="cuda")
        launch_transpose(x.data_ptr(), z.data_ptr(), 64, 96)
        result = z.cpu().numpy()
    np.testing.assert_array_equal(result, a.T)


@fx.struct
class Bins:
    counts: fx.Array[fx.Int32, 64, 16]


@flyc.kernel(known_block_size=[256, 1, 1])
def histogram(a: Int64, out: Int64, highest: Int64):
    """Counts of a's values 0..63: LDS atomics inside a CTA, global ones between CTAs; and their maximum."""
    tid = fx.thread_idx.x
    lds = fx.SharedAllocator().allocate(Bins).peek()
    if tid < 64:
        fx.ptr_store(fx.Int32(0), lds.counts.ptr + tid)
    fx.gpu.barrier()
    v = load(a, fx.block_idx.x * 256 + tid)
    fx.atomic_add(lds.counts.ptr + v, fx.Int32(1), syncscope="workgroup")
    fx.gpu.barrier()
    if tid < 64:
        fx.atomic_add(pointer(out, tid, fx.Int32), fx.ptr_load(lds.counts.ptr + tid), syncscope="agent")
    fx.atomic_max(pointer(highest, 0, fx.Int32), v, syncscope="agent")


@flyc.jit
def launch_histogram(a: Int64, out: Int64, highest: Int64, blocks: Int32, stream: fx.Stream = STREAM):
    histogram(a, out, highest).launch(grid=(blocks, 1, 1), block=(256, 1, 1), stream=stream)


@pytest.mark.parametrize("seed", [0, 1])
def test_atomics_in_lds_and_memory(seed: int) -> None:
    a = np.random.default_rng(seed).integers(0, 63, 16 * 256, dtype=np.int32)
    with simulate(Simulator("gfx950", ranks=1, seed=seed)):
        x = on_device(a)
        bins = torch.zeros(64, dtype=torch.int32, device="cuda")
        highest = torch.full((1,), -5, dtype=torch.int32, device="cuda")
        launch_histogram(x.data_ptr(), bins.data_ptr(), highest.data_ptr(), 16)
        counts, top = bins.cpu().numpy(), int(highest.item())
    np.testing.assert_array_equal(counts, np.bincount(a, minlength=64))
    assert top == a.max()


@flyc.kernel(known_block_size=[64, 1, 1])
def tickets(counter: Int64, out: Int64):
    """Every lane takes a number from one counter: each number once."""
    mine = fx.atomic_add(pointer(counter, 0, fx.Int32), fx.Int32(1), syncscope="agent")
    store(out, fx.block_idx.x * 64 + fx.thread_idx.x, fx.Int32(mine))


@flyc.jit
def launch_tickets(counter: Int64, out: Int64, blocks: Int32, stream: fx.Stream = STREAM):
    tickets(counter, out).launch(grid=(blocks, 1, 1), block=(64, 1, 1), stream=stream)


def test_returning_atomics_give_each_ticket_once() -> None:
    with simulate(Simulator("gfx950", ranks=1)):
        counter = torch.zeros(1, dtype=torch.int32, device="cuda")
        out = torch.empty(8 * 64, dtype=torch.int32, device="cuda")
        launch_tickets(counter.data_ptr(), out.data_ptr(), 8)
        taken = np.sort(out.cpu().numpy())
    np.testing.assert_array_equal(taken, np.arange(8 * 64))
