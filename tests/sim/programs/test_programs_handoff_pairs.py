"""Hand-off checks of tagged pairs: scope per region, who may write, whole pairs, unread values, other ranks."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import pytest
import torch
from flydsl.expr.typing import Int32, Int64
from program_support import STREAM, get, pointer, put, store

from monoc.sim import Simulator
from monoc.sim.errors import Finding, SimulationError
from monoc.sim.handoff import Kind, Manifest, Region, Scope
from monoc.sim.host import simulate


@flyc.kernel(known_block_size=[64, 1, 1])
def send(box: Int64, out: Int64, tag: Int32, scope: fx.Constexpr[str], readers: fx.Constexpr[int]):
    """CTA 0 sends 64 pairs; CTAs 1..readers take them."""
    lane = fx.thread_idx.x
    if fx.block_idx.x == 0:
        if fx.const_expr(scope == "halves"):
            for half in fx.range_constexpr(2):
                word = fx.Int32(pointer_word(lane, half, tag))
                fx.generic_store(
                    pointer(box, lane * 2 + half, fx.Int32),
                    word,
                    memory_order=fx.AtomicOrdering.Monotonic,
                    syncscope="agent",
                )
        else:
            put(box, lane, lane, tag, scope)
    elif fx.block_idx.x <= readers:
        store(out, fx.block_idx.x * 64 + lane, get(box, lane, tag, "agent" if scope == "halves" else scope))


def pointer_word(lane, half, tag):
    return tag if half else lane


@flyc.jit
def launch_send(
    box: Int64,
    out: Int64,
    tag: Int32,
    scope: fx.Constexpr[str],
    readers: fx.Constexpr[int],
    stream: fx.Stream = STREAM,
):
    send(box, out, tag, scope, readers).launch(grid=(3, 1, 1), block=(64, 1, 1), stream=stream)


def run(scope: str, readers: int, *, declared: Scope = Scope.DEVICE, reads: int = 1, owner: int = 0) -> None:
    """Three steps; rank 0 sends, into a box of rank `owner`."""
    simulator = Simulator(ranks=2)
    with simulate(simulator) as host:
        box = torch.zeros(64, dtype=torch.int64)
        host.register(box)
        region = Region("box", box.data_ptr(), 512, Kind.TAG, declared, rank=owner, reads=reads)
        simulator.set_manifest(Manifest((region,)))

        def body(rank: int) -> None:
            if rank == 0:
                out = torch.zeros(3 * 64, dtype=torch.int32, device="cuda")
                for tag in range(1, 4):
                    launch_send(box.data_ptr(), out.data_ptr(), tag, scope, readers)

        host.run(body)


def found(*arguments: object, **keywords: object) -> Finding:
    with pytest.raises(SimulationError) as caught:
        run(*arguments, **keywords)  # type: ignore[arg-type]
    finding = caught.value.findings[0]
    assert finding.kind == "handoff"
    assert finding.details["region"] == "box"
    return finding


def test_right_hand_offs() -> None:
    run("agent", 1)
    run("agent", 2, reads=2)
    run("agent", 0, reads=0)
    run("", 2, declared=Scope.SYSTEM, reads=2)


def test_device_scope_is_too_little_for_a_peer_region() -> None:
    finding = found("agent", 1, declared=Scope.SYSTEM)
    assert finding.details["violation"] == "scope"
    assert "sc0 sc1" in finding.message


def test_two_halves_are_no_pair() -> None:
    assert found("halves", 1).details["violation"] == "role"


@pytest.mark.parametrize(("readers", "reads"), [(0, 1), (1, 2)])
def test_a_pair_is_kept_until_its_readers_have_it(readers: int, reads: int) -> None:
    finding = found("agent", readers, reads=reads)
    assert finding.details["violation"] == "unread"
    assert f"{readers} of {reads} reads" in finding.message
    assert finding.cta == 0


def test_another_rank_may_not_write_a_device_region() -> None:
    finding = found("agent", 0, owner=1)
    assert finding.details["violation"] == "role"
    assert "rank 0 may not write" in finding.message
