"""What a step leaves in memory, looked at after each of its launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from monoc.build.device import DeviceLaunch
from monoc.sim import Simulator
from monoc.sim.handoff import Manifest
from monoc.sim.host import DeviceMemory
from monoc.sim.host.engine import LaunchReport, SimulatorEngine
from monoc.spec.program import Build, Entry, Program
from monoc.verify.handoffs import counted_regions, crossing_regions, launch_manifest, missing_handoffs

__all__ = [
    "PAIR_FORMS",
    "Snapshot",
    "StepResult",
    "Watch",
    "WatchedEngine",
    "package_build",
    "plain",
    "region_bytes",
]

Tensor = torch.Tensor
PAIR_FORMS = ("pair", "peer", "two_hop")


@dataclass
class Snapshot:
    """Memory after a launch, by rank. ``regions``: the bytes of each of the launch's regions, by name; ``kept``: values
    kept for later launches. ``missing``: hand-offs that did not happen; ``loaded``: bytes by buffer, of all ranks, if
    the simulator counts them."""

    launch: str
    missing: list[str]
    regions: list[dict[str, Tensor]] = field(default_factory=list)
    kept: list[dict[str, Tensor]] = field(default_factory=list)
    loaded: Counter[str] = field(default_factory=Counter)


@dataclass
class StepResult:
    """``outputs[rank]`` and ``caches[rank]`` (those the step writes) by name; a snapshot a launch, in order; ``bits``:
    a digest of every output and cache. What the last launch left is shown where it lies: good until the next step."""

    outputs: list[dict[str, Tensor]]
    caches: list[dict[str, Tensor]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    bits: dict[str, str] = field(default_factory=dict)


class WatchedEngine(SimulatorEngine):
    """The simulator, with a look at memory after each launch."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(simulator)
        self.watch: Watch | None = None

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> LaunchReport:
        if self.watch is None:
            return super().run_together(launches, memory)
        symbol = next(iter(launches.values())).symbol
        manifest, crossing, counted = self.watch.manifest(symbol)
        # in every second schedule hand-offs are slow to arrive: who does not wait takes what was there before
        self.simulator.set_manifest(manifest, late=self.simulator.seed % 2 == 1)
        try:
            report = super().run_together(launches, memory)
            missing = missing_handoffs(manifest, crossing, counted, self.simulator.region_traffic())
            self.watch.look(symbol, memory, missing)
            if report.observations is not None:
                for moved in report.observations.traffic:
                    self.watch.found[-1].loaded[moved.buffer] += moved.loaded
        finally:
            self.simulator.set_manifest(None)
        return report


@dataclass
class Watch:
    """Looks at one step of ``build`` at a time. ``runners``: by rank; ``found`` gets the snapshots, empty ones if they
    are not ``wanted``."""

    program: Program
    plan: Any
    entry: Entry
    tp: int
    barriers: bool
    runners: dict[int, Any] = field(default_factory=dict)
    build: Build | None = None
    found: list[Snapshot] = field(default_factory=list)
    wanted: bool = True

    @staticmethod
    def known(program: Program, build: Build) -> dict[str, int]:
        """The parameters of ``build`` that its variant sets: what a scratch buffer is asked for by, beside its rows."""
        return {n: build[n] for v in program.space.variants[:1] for n, _ in v.values}

    @property
    def variant(self) -> dict[str, int]:
        """Of the step's build."""
        assert self.build is not None
        return self.known(self.program, self.build)

    def _launch(self, symbol: str) -> str:
        return next(la.name for la in self.entry.launches if f"_{la.name}_" in f"{symbol}_")

    def manifest(self, symbol: str) -> tuple[Manifest, frozenset[str], frozenset[str]]:
        """The hand-offs of the launch about to run, which of them go from CTA to CTA, and which may be empty."""
        assert self.build is not None
        b = package_build(self.program, self.plan, self.build, self.barriers)
        runners = [self.runners[rank] for rank in range(self.tp)]
        scratch = [r.scratch(b.tokens, **self.variant).data_ptr() for r in runners]
        half = self.plan.peer_half(int(plain(runners[0].epoch)[0])) * self.plan.peer_half_bytes(self.tp)
        launch = self._launch(symbol)
        peers, epochs = [r.peer.local + half for r in runners], [r.epoch.data_ptr() for r in runners]
        manifest = launch_manifest(self.plan, b, launch, scratch, peers, epochs)
        return manifest, crossing_regions(self.plan, b, launch), counted_regions(self.plan, b, launch)

    def look(self, symbol: str, memory: DeviceMemory, missing: list[str]) -> None:
        """Keeps what the launch left in its regions: copies, unless no launch of the step comes after it."""
        assert self.build is not None
        launch, width = self._launch(symbol), self.build["tokens"]
        shot = Snapshot(launch, missing)
        self.found.append(shot)
        if not self.wanted:
            return
        b = package_build(self.program, self.plan, self.build, self.barriers)
        epoch = int(plain(self.runners[0].epoch)[0])
        if self.plan.LAUNCHES[launch].ends_epoch:
            epoch = (epoch - 1) % self.plan.EPOCHS
        half = self.plan.peer_half_bytes(self.tp)
        last = launch == self.entry.launches[-1].name
        for rank in range(self.tp):
            runner = self.runners[rank]
            scratch = runner.scratch(width, **self.variant).detach()
            peer = memory.view(runner.peer.local + self.plan.peer_half(epoch) * half, half) if half else scratch[:0]
            held = region_bytes(self.plan, b, launch, scratch, peer)
            shot.regions.append(held if last else {n: t.clone() for n, t in held.items()})
            kept = {n: getattr(runner, n) for n in self.entry.carried if isinstance(getattr(runner, n, None), Tensor)}
            shot.kept.append({n: plain(t[:width]) for n, t in kept.items()})


def region_bytes(plan: Any, b: Any, launch: str, scratch: Tensor, peer: Tensor) -> dict[str, Tensor]:
    """The bytes of each region of a launch of build ``b``, by name: views of a rank's scratch buffer and of
    the epoch's half of its peer buffer."""
    table, offsets = plan.LAUNCHES[launch].regions(b), plan.offsets(b, launch)
    found = {}
    for name, region in table.items():
        end = offsets[name] + region.words * region.copies * (8 if region.form in PAIR_FORMS else 4)
        found[name] = (peer if region.space == "peer" else scratch)[offsets[name] : end]
    return found


def package_build(program: Program, plan: Any, build: Build, barriers: bool) -> Any:
    """``build`` as the package's ``Plan``."""
    booleans = {p.name for p in program.space.params if p.boolean}
    fields = {n: bool(v) if n in booleans else v for n, v in build.env.items()}
    return plan.Plan(**fields, variant=build.variant, barriers=barriers)


def plain(tensor: Tensor) -> Tensor:
    """A copy in host memory."""
    return tensor.detach().cpu().clone()
