"""A package's own runner at work on the simulator, one step at a time."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from monoc.build.package import EmittedPackage
from monoc.sim import Simulator
from monoc.sim.host import SimulatedHost, simulate
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Build, Program, Role, WeightClass
from monoc.verify.cells import Cell
from monoc.verify.inputs.cases import CASES
from monoc.verify.inputs.roles import Roles
from monoc.verify.inputs.step import POISON, StepInputs
from monoc.verify.inputs.weights import Weights
from monoc.verify.watch import StepResult, Watch, WatchedEngine, plain

__all__ = ["Driver", "Session", "Step"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Step:
    """One call of the entry: its build and what it is given."""

    build: Build
    inputs: StepInputs


class Driver:
    """Runs cells of ``package``. Kernels stay compiled as long as cells of one tp follow each other; ``cache`` (a
    folder) keeps them for other processes. Use as a context manager, or call :meth:`close`."""

    def __init__(self, program: Program, package: EmittedPackage, cache: Path | None = None) -> None:
        self.program, self.package, self.cache = program, package, cache
        self.module = package.part("runner")
        self.runner_class = getattr(self.module, program.runner.class_name)
        self._simulation: tuple[int, WatchedEngine, SimulatedHost, ExitStack] | None = None

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation: torch and FlyDSL are themselves again."""
        if self._simulation is not None:
            self._simulation[3].close()
            self._simulation = None

    def _simulated(self, tp: int) -> tuple[WatchedEngine, SimulatedHost]:
        if self._simulation is not None and self._simulation[0] != tp:
            self.close()
        if self._simulation is None:
            engine, stack = WatchedEngine(Simulator(ranks=tp)), ExitStack()
            host = stack.enter_context(simulate(engine, cache_dir=self.cache))
            self._simulation = (tp, engine, host, stack)
        return self._simulation[1], self._simulation[2]

    @contextmanager
    def session(self, cell: Cell, weights: Weights, wanted: bool = True) -> Iterator[Session]:
        """New runners on every rank, ready for the cell's steps; ``wanted``: whether snapshots are. Raises what the
        runner raises; a simulation in which anything failed is not used again."""
        engine, host = self._simulated(cell.tp)
        engine.simulator.seed, engine.simulator.observe = cell.order, cell.traffic
        try:
            session = Session(self, host, engine, cell, weights, wanted)
            yield session
            session.close()
        except BaseException:
            self.close()
            raise
        finally:
            engine.watch = None
            host.reports.clear()


class Session:
    """A runner a rank. Only one step's inputs are in memory at a time."""

    def __init__(
        self, driver: Driver, host: SimulatedHost, engine: WatchedEngine, cell: Cell, weights: Weights, wanted: bool
    ) -> None:
        self.driver, self.host, self.cell, self.weights = driver, host, cell, weights
        self.program = program = driver.program
        self.entry = next(e for e in program.entries if e.name == cell.kind.entry)
        self.written = frozenset(Roles.of(program).tensors("kv_insert", "cache"))
        builds = cell.builds(program)
        plan = driver.package.plan
        self.watch = Watch(program, plan, self.entry, cell.tp, cell.barriers, wanted=wanted)
        self.instructions = 0  # wave-instructions so far, all ranks
        for rank in range(cell.tp):
            for name, tensor in weights.tensors[rank].items():
                host.register(tensor, None, name, read_only=True)
        host.run(lambda rank: self._begin(rank, builds))
        engine.watch = self.watch

    def _begin(self, rank: int, builds: list[Build]) -> None:
        cell, case = self.cell, CASES[self.cell.case]
        options = {o.name: builds[0][o.sets] for o in self.program.runner.options}
        runner = self.driver.runner_class(cell.tp, rank, self.host.group, "cuda", barriers=cell.barriers, **options)
        self.watch.runners[rank] = runner
        if case.epoch:
            runner.epoch[0] = case.epoch % self.watch.plan.EPOCHS
        if case.poison:
            self._poison(runner, builds)

    def _poison(self, runner: Any, builds: list[Build]) -> None:
        """NaN bytes in scratch and peer memory: no tag is ever 0xffffffff."""
        for build in builds:
            known = Watch.known(self.program, build)
            runner.scratch(build["tokens"], **known).fill_(POISON)
        size = self.watch.plan.peer_bytes(self.cell.tp)
        if size:
            peer = self.host.memory.view(runner.peer.local, size)
            peer.fill_(POISON)
            self.host.memory.mark_written(peer)

    def close(self) -> None:
        """The runners give back their peer memory."""
        self.host.run(lambda rank: self.watch.runners[rank].close())

    def step(self, step: Step) -> StepResult:
        """One step on all ranks. Raises what the simulator and the runner raise."""
        given = self._registered(step)
        self.watch.build, self.watch.found = step.build, []
        outputs = self.host.run(lambda rank: self._call(rank, step, given[rank]))
        self.instructions += sum(r.instructions for r in self.host.reports)
        self.host.reports.clear()
        caches = [{n: t for n, t in tensors.items() if n in self.written} for tensors in given]
        result = StepResult(outputs, caches, self.watch.found)
        for rank in range(self.cell.tp):
            for name, value in (*outputs[rank].items(), *caches[rank].items()):
                result.bits[f"rank {rank} {name}"] = digest(value)
        return result

    def _registered(self, step: Step) -> list[dict[str, Tensor]]:
        """The inputs as device memory, by rank: what a rank or its host writes is a copy of its own."""
        found = []
        for rank, tensors in enumerate(step.inputs.tensors):
            own = {}
            for name, tensor in tensors.items():
                given = tensor
                if name in self.written or name in step.inputs.selected:
                    given = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
                    _whole(given).copy_(_whole(tensor))
                kernels = name in self.written
                self.host.register(given, None if given is tensor else rank, name, read_only=not kernels)
                own[name] = given
            found.append(own)
        return found

    def _call(self, rank: int, step: Step, given: dict[str, Tensor]) -> dict[str, Tensor]:
        env = self.program.environment(step.build)
        here = {n: t for n, t in self.weights.tensors[rank].items() if n not in self._missing(env)}
        method = getattr(self.watch.runners[rank], self.entry.name)
        outs = method(self._weights(here, step.build), **self._arguments(method, step, given))
        return {name: plain(out) for name, out in zip(self.entry.outputs, outs, strict=True)}

    def _arguments(self, method: Any, step: Step, given: dict[str, Tensor]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in inspect.signature(method).parameters:
            if name in given:
                found[name] = given[name]
            elif name in step.build.env:
                value = step.build[name]
                boolean = any(p.name == name and p.boolean for p in self.program.space.params)
                found[name] = bool(value) if boolean else value
        for call in self.entry.host_calls:
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
            return getattr(self.driver.module, c.name)(**values)

        return make(self.program.runner.weights[-1])


def _selector(names: tuple[str, ...], step: Step, given: dict[str, Tensor]) -> Callable[..., None]:
    def select(*_: Tensor) -> None:
        for name in names:
            given[name].copy_(step.inputs.selected[name])

    return select


def _whole(tensor: Tensor) -> Tensor:
    """All bytes from the tensor's first to its last, gaps included."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.as_strided((reach,), (1,))


def digest(tensor: Tensor) -> str:
    """Of the tensor's bytes."""
    held: Any = tensor.contiguous().view(torch.uint8).numpy()
    return hashlib.blake2b(held, digest_size=16).hexdigest()
