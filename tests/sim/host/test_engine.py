"""Simulated host memory and the simulator's checks together: what a launch may touch follows torch's tensors."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import pytest
import torch
from flydsl.expr.typing import Int32, Int64

from monoc.sim import Simulator
from monoc.sim.errors import HangError, SimulationError
from monoc.sim.host import simulate

_STREAM = fx.Stream(None)


def _at(address, index):
    kind = fx.PointerType.get(fx.Int32.ir_type, fx.AddressSpace.Global, 4)
    return fx.inttoptr(kind, fx.Int64(address) + fx.Int64(index) * fx.Int64(4))


@flyc.kernel(known_block_size=[64, 1, 1])
def clip(x: Int64, y: Int64):
    """y = x where x > 0, by a branch: the comparison must not see never-written memory."""
    i = fx.thread_idx.x
    v = fx.Int32(fx.generic_load(_at(x, i)))
    if v > 0:
        fx.generic_store(_at(y, i), v)


@flyc.jit
def launch_clip(x: Int64, y: Int64, stream: fx.Stream = _STREAM):
    clip(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel(known_block_size=[64, 1, 1])
def wait_for(flag: Int64, value: Int32):
    v = fx.generic_load(_at(flag, 0), dtype=fx.Int32, memory_order=fx.AtomicOrdering.Monotonic, syncscope="agent")
    while v != value:
        v = fx.generic_load(_at(flag, 0), dtype=fx.Int32, memory_order=fx.AtomicOrdering.Monotonic, syncscope="agent")


@flyc.jit
def launch_wait(flag: Int64, value: Int32, stream: fx.Stream = _STREAM):
    wait_for(flag, value).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


def finding(caught: pytest.ExceptionInfo[SimulationError]):
    return caught.value.findings[0]


def test_never_written_memory_is_poison_until_the_host_writes_it() -> None:
    with simulate(Simulator()):
        x = torch.empty(64, dtype=torch.int32, device="cuda")
        y = torch.zeros(64, dtype=torch.int32, device="cuda")
        with pytest.raises(SimulationError, match="poison") as caught:
            launch_clip(x.data_ptr(), y.data_ptr())
        assert finding(caught).kind == "poison"
        x.copy_(torch.arange(-32, 32, dtype=torch.int32))
        launch_clip(x.data_ptr(), y.data_ptr())
        assert torch.equal(y.cpu(), torch.arange(-32, 32).clamp(0).int())


def test_host_memory_and_freed_memory_are_out_of_bounds() -> None:
    with simulate(Simulator()):
        x = torch.ones(64, dtype=torch.int32, device="cuda")
        host = torch.zeros(64, dtype=torch.int32)
        with pytest.raises(SimulationError) as caught:
            launch_clip(x.data_ptr(), host.data_ptr())
        assert finding(caught).kind == "bounds"
        assert finding(caught).address == host.data_ptr()
        y = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
        address = y.data_ptr()
        launch_clip(x.data_ptr(), address)
        del y
        with pytest.raises(SimulationError) as caught:
            launch_clip(x.data_ptr(), address)
        assert finding(caught).kind == "bounds"


def test_another_ranks_memory_is_out_of_bounds_unless_registered_for_all() -> None:
    addresses: dict[int, int] = {}
    with simulate(Simulator(ranks=2)) as host:
        shared = torch.ones(64, dtype=torch.int32)
        host.register(shared, name="shared")

        def body(rank: int) -> torch.Tensor:
            mine = torch.zeros(64, dtype=torch.int32, device="cuda")
            addresses[rank] = mine.data_ptr()
            host.group.barrier()
            launch_clip(shared.data_ptr(), mine.data_ptr())
            host.group.barrier()
            if rank == 1:
                with pytest.raises(SimulationError) as caught:
                    launch_clip(shared.data_ptr(), addresses[0])
                assert (finding(caught).kind, finding(caught).rank) == ("bounds", 1)
            return mine.cpu()

        for result in host.run(body):
            assert torch.equal(result, shared)


def test_a_hang_is_reported_in_every_rank_and_the_host_goes_on() -> None:
    with simulate(Simulator(ranks=2)) as host:

        def body(rank: int) -> str:
            flag = torch.zeros(1, dtype=torch.int32, device="cuda")
            launch_wait(flag.data_ptr(), 0)
            with pytest.raises(HangError) as caught:
                launch_wait(flag.data_ptr(), 7 if rank else 0)
            launch_wait(flag.data_ptr(), 0)
            return str(caught.value)

        first, second = host.run(body)
    assert first == second
    assert "rank 1" in first
    assert "sees 0x0" in first
