"""Host code under `simulate`: what reaches the engine, with an engine that only records."""

import ctypes
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import flydsl.compiler as flyc
import flydsl.expr as fx
import pytest
import torch
from flydsl.expr.typing import Int32, Int64

from monoc.build.device import DeviceLaunch
from monoc.sim.errors import UsageError
from monoc.sim.host import DeviceMemory, simulate
from monoc.sim.host.sharing import build_key

_STREAM = fx.Stream(None)


class Recorder:
    """An engine that keeps the launches and what of the memory changed before each."""

    arch = "gfx950"

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.meetings: list[dict[int, DeviceLaunch]] = []
        self.memory: DeviceMemory | None = None

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> int:
        self.meetings.append(dict(launches))
        self.memory = memory
        return len(self.meetings)


def make_launch():
    @flyc.kernel(known_block_size=[64, 1, 1])
    def nothing(a: Int64, n: Int32):
        pass

    @flyc.jit
    def launch(a: Int64, n: Int32, stream: fx.Stream = _STREAM):
        nothing(a, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    return launch


def test_direct_calls_are_traced_once_and_launched_each_time() -> None:
    engine, launch = Recorder(), make_launch()
    with simulate(engine) as host:
        x = torch.zeros(8, device="cuda")
        for n in (64, 65, 129):
            launch(x.data_ptr(), n, stream=torch.cuda.current_stream())
    assert [m[0].grid[0] for m in engine.meetings] == [1, 2, 3]
    assert all(m[0].values[0] == x.data_ptr() for m in engine.meetings)
    assert host.traces == 1
    assert host.reports == [1, 2, 3]


def test_compile_launches_at_once_and_its_result_again() -> None:
    engine, launch = Recorder(), make_launch()
    with simulate(engine):
        compiled = flyc.compile(launch, 0x1000, 64)
        compiled(0x2000, 128, None)
    assert [m[0].values for m in engine.meetings] == [(0x1000, 64), (0x2000, 128)]


def test_ranks_launch_together_with_one_trace() -> None:
    engine, launch = Recorder(ranks=4), make_launch()
    with simulate(engine) as host:

        def body(rank: int) -> int:
            mine = torch.full((4,), rank, device="cuda", dtype=torch.int32)
            for step in range(3):
                launch(mine.data_ptr(), 64 * (step + 1))
            assert mine.device == torch.device("cuda", rank)
            return int(mine.sum())

        assert host.run(body) == [0, 4, 8, 12]
        assert host.traces == 1
    assert [sorted(m) for m in engine.meetings] == [[0, 1, 2, 3]] * 3
    assert len({launch.values[0] for launch in engine.meetings[0].values()}) == 4


@dataclass(frozen=True)
class Build:
    tokens: int
    name: str = "x"


def make_build(build: Build, unknown: object = None):
    @fx.struct
    class Shared:
        words: fx.Array[fx.Int32, 64]

    def offset(value):
        return value + build.tokens

    @flyc.kernel(name=f"built_{build.tokens}", known_block_size=[64, 1, 1])
    def kernel(a: Int64):
        _ = unknown
        lds = fx.SharedAllocator().allocate(Shared).peek()
        if fx.thread_idx.x > build.tokens:
            fx.ptr_store(offset(fx.thread_idx.x), lds.words.ptr + fx.thread_idx.x)

    @flyc.jit
    def launch(a: Int64, stream: fx.Stream = _STREAM):
        kernel(a).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    return launch


def test_ranks_that_build_for_themselves_share_one_trace() -> None:
    engine = Recorder(ranks=4)
    with simulate(engine) as host:

        def body(rank: int) -> None:
            for tokens in (1, 2):
                compiled = flyc.compile(make_build(Build(tokens)), 0x1000)
                compiled(0x2000 + rank, None)

        host.run(body)
    assert host.traces == 2
    assert [m[3].symbol.startswith("built_1") for m in engine.meetings] == [True, True, False, False]


def test_placeholders_compile_without_launching() -> None:
    engine = Recorder(ranks=2)

    def make():
        @flyc.kernel(known_block_size=[64, 1, 1])
        def nothing(epoch: Int64, a: Int64):
            pass

        @flyc.jit
        def launch(epoch: fx.Pointer, a: Int64, stream: fx.Stream = _STREAM):
            nothing(fx.Int64(fx.ptrtoint(epoch)), a).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

        return launch

    with simulate(engine) as host:

        def body(rank: int) -> None:
            compiled = flyc.compile(make(), flyc.from_c_void_p(fx.Int32, None), 0, fx.Stream(None))
            host.group.barrier()
            assert engine.meetings == []
            host.group.barrier()
            compiled(0x1000, rank, torch.cuda.current_stream())

        host.run(body)
        assert host.traces == 1
    assert [m[1].values for m in engine.meetings] == [(0x1000, 1)]


def test_what_makes_builds_differ() -> None:
    key = build_key(make_build(Build(1)))
    assert build_key(make_build(Build(1))) == key
    assert build_key(make_build(Build(2))) != key
    assert build_key(make_build(Build(1, "y"))) != key
    one, other = object(), object()
    assert build_key(make_build(Build(1), one)) == build_key(make_build(Build(1), one))
    assert build_key(make_build(Build(1), one)) != build_key(make_build(Build(1), other))
    hinted = make_build(Build(1))
    flyc.compile[{"waves_per_eu": 2}](hinted)
    assert build_key(hinted) != key


def test_a_rank_that_ends_early_is_not_waited_for() -> None:
    engine, launch = Recorder(ranks=2), make_launch()
    with simulate(engine) as host:
        host.run(lambda rank: launch(0x1000, 64) if rank == 1 else None)
    assert [sorted(m) for m in engine.meetings] == [[1]]


def test_diverging_ranks_are_an_error_on_all() -> None:
    with simulate(Recorder(ranks=2)) as host:

        def body(rank: int) -> None:
            if rank == 0:
                host.all_gather("handles", 1)
            else:
                make_launch()(0x1000, 64)

        with pytest.raises(UsageError, match=r"rank 0: handles, rank 1: launch"):
            host.run(body)


def test_an_error_of_one_rank_comes_out_and_frees_the_others() -> None:
    with simulate(Recorder(ranks=2)) as host:

        def body(rank: int) -> None:
            if rank == 1:
                raise KeyError("broken")
            make_launch()(0x1000, 64)

        with pytest.raises(KeyError, match="broken"):
            host.run(body)


def test_launch_of_several_ranks_outside_run_is_refused() -> None:
    with simulate(Recorder(ranks=2)), pytest.raises(UsageError, match=r"host\.run"):
        make_launch()(0x1000, 64)


def test_device_tensors_and_their_memory() -> None:
    with simulate(Recorder()) as host:
        x = torch.zeros(16, device="cuda")
        y = torch.empty_like(x)
        host_side = torch.ones(16)
        assert x.is_cuda
        assert not host_side.is_cuda
        assert x.device.type == y.device.type == (x + 1).device.type == "cuda"
        assert x[3:5].is_cuda
        moved = host_side.to("cuda")
        assert moved.is_cuda
        assert moved.data_ptr() != host_side.data_ptr()
        assert not moved.cpu().is_cuda
        assert not host_side.to(torch.float64).is_cuda
        assert torch.as_tensor([1, 2], device="cuda").is_cuda
        fresh, dead = host.memory.changes()
        assert {a.address for a in fresh} >= {x.data_ptr(), y.data_ptr(), moved.data_ptr()}
        assert dead == []
        written = {a.address: spans for a, spans in host.memory.take_written()}
        assert written[x.data_ptr()] == [(0, 64)]
        assert y.data_ptr() not in written
        y[2:4] = 1
        x.add_(1)
        assert {a.address: s for a, s in host.memory.take_written()} == {
            y.data_ptr(): [(8, 16)],
            x.data_ptr(): [(0, 64)],
        }
        address = y.data_ptr()
        del y
        assert address in {a.address for a in host.memory.changes()[1]}
    assert not x.is_cuda


def test_torch_is_restored() -> None:
    with simulate(Recorder()):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_properties("cuda").gcnArchName.startswith("gfx950")
        assert torch.cuda.get_device_properties(0).multi_processor_count == 256
        assert not torch.cuda.is_current_stream_capturing()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        end.record(torch.cuda.current_stream())
        assert start.elapsed_time(end) >= 0
    assert not torch.cuda.is_available()
    with pytest.raises(ModuleNotFoundError):
        import aiter.ops.flydsl.quick_allreduce_int4_ipc  # noqa: F401


def test_peer_heap() -> None:
    with simulate(Recorder(ranks=2)) as host:
        from aiter.ops.flydsl.quick_allreduce_int4_ipc import UncachedIpcHeap as Heap

        barrier = threading.Barrier(2)

        class Bytes:
            def __init__(self, address: int, nbytes: int) -> None:
                self.__cuda_array_interface__ = {
                    "shape": (nbytes,),
                    "typestr": "|u1",
                    "data": (address, False),
                    "version": 3,
                }

        def body(rank: int) -> None:
            own = Heap.alloc_uncached(64)
            assert own % 256 == 0
            torch.as_tensor(Bytes(own, 64), device="cuda").fill_(rank + 1)
            handles = Heap.gather_object_list_via_broadcast(None, Heap.get_mem_handle_bytes(own))
            peer = Heap.open_mem_handle(handles[1 - rank])
            assert ctypes.string_at(peer, 64) == bytes([2 - rank]) * 64
            with pytest.raises(RuntimeError, match="its own memory"):
                Heap.open_mem_handle(handles[rank])
            Heap.close_mem_handle(peer)
            with pytest.raises(RuntimeError, match="not open"):
                Heap.close_mem_handle(peer)
            barrier.wait()
            Heap.free_device_mem(own)
            barrier.wait()
            with pytest.raises(RuntimeError, match="no live allocation"):
                Heap.open_mem_handle(handles[1 - rank])

        host.run(body)
        shared = [a for a in host.memory.changes()[0] if a.shared]
        assert shared == []  # freed before anybody looked


def test_an_imported_heap_serves_later_simulations_too() -> None:
    with simulate(Recorder()):
        from aiter.ops.flydsl.quick_allreduce_int4_ipc import UncachedIpcHeap as Heap

        first = Heap.alloc_uncached(64)
    with pytest.raises(RuntimeError, match="has ended"):
        Heap.free_device_mem(first)
    with simulate(Recorder()) as host:
        Heap.alloc_uncached(128)
        assert [a.name for a in host.memory if a.shared] == ["peer heap of rank 0"]


def test_the_thread_group_sets_up_monocs_peer_buffers() -> None:
    from monoc.host.peer import PeerBuffer

    with simulate(Recorder(ranks=2)) as host:

        def body(rank: int) -> list[int]:
            buffer = PeerBuffer(4096, host.group, host.group.rank(), host.group.size(), torch.device("cuda"))
            host.group.barrier()
            addresses: list[int] = buffer.addresses.tolist()
            assert addresses[rank] == buffer.local
            host.group.barrier()
            buffer.close()
            return addresses

        first, second = host.run(body)
        assert first == second
        assert len(set(first)) == 2


def test_compile_with_wrapped_device_tensors_launches() -> None:
    """`from_dlpack` of device memory is live, of host memory a placeholder, as on a GPU."""

    @flyc.kernel(known_block_size=[64, 1, 1])
    def nothing(a: fx.Tensor):
        pass

    @flyc.jit
    def launch(a: fx.Tensor, stream: fx.Stream = _STREAM):
        nothing(a).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    engine = Recorder()
    with simulate(engine):
        host, device = torch.zeros(64), torch.zeros(64, device="cuda")
        flyc.compile(launch, flyc.from_dlpack(host), _STREAM)
        assert engine.meetings == []
        compiled = flyc.compile(launch, flyc.from_dlpack(device), _STREAM)
        assert [m[0].values[0] for m in engine.meetings] == [device.data_ptr()]
        compiled(flyc.from_dlpack(device), _STREAM)
        assert len(engine.meetings) == 2
        flyc.compile(launch, flyc.from_dlpack(host), _STREAM)
        assert len(engine.meetings) == 2


def test_empty_device_tensors_are_on_the_device() -> None:
    with simulate(Recorder()):
        empty = torch.empty(0, device="cuda")
        assert empty.is_cuda
        assert empty.device.type == "cuda"
        assert not torch.empty(0).is_cuda
        assert torch.zeros(2, device=0).is_cuda
        assert torch.zeros(2).to(0).is_cuda


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.cuda.CUDAGraph(),
        lambda: torch.cuda.graph(None),
        lambda: torch.cuda.ExternalStream(0),
        lambda: torch.cuda.MemPool(),
        lambda: torch.cuda.get_rng_state(),
        lambda: torch.cuda.can_device_access_peer(0, 1),
    ],
)
def test_what_has_no_stand_in_says_so(call: Callable[[], object]) -> None:
    with simulate(Recorder()), pytest.raises(UsageError, match=r"torch\.cuda\.\w+ has no stand-in in a simulation"):
        call()


def test_seeds_make_device_random_numbers_repeatable() -> None:
    with simulate(Recorder()), torch.cuda.device(0):
        drawn = []
        for _ in range(2):
            torch.cuda.manual_seed(3)
            drawn.append(torch.randn(4, device="cuda"))
        assert torch.equal(*drawn)
