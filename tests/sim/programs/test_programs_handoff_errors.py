"""Seeded hand-off errors: a flag hand-off that is right, and one with each mistake the checker knows."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import pytest
import torch
from flydsl.expr import rocdl
from flydsl.expr.typing import Int32, Int64
from program_support import STREAM, get, load, pointer, put, store

from monoc.sim import Simulator
from monoc.sim.errors import SimulationError
from monoc.sim.handoff import Kind, Manifest, Region
from monoc.sim.host import simulate


def scoped_store(address, index, value, scope):
    fx.generic_store(
        pointer(address, index, fx.Int32), value, memory_order=fx.AtomicOrdering.Monotonic, syncscope=scope
    )


@flyc.kernel(known_block_size=[64, 1, 1])
def hand_over(data: Int64, flags: Int64, gate: Int64, out: Int64, tag: Int32, mistake: fx.Constexpr[str]):
    """CTA 1 writes 64 words, drains, raises flag 0; CTA 0 waits for it, reads the words and stores them to `out`."""
    lane = fx.thread_idx.x
    value = lane * 3 + tag
    if fx.block_idx.x == 1:
        if fx.const_expr(mistake == "scope"):
            store(data, lane, value)
        else:
            scoped_store(data, lane, value, "agent")
        if fx.const_expr(mistake == "unread"):
            scoped_store(data, lane, value + 1, "agent")
        if fx.const_expr(mistake != "undrained"):
            rocdl.s_waitcnt(vmcnt=0)
        rocdl.s_barrier()
        if lane == 0:
            put(flags, 0, fx.Int32(1), tag, "agent")
        put(gate, lane, value, tag, "agent")
    else:
        if fx.const_expr(mistake == "unseen"):
            store(out, lane, get(gate, lane, tag, "agent"))
        else:
            store(out, lane, get(flags, 0, tag, "agent"))
        fx.gpu.barrier()
        store(out, lane, load(data, lane))


@flyc.jit
def launch_hand_over(
    data: Int64,
    flags: Int64,
    gate: Int64,
    out: Int64,
    tag: Int32,
    mistake: fx.Constexpr[str],
    stream: fx.Stream = STREAM,
):
    hand_over(data, flags, gate, out, tag, mistake).launch(grid=(2, 1, 1), block=(64, 1, 1), stream=stream)


def run(mistake: str, writer: int = 1, steps: int = 3, simulator: Simulator | None = None) -> list[np.ndarray]:
    simulator = simulator or Simulator("gfx950", ranks=1)
    with simulate(simulator):
        data = torch.zeros(64, dtype=torch.int32, device="cuda")
        flags = torch.zeros(1, dtype=torch.int64, device="cuda")
        gate = torch.zeros(64, dtype=torch.int64, device="cuda")
        out = torch.zeros(64, dtype=torch.int32, device="cuda")
        simulator.set_manifest(
            Manifest(
                (
                    Region("ready", flags.data_ptr(), 8, Kind.FLAG, writers=(1,), readers=(0,), reads=0),
                    Region("gate", gate.data_ptr(), 512, Kind.TAG, writers=(1,), readers=(0,), reads=0),
                    Region(
                        "words",
                        data.data_ptr(),
                        256,
                        Kind.PLAIN,
                        writers=(writer,),
                        readers=(0,),
                        flag="ready",
                        unit_bytes=256,
                    ),
                )
            )
        )
        results = []
        for tag in range(1, steps + 1):
            launch_hand_over(data.data_ptr(), flags.data_ptr(), gate.data_ptr(), out.data_ptr(), tag, mistake)
            results.append(out.cpu().numpy())
        return results


def test_the_right_hand_off_has_no_finding() -> None:
    simulator = Simulator("gfx950", ranks=1)
    for step, result in enumerate(run("none", simulator=simulator), 1):
        np.testing.assert_array_equal(result, np.arange(64) * 3 + step)
    traffic = simulator.region_traffic()
    assert traffic[0, "words"] == (3 * 64, 3 * 64)
    assert traffic[0, "ready"] == (3, 3)
    assert traffic[0, "gate"] == (3 * 64, 0)  # nobody takes these: the edge does not occur


@pytest.mark.parametrize("mistake", ["scope", "undrained", "unseen", "unread"])
def test_each_mistake_is_found(mistake: str) -> None:
    with pytest.raises(SimulationError) as caught:
        run(mistake)
    finding = caught.value.findings[0]
    assert finding.kind == "handoff"
    assert finding.details["violation"] == mistake
    assert finding.details["region"] in ("words", "ready")
    assert "hand_over" in finding.kernel


def test_a_wrong_writer_is_found() -> None:
    with pytest.raises(SimulationError) as caught:
        run("none", writer=0)
    finding = caught.value.findings[0]
    assert finding.details == {**finding.details, "violation": "role", "region": "words"}
    assert finding.cta == 1
