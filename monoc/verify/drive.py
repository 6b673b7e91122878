"""A package's own runner at work on the simulator, watched between its launches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from monoc.build.device import DeviceLaunch
from monoc.build.package import EmittedPackage
from monoc.sim import Simulator
from monoc.sim.handoff import Manifest
from monoc.sim.host import DeviceMemory, SimulatedHost, simulate
from monoc.sim.host.engine import LaunchReport, SimulatorEngine
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Build, Entry, Program, Role, WeightClass
from monoc.verify.cells import Cell
from monoc.verify.handoffs import counted_regions, crossing_regions, launch_manifest, missing_handoffs
from monoc.verify.inputs.cases import CASES
from monoc.verify.inputs.step import POISON, StepInputs
from monoc.verify.inputs.weights import Weights

__all__ = ["Driver", "Snapshot", "Step", "StepResult", "package_build"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Step:
    """One call of the entry: its build and what it is given."""

    build: Build
    inputs: StepInputs


@dataclass
class Snapshot:
    """Memory after a launch of epoch ``epoch``, by rank: bytes of the scratch buffer and of the epoch's half of the
    peer buffer, values kept for later launches, caches. ``missing``: hand-offs that did not happen."""

    launch: str
    epoch: int
    missing: list[str]
    scratch: list[Tensor] = field(default_factory=list)
    peer: list[Tensor] = field(default_factory=list)
    kept: list[dict[str, Tensor]] = field(default_factory=list)
    caches: list[dict[str, Tensor]] = field(default_factory=list)


@dataclass
class StepResult:
    """``outputs[rank]`` by name; a snapshot a launch, in order; ``reports`` of the launches."""

    outputs: list[dict[str, Tensor]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)


class _Watched(SimulatorEngine):
    """The simulator, with a look at memory after each launch."""

    watch: _Watch | None = None

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> LaunchReport:
        if self.watch is None:
            return super().run_together(launches, memory)
        symbol = next(iter(launches.values())).symbol
        manifest, crossing, counted = self.watch.manifest(symbol)
        self.simulator.set_manifest(manifest)
        try:
            report = super().run_together(launches, memory)
            missing = missing_handoffs(manifest, crossing, counted, self.simulator.region_traffic())
            self.watch.look(symbol, memory, missing)
        finally:
            self.simulator.set_manifest(None)
        return report


class Driver:
    """Runs cells of ``package``. Kernels stay compiled as long as cells of one tp follow each other; ``cache`` (a
    folder) keeps them for other processes. Use as a context manager, or call :meth:`close`."""

    def __init__(self, program: Program, package: EmittedPackage, cache: Path | None = None) -> None:
        self.program, self.package, self.cache = program, package, cache
        self.module = package.part("runner")
        self.runner_class = getattr(self.module, program.runner.class_name)
        self.instructions = 0  # wave-instructions of the last run, all ranks
        self._simulation: tuple[int, _Watched, SimulatedHost, ExitStack] | None = None

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation: torch and FlyDSL are themselves again."""
        if self._simulation is not None:
            self._simulation[3].close()
            self._simulation = None

    def _simulated(self, tp: int) -> tuple[_Watched, SimulatedHost]:
        if self._simulation is not None and self._simulation[0] != tp:
            self.close()
        if self._simulation is None:
            engine, stack = _Watched(Simulator(ranks=tp)), ExitStack()
            host = stack.enter_context(simulate(engine, cache_dir=self.cache))
            self._simulation = (tp, engine, host, stack)
        return self._simulation[1], self._simulation[2]

    def run(self, cell: Cell, weights: Weights, steps: list[Step]) -> list[StepResult]:
        """Run the steps in order. Raises what the simulator and the runner raise."""
        results = [StepResult(outputs=[{} for _ in range(cell.tp)]) for _ in steps]
        entry = next(e for e in self.program.entries if e.name == cell.kind.entry)
        watch = _Watch(self, cell, entry, results)
        watch.variant = {n: steps[0].build[n] for v in self.program.space.variants[:1] for n, _ in v.values}
        watch.builds = [step.build for step in steps]
        engine, host = self._simulated(cell.tp)
        engine.simulator.seed = cell.order
        engine.watch = watch
        try:
            with self._registered(host, weights, steps, watch):
                host.run(lambda rank: self._rank(rank, host, cell, entry, weights, steps, watch))
        except BaseException:
            self.close()  # a simulation that failed in a launch is not used again
            raise
        finally:
            engine.watch = None
        self.instructions = sum(r.instructions for r in host.reports)
        host.reports.clear()
        return results

    @contextmanager
    def _registered(self, host: SimulatedHost, weights: Weights, steps: list[Step], watch: _Watch) -> Iterator[None]:
        """The inputs as device memory; caches a copy a rank."""
        for rank in range(len(weights.tensors)):
            for name, tensor in weights.tensors[rank].items():
                host.register(tensor, None, name)
        for step in steps:
            copies = []
            for rank, tensors in enumerate(step.inputs.tensors):
                own = {}
                for name, tensor in tensors.items():
                    given = tensor
                    if self.program.tensor[name].role is Role.CACHE or name in step.inputs.selected:
                        given = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
                        _whole(given).copy_(_whole(tensor))
                    host.register(given, None if given is tensor else rank, name)
                    own[name] = given
                copies.append(own)
            watch.given.append(copies)
        yield

    def _rank(
        self,
        rank: int,
        host: SimulatedHost,
        cell: Cell,
        entry: Entry,
        weights: Weights,
        steps: list[Step],
        watch: _Watch,
    ) -> None:
        options = {o.name: steps[0].build[o.sets] for o in self.program.runner.options}
        runner = self.runner_class(cell.tp, rank, host.group, "cuda", barriers=cell.barriers, **options)
        watch.runners[rank] = runner
        case = CASES[cell.case]
        if case.epoch:
            runner.epoch[0] = case.epoch % self.package.plan.EPOCHS
        if case.poison:
            self._poison(runner, host, cell, watch)
        env = self.program.environment(steps[0].build)
        here = {n: t for n, t in weights.tensors[rank].items() if n not in self._missing(env)}
        loaded = self._weights(here, steps[0].build)
        method = getattr(runner, entry.name)
        for k, step in enumerate(steps):
            host.group.barrier()
            if rank == 0:
                watch.step = k
            host.group.barrier()
            given = watch.given[k][rank]
            outs = method(loaded, **self._arguments(method, entry, step, given))
            for name, out in zip(entry.outputs, outs, strict=True):
                watch.results[k].outputs[rank][name] = _plain(out)
        runner.close()

    def _poison(self, runner: Any, host: SimulatedHost, cell: Cell, watch: _Watch) -> None:
        """NaN bytes in scratch and peer memory: no tag is ever 0xffffffff."""
        for width in set(cell.widths):
            runner.scratch(width, **watch.variant).fill_(POISON)
        size = self.package.plan.peer_bytes(cell.tp)
        if size:
            peer = host.memory.view(runner.peer.local, size)
            peer.fill_(POISON)
            host.memory.mark_written(peer)

    def _arguments(self, method: Any, entry: Entry, step: Step, given: dict[str, Tensor]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in inspect.signature(method).parameters:
            if name in given:
                found[name] = given[name]
            elif name in step.build.env:
                value = step.build[name]
                boolean = any(p.name == name and p.boolean for p in self.program.space.params)
                found[name] = bool(value) if boolean else value
        for call in entry.host_calls:
            if call.guard.evaluate(self.program.environment(step.build)):
                found[call.name] = _selector(call.writes, step, given)
        return found

    def _missing(self, env: Mapping[str, BuildValue]) -> set[str]:
        """Weights a layer of this build does not have, with their scales."""
        absent = [t for t in self.program.tensors if t.role is Role.WEIGHT and not t.guard.evaluate(env)]
        return {t.name for t in absent} | {t.scale.name for t in absent if t.scale is not None}

    def _weights(self, tensors: Mapping[str, Tensor], build: Build) -> Any:
        classes = {c.name: c for c in self.program.runner.weights}

        def make(c: WeightClass) -> Any:
            values: dict[str, Any] = {}
            for f in c.fields:
                if f.kind == "class":
                    values[f.name] = make(classes[f.refers])
                elif f.kind == "int":
                    values[f.name] = 0
                else:
                    values[f.name] = build[f.refers] if f.kind == "param" else tensors.get(f.refers)
            return getattr(self.module, c.name)(**values)

        return make(self.program.runner.weights[-1])


def package_build(program: Program, plan: Any, build: Build, barriers: bool) -> Any:
    """``build`` as the package's ``Plan``."""
    booleans = {p.name for p in program.space.params if p.boolean}
    fields = {n: bool(v) if n in booleans else v for n, v in build.env.items()}
    return plan.Plan(**fields, variant=build.variant, barriers=barriers)


def _selector(names: tuple[str, ...], step: Step, given: dict[str, Tensor]) -> Callable[..., None]:
    def select(*_: Tensor) -> None:
        for name in names:
            given[name].copy_(step.inputs.selected[name])

    return select


class _Watch:
    """What is looked at after each launch of the current step."""

    def __init__(self, driver: Driver, cell: Cell, entry: Entry, results: list[StepResult]) -> None:
        self.driver, self.cell, self.entry, self.results = driver, cell, entry, results
        self.runners: dict[int, Any] = {}
        self.given: list[list[dict[str, Tensor]]] = []
        self.variant: dict[str, int] = {}  # build parameters of the cell's variant
        self.builds: list[Build] = []  # of the steps
        self.step = 0

    def _launch(self, symbol: str) -> str:
        return next(la.name for la in self.entry.launches if f"_{la.name}_" in f"{symbol}_")

    def manifest(self, symbol: str) -> tuple[Manifest, frozenset[str], frozenset[str]]:
        """The hand-offs of the launch about to run, which of them go from CTA to CTA, and which may be empty."""
        plan = self.driver.package.plan
        b = package_build(self.driver.program, plan, self.builds[self.step], self.cell.barriers)
        runners = [self.runners[rank] for rank in range(self.cell.tp)]
        scratch = [r.scratch(b.tokens, **self.variant).data_ptr() for r in runners]
        half = plan.peer_half(int(_plain(runners[0].epoch)[0])) * plan.peer_half_bytes(self.cell.tp)
        launch = self._launch(symbol)
        manifest = launch_manifest(plan, b, launch, scratch, [r.peer.local + half for r in runners])
        return manifest, crossing_regions(plan, b, launch), counted_regions(plan, b, launch)

    def look(self, symbol: str, memory: DeviceMemory, missing: list[str]) -> None:
        """Copies what the launch left in memory."""
        launch = self._launch(symbol)
        width = self.cell.widths[self.step]
        plan = self.driver.package.plan
        epoch = int(_plain(self.runners[0].epoch)[0])
        if plan.LAUNCHES[launch].ends_epoch:
            epoch = (epoch - 1) % plan.EPOCHS
        half = plan.peer_half_bytes(self.cell.tp)
        shot = Snapshot(launch, epoch, missing)
        roles = self.driver.program.tensor
        for rank in range(self.cell.tp):
            runner = self.runners[rank]
            shot.scratch.append(_plain(runner.scratch(width, **self.variant)))
            peer = memory.view(runner.peer.local + plan.peer_half(epoch) * half, half) if half else torch.zeros(0)
            shot.peer.append(_plain(peer))
            kept = {n: getattr(runner, n) for n in self.entry.carried if isinstance(getattr(runner, n, None), Tensor)}
            shot.kept.append({n: _plain(t[:width]) for n, t in kept.items()})
            given = self.given[self.step][rank]
            caches = {n: t for n, t in given.items() if roles[n].role is Role.CACHE}
            shot.caches.append({n: _copied(t) for n, t in caches.items()})
        self.results[self.step].snapshots.append(shot)


def _whole(tensor: Tensor) -> Tensor:
    """All bytes from the tensor's first to its last, gaps included."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.as_strided((reach,), (1,))


def _copied(tensor: Tensor) -> Tensor:
    copied = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    _whole(copied).copy_(_whole(tensor))
    return copied


def _plain(tensor: Tensor) -> Tensor:
    """A copy in host memory."""
    return tensor.detach().cpu().clone()
