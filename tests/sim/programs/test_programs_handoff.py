"""Programs that hand work over: a tagged-pair mailbox between two CTAs, a push of pairs to another rank."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import torch
from flydsl.expr.typing import Int32, Int64
from program_support import STREAM, get, load, put, store

from monoc.sim import Simulator
from monoc.sim.host import simulate


@flyc.kernel(known_block_size=[64, 1, 1])
def mailbox(a: Int64, box: Int64, out: Int64, tag: Int32):
    """CTA 1 sends a[i] + 1, CTA 0 (scheduled first) waits for it and stores the double."""
    lane = fx.thread_idx.x
    if fx.block_idx.x == 1:
        put(box, lane, load(a, lane) + 1, tag, "agent")
    else:
        store(out, lane, get(box, lane, tag, "agent") * 2)


@flyc.jit
def launch_mailbox(a: Int64, box: Int64, out: Int64, tag: Int32, stream: fx.Stream = STREAM):
    mailbox(a, box, out, tag).launch(grid=(2, 1, 1), block=(64, 1, 1), stream=stream)


def test_two_cta_mailbox_over_steps() -> None:
    with simulate(Simulator("gfx950", ranks=1)):
        box = torch.zeros(64, dtype=torch.int64, device="cuda")
        for step in range(3):
            a = torch.arange(64, dtype=torch.int32, device="cuda") + 100 * step
            out = torch.empty(64, dtype=torch.int32, device="cuda")
            launch_mailbox(a.data_ptr(), box.data_ptr(), out.data_ptr(), step + 1)
            np.testing.assert_array_equal(out.cpu().numpy(), (np.arange(64) + 100 * step + 1) * 2)


@flyc.kernel(known_block_size=[64, 1, 1])
def push_sum(a: Int64, own: Int64, peers: Int64, out: Int64, rank: Int32, tag: Int32):
    """Every rank pushes a[64] into region `rank` of both buffers, then sums what it received, in rank order."""
    lane = fx.thread_idx.x
    value = load(a, lane)
    for peer in fx.range_constexpr(2):
        put(load(peers, peer, fx.Int64), rank * 64 + lane, value, tag, "")
    total = get(own, lane, tag, "")
    store(out, lane, total * 3 + get(own, 64 + lane, tag, ""))


@flyc.jit
def launch_push(a: Int64, own: Int64, peers: Int64, out: Int64, rank: Int32, tag: Int32, stream: fx.Stream = STREAM):
    push_sum(a, own, peers, out, rank, tag).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


def test_two_rank_push_through_the_peer_heap() -> None:
    with simulate(Simulator("gfx950", ranks=2)) as host:
        from aiter.ops.flydsl.quick_allreduce_int4_ipc import UncachedIpcHeap as Heap

        class Bytes:
            def __init__(self, address: int, nbytes: int) -> None:
                self.__cuda_array_interface__ = {
                    "shape": (nbytes,),
                    "typestr": "|u1",
                    "data": (address, False),
                    "version": 3,
                }

        def body(rank: int) -> list[np.ndarray]:
            own = Heap.alloc_uncached(2 * 64 * 8)
            torch.as_tensor(Bytes(own, 2 * 64 * 8), device="cuda").zero_()
            handles = Heap.gather_object_list_via_broadcast(None, Heap.get_mem_handle_bytes(own))
            addresses = [own if r == rank else Heap.open_mem_handle(h) for r, h in enumerate(handles)]
            peers = torch.tensor(addresses, dtype=torch.int64, device="cuda")
            results = []
            for tag in range(1, 4):
                a = torch.arange(64, dtype=torch.int32, device="cuda") * (rank + 1) + tag
                out = torch.empty(64, dtype=torch.int32, device="cuda")
                launch_push(a.data_ptr(), own, peers.data_ptr(), out.data_ptr(), rank, tag)
                results.append(out.cpu().numpy())
            return results

        ranks = host.run(body)
        assert host.traces == 1
    for tag in range(1, 4):
        lanes = np.arange(64)
        expected = (lanes + tag) * 3 + (lanes * 2 + tag)
        np.testing.assert_array_equal(ranks[0][tag - 1], expected)
        np.testing.assert_array_equal(ranks[1][tag - 1], expected)
