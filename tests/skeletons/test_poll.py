"""A wave that polls one pair with all its lanes waits for every one of them."""

from __future__ import annotations

import flydsl.compiler as flyc
import flydsl.expr as fx
import pytest
import torch
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Int32, Int64

from monoc.device.handoff import PairRegion
from monoc.device.memory import store
from monoc.sim import Simulator
from monoc.sim.handoff import Kind, Manifest, Region
from monoc.sim.host import simulate

READERS = 6
STREAM = fx.Stream(None)


@flyc.kernel(known_block_size=[64, 1, 1])
def hand_over(box: Int64, out: Int64, tag: Int32, words: fx.Constexpr[int]):
    """CTA 0 puts ``words`` words, each 1000 tag + its index; every lane of CTAs 1 .. reads all of them."""
    region = PairRegion(box, tag)
    if fx.block_idx.x == 0:
        if fx.thread_idx.x == 0:
            region.put(0, [fx.Int32(tag) * 1000 + e for e in range(words)])
    else:
        (got,) = region.get([(fx.Int32(0), words)])
        for e in range_constexpr(words):
            at = ((fx.block_idx.x - 1) * words + e) * 64 + fx.thread_idx.x
            store(out, at, got[e])


@flyc.jit
def launch(box: Int64, out: Int64, tag: Int32, words: fx.Constexpr[int], stream: fx.Stream = STREAM):
    hand_over(box, out, tag, words).launch(grid=(1 + READERS, 1, 1), block=(64, 1, 1), stream=stream)


@pytest.mark.parametrize("words", [1, 2, 3, 5])
def test_parts_of_a_wave_see_a_store_at_different_times(words: int) -> None:
    """The words an earlier step left there carry another tag: no lane may take them."""
    simulator = Simulator(ranks=1, seed=1)
    with simulate(simulator) as host:
        box = torch.zeros(words, dtype=torch.int64)
        host.register(box)
        region = Region("box", box.data_ptr(), 8 * words, Kind.TAG, reads=READERS)
        simulator.set_manifest(Manifest((region,)), late=True)

        def body(_: int) -> None:
            out = torch.zeros(READERS, words, 64, dtype=torch.int32, device="cuda")
            for tag in range(1, 6):
                launch(box.data_ptr(), out.data_ptr(), tag, words)
                want = 1000 * tag + torch.arange(words, dtype=torch.int32)
                assert torch.equal(out.cpu(), want[None, :, None].expand(READERS, words, 64))

        host.run(body)
