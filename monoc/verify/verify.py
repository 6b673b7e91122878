"""Cells run and judged."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar

import torch

from monoc.reference.interpret import Observer, Reference, Trace
from monoc.reference.weights import sizes
from monoc.sim import SimulatorError
from monoc.spec.program import Build, Entry, Role, ShardingKind
from monoc.verify.cells import Cell
from monoc.verify.drive import Driver, Session, Step
from monoc.verify.ends import End, compare_ends, reroutes
from monoc.verify.inputs.cases import CASES
from monoc.verify.inputs.step import make_step
from monoc.verify.inputs.weights import Weights, positions_of
from monoc.verify.noise import Ends, run_ends
from monoc.verify.ranks import RankDifference, rank_difference
from monoc.verify.regions import LaunchMemory, Seen, read_regions
from monoc.verify.resident import forget_peak, peak_bytes
from monoc.verify.stages import Finding, StageCheck
from monoc.verify.traffic import WeightTraffic, weight_traffic
from monoc.verify.watch import StepResult, package_build

__all__ = ["CellResult", "StepFindings", "Verifier"]

Tensor = torch.Tensor
Taken = ParamSpec("Taken")
Found = TypeVar("Found")


@dataclass
class StepFindings:
    """``stages``: every value the kernels left in memory, on their own inputs; ``ends``: the outputs of the whole step
    against the reference's own way through it; ``rerouted``: how many tokens' experts differ there, ``unexplained``:
    which of them though their keys are too far apart for noise to decide."""

    width: int
    stages: list[Finding] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)
    ranks_differ: list[RankDifference] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # hand-offs of the manifest that did not happen
    traffic: list[WeightTraffic] = field(default_factory=list)  # of every launch, where the cell counts it
    rerouted: int = 0
    unexplained: tuple[int, ...] = ()

    @property
    def first_bad(self) -> Finding | None:
        """The first value that is not what it should be."""
        return next((f for f in self.stages if not f.difference.good), None)

    @property
    def good(self) -> bool:
        """Everything as it should be."""
        return (
            self.first_bad is None
            and not self.ranks_differ
            and not self.missing
            and not self.unexplained
            and all(d.good for d in self.ends.values())
            and all(t.good for t in self.traffic)
        )


@dataclass
class CellResult:
    """A cell's steps, or the error that ended it."""

    cell: Cell
    steps: list[StepFindings] = field(default_factory=list)
    error: str = ""
    orders: int = 1  # schedules of the CTAs that were run
    unlike: list[str] = field(default_factory=list)  # what had other bits under another schedule
    simulated: float = 0.0
    seconds: float = 0.0
    instructions: int = 0
    peak_bytes: int = 0  # the process's largest resident size in the cell
    bits: list[dict[str, str]] = field(default_factory=list, repr=False)  # digests of outputs and caches, a step each
    picked: list[set[int]] = field(default_factory=list, repr=False)  # experts that have numbers, a step each

    @property
    def good(self) -> bool:
        """No error, and every step good."""
        return not self.error and not self.unlike and all(s.good for s in self.steps)


class Verifier:
    """Runs cells of one package; weights are made once for a build's sizes."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.program = driver, driver.program
        self._weights: tuple[tuple[object, ...], Weights] | None = None

    def run(self, cell: Cell, orders: int = 1) -> CellResult:
        """One cell; its steps again under ``orders`` - 1 other schedules, which must leave the same bits."""
        start = time.monotonic()
        forget_peak()
        result = CellResult(cell, orders=orders)
        entry = next(e for e in self.program.entries if e.name == cell.kind.entry)
        weights = self._weights_of(cell)
        try:
            with self.driver.session(cell, weights) as session:
                for k, build in enumerate(cell.builds(self.program)):
                    result.steps.append(self._step(result, entry, session, self._inputs(cell, entry, k, build)))
                result.instructions = session.instructions
            for order in range(1, orders):
                self._again(result, entry, replace(cell, order=order))
        except (SimulatorError, AssertionError, RuntimeError) as error:
            result.error = f"{type(error).__name__}: {error}"
        except Exception as error:  # an edited package's own, of any kind: this cell's, not the run's
            last = traceback.extract_tb(error.__traceback__)[-1]
            result.error = f"{type(error).__name__}: {error}\nat {last.filename}:{last.lineno}: {last.line}"
        result.seconds = time.monotonic() - start
        result.peak_bytes = peak_bytes()
        return result

    def _weights_of(self, cell: Cell) -> Weights:
        """Made anew where sizes, seed or case are others."""
        envs = [self.program.environment(b) for b in cell.builds(self.program)]
        case = CASES[cell.case]
        decls = [t for t in self.program.tensors if t.role is Role.WEIGHT]
        shapes = tuple((sizes(t.shape, envs[0]), sizes(t.stored, envs[0])) for t in decls)
        positions = max(positions_of(self.program, env) for env in envs)
        key = (cell.tp, cell.seed, shapes, positions, case.weights)
        if self._weights is None or self._weights[0] != key:
            self._weights = None  # let go of the old ones first
            self._weights = (key, Weights(self.program, envs[0], cell.tp, cell.seed, positions))
            case.weights(self.program, self._weights[1])
        self._weights[1].forget()  # which experts there are depends on the cell alone
        return self._weights[1]

    def _inputs(self, cell: Cell, entry: Entry, k: int, build: Build) -> Step:
        """What step ``k`` is given."""
        case, env = CASES[cell.case], self.program.environment(build)
        seed = 1000 * cell.seed + k
        inputs = make_step(self.program, entry, env, cell.tp, seed, case.contexts(build["tokens"]))
        case.step(self.program, entry, inputs)
        return Step(build, inputs)

    def _step(self, result: CellResult, entry: Entry, session: Session, step: Step) -> StepFindings:
        weights = session.weights
        seed = 1000 * result.cell.seed + len(result.steps)
        ends = _aside(run_ends, self.program, entry, step.build, step.inputs, weights, seed)
        begin = time.monotonic()
        raw = session.step(step)
        result.simulated += time.monotonic() - begin
        result.bits.append(raw.bits)
        result.picked.append({e for p in ends.picks.values() for e in p.ids.flatten().tolist()})
        return self._judge(result.cell, entry, step, ends, raw, weights)

    def _again(self, result: CellResult, entry: Entry, cell: Cell) -> None:
        """The same steps under another schedule."""
        weights = self._weights_of(cell)
        with self.driver.session(cell, weights, wanted=False) as session:
            for k, build in enumerate(cell.builds(self.program)):
                weights.materialise(result.picked[k])
                bits = session.step(self._inputs(cell, entry, k, build)).bits
                unlike = [n for n, b in bits.items() if b != result.bits[k][n]]
                result.unlike += [f"order {cell.order}: step {k} {n}" for n in unlike]

    def _given(self, step: Step, weights: Weights) -> list[dict[str, Tensor]]:
        return [{**w, **i} for w, i in zip(weights.tensors, step.inputs.tensors, strict=True)]

    def _reference(self, entry: Entry, step: Step, weights: Weights, observer: Observer) -> Trace:
        reference = Reference(self.program, step.build)
        given = self._given(step, weights)
        return _aside(reference.run, entry, given, lambda _: step.inputs.selected, observer, ())

    def _judge(
        self,
        cell: Cell,
        entry: Entry,
        step: Step,
        ends: Ends,
        raw: StepResult,
        weights: Weights,
    ) -> StepFindings:
        found = StepFindings(step.build["tokens"])
        env = self.program.environment(step.build)
        seen, caches = self._seen(cell, entry, step, raw, weights)
        found.missing = [f"{shot.launch}: {m}" for shot in raw.snapshots for m in shot.missing]
        apart = (rank_difference(s) for n, s in seen.items() if self._replicated(n))
        found.ranks_differ = [d for d in apart if d is not None]
        check = StageCheck(self.program, seen, caches, env)
        self._reference(entry, step, weights, check)
        found.stages = check.findings
        picked = {n: seen[n].ranks[0] for n in ends.picks if n in seen}
        if cell.traffic:
            for shot in raw.snapshots:
                launch = self.program.launch[shot.launch]
                found.traffic += weight_traffic(self.program, launch, env, cell.tp, picked, shot.loaded)
        other = reroutes(picked, ends, step.build["tokens"])
        found.rerouted, found.unexplained = int(other.tokens.sum()), other.unexplained
        found.ends = compare_ends(self.program, entry, raw.outputs[0], ends, other.tokens)
        return found

    def _replicated(self, name: str) -> bool:
        return self.program.type_of[name].sharding.kind is ShardingKind.REPLICATED

    def _seen(
        self, cell: Cell, entry: Entry, step: Step, raw: StepResult, weights: Weights
    ) -> tuple[dict[str, Seen], dict[str, list[Tensor]]]:
        """Every value the kernels left in memory, and the caches."""
        env = self.program.environment(step.build)
        plan = self.driver.package.plan
        b = package_build(self.program, plan, step.build, cell.barriers)
        seen: dict[str, Seen] = {}
        for shot in raw.snapshots:
            launch = self.program.launch[shot.launch]
            given = tuple(self._given(step, weights))
            memory = LaunchMemory(self.program, launch, env, plan, b, tuple(shot.regions), given)
            seen |= read_regions(memory, seen)
            made = {r for s in memory.statements() for r in s.results}
            for name in shot.kept[0]:
                if name in made and _leaves(entry, name, env, shot.launch):
                    seen[name] = Seen(name, tuple(k[name].float() for k in shot.kept), "memory")
        for name in entry.outputs:
            seen[name] = Seen(name, tuple(o[name].float() for o in raw.outputs), "an output")
        return seen, {n: [c[n] for c in raw.caches] for n in raw.caches[0]}


def _aside(call: Callable[Taken, Found], *arguments: Taken.args, **options: Taken.kwargs) -> Found:
    """A call in a thread of its own: in this one a simulation watches every call of torch."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *arguments, **options).result()


def _leaves(entry: Entry, name: str, env: Mapping[str, object], launch: str) -> bool:
    """Whether a later launch or host call of this build reads ``name``, so that it is written to memory."""
    if any(name in h.arguments and h.guard.evaluate(env) for h in entry.host_calls):  # type: ignore[arg-type]
        return True
    later = [la for la in entry.launches if la.name != launch]
    return any(name in s.operands and s.guard.evaluate(env) for la in later for s in la.statements)  # type: ignore[arg-type]
