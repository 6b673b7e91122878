"""`simulate(simulator)`: host code written for a GPU machine runs unchanged, its launches on the simulator.

sim = Simulator("gfx950", ranks=4)
with simulate(sim) as host:
    results = host.run(lambda rank: step(rank))  # one host thread a rank
"""

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from monoc.build.device import DeviceLaunch
from monoc.sim.errors import UsageError
from monoc.sim.host.cuda import DeviceProperties, cuda_stand_ins
from monoc.sim.host.launches import LaunchInterceptor
from monoc.sim.host.memory import DeviceMemory
from monoc.sim.host.peer_heap import ActiveHeap, PeerHeap
from monoc.sim.host.rendezvous import Rendezvous
from monoc.sim.host.torch_mode import DeviceMode

__all__ = ["Engine", "SimulatedHost", "ThreadGroup", "simulate"]

Result = TypeVar("Result")

_PEER_MODULE = "aiter.ops.flydsl.quick_allreduce_int4_ipc"
# One object a process: modules imported in one simulation keep the name they imported and meet it again in the next.
_ACTIVE_HEAP = ActiveHeap()


@runtime_checkable
class Engine(Protocol):
    """What runs launches: `monoc.sim.host.engine.SimulatorEngine`, or a recorder in tests."""

    @property
    def arch(self) -> str:
        """The target, e.g. `gfx950`."""

    @property
    def ranks(self) -> int:
        """How many ranks take part."""

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> Any:
        """Runs one launch a rank, all together, to the end; returns the report."""


class ThreadGroup:
    """A process group whose ranks are threads: the collectives host code needs to set up peer memory."""

    def __init__(self, host: "SimulatedHost") -> None:
        self._host = host

    def all_gather_object(self, value: Any) -> list[Any]:
        """Every rank's `value` in rank order."""
        return self._host.all_gather("all_gather_object", value)

    def barrier(self) -> None:
        """Waits for every rank."""
        self._host.all_gather("barrier", None)

    def rank(self) -> int:
        """The calling thread's rank."""
        return self._host.rank()

    def size(self) -> int:
        """How many ranks there are."""
        return self._host.engine.ranks


class SimulatedHost:
    """The host side of a simulation: rank threads, device memory, the reports of the launches made so far.

    `group` takes the place of a torch process group where host code wants one.
    """

    def __init__(self, engine: Engine, cus: int = 256) -> None:
        self.engine = engine
        self.memory = DeviceMemory()
        self.reports: list[Any] = []
        self.properties = DeviceProperties.of(engine.arch, cus)
        self.group = ThreadGroup(self)
        self.heap = PeerHeap(self.memory, self.rank, self.all_gather)
        self._interceptor = LaunchInterceptor(self._launch)
        self._thread = threading.local()
        self._rendezvous: Rendezvous | None = None

    @property
    def traces(self) -> int:
        """How many builds FlyDSL has traced in this simulation."""
        return self._interceptor.traces

    def rank(self) -> int:
        """The rank whose host thread this is; 0 outside `run`, where that is the only rank."""
        rank = getattr(self._thread, "rank", None)
        if rank is None:
            if self.engine.ranks > 1:
                raise UsageError("with several ranks, launches and peer memory belong inside host.run(...)")
            return 0
        return int(rank)

    def owner(self) -> int | None:
        """The rank that owns memory allocated now; None outside `run` when there are several ranks."""
        rank: int | None = getattr(self._thread, "rank", None)
        return 0 if rank is None and self.engine.ranks == 1 else rank

    def register(self, tensor: torch.Tensor, rank: int | None = None, name: str = "", read_only: bool = False) -> None:
        """Makes a tensor's storage device memory of `rank` (of all ranks when None), as if allocated on "cuda".

        `read_only`: a kernel that stores to it is stopped; the host may."""
        self.memory.adopt(tensor, rank, name=name, read_only=read_only)

    def all_gather(self, kind: str, value: Any) -> list[Any]:
        """Every rank's `value` in rank order; all running ranks must call it."""
        if self._rendezvous is None:
            return [value]
        gathered = self._rendezvous.meet(self.rank(), kind, value, lambda values: list(values.values()))
        return list(gathered)

    def run(self, body: Callable[[int], Result]) -> list[Result]:
        """Calls `body(rank)` in one thread a rank; results in rank order, or the first failing rank's error."""
        ranks = self.engine.ranks
        if self._rendezvous is not None:
            raise UsageError("run() inside run(): a simulation has one set of rank threads")
        rendezvous = self._rendezvous = Rendezvous(ranks)
        results: dict[int, Result] = {}
        failures: list[tuple[int, BaseException]] = []

        def thread(rank: int) -> None:
            self._thread.rank = rank
            try:
                with DeviceMode(self.memory, self.owner):
                    results[rank] = body(rank)
            except BaseException as error:  # re-raised in the caller's thread
                failures.append((rank, error))
            finally:
                rendezvous.leave(rank)

        threads = [threading.Thread(target=thread, args=(r,), name=f"rank {r}") for r in range(ranks)]
        try:
            for started in threads:
                started.start()
            for started in threads:
                started.join()
        finally:
            self._rendezvous = None
        if failures:
            raise failures[0][1]
        return [results[rank] for rank in range(ranks)]

    def _launch(self, launch: DeviceLaunch) -> None:
        def together(launches: Mapping[int, DeviceLaunch]) -> Any:
            return self.engine.run_together(launches, self.memory)

        if self._rendezvous is None:
            report = together({self.rank(): launch})
            self.reports.append(report)
            return

        def action(launches: Mapping[int, DeviceLaunch]) -> None:
            self.reports.append(together(launches))

        self._rendezvous.meet(self.rank(), "launch", launch, action)

    @contextmanager
    def _installed(self, cache_dir: Path | None, debug: bool) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self._interceptor.installed(self.engine.arch, cache_dir=cache_dir, debug=debug))
            stack.enter_context(_attributes(torch.cuda, cuda_stand_ins(self.rank, self.engine.ranks, self.properties)))
            stack.enter_context(_peer_module(self.heap))
            stack.enter_context(DeviceMode(self.memory, self.owner))
            yield


@contextmanager
def _attributes(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


@contextmanager
def _peer_module(heap: PeerHeap) -> Iterator[None]:
    """`from aiter.ops.flydsl.quick_allreduce_int4_ipc import UncachedIpcHeap` gives the simulated heap."""
    before = dict(sys.modules)
    module = types.ModuleType(_PEER_MODULE)
    module.UncachedIpcHeap = _ACTIVE_HEAP  # type: ignore[attr-defined]
    added = [_PEER_MODULE]
    parts = _PEER_MODULE.split(".")
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = []
            sys.modules[name] = package
            added.append(name)
    sys.modules[_PEER_MODULE] = module
    _ACTIVE_HEAP.enter(heap)
    try:
        yield
    finally:
        _ACTIVE_HEAP.leave()
        for name in added:
            if name in before:
                sys.modules[name] = before[name]
            else:
                with contextlib.suppress(KeyError):
                    del sys.modules[name]


@contextmanager
def simulate(
    simulator: Any, *, cus: int = 256, cache_dir: Path | None = None, debug: bool = False
) -> Iterator[SimulatedHost]:
    """Inside, FlyDSL launches of this process run on `simulator` (a `monoc.sim.Simulator`, or an `Engine`).

    Tensors made on "cuda" are simulated device memory, `torch.cuda` describes a GPU with `cus` compute units,
    aiter's peer-memory heap is there, and a launch returns when it has finished. `cache_dir` keeps compiled
    launches across processes; `debug` compiles with source lines, so that findings name them.
    """
    if isinstance(simulator, Engine):
        engine: Engine = simulator
    else:
        from monoc.sim.host.engine import SimulatorEngine  # needs the native core; engines of tests do not

        engine = SimulatorEngine(simulator)
    host = SimulatedHost(engine, cus)
    with host._installed(cache_dir, debug):
        yield host
