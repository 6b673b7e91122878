"""One runner, emitted or hand-written, on the simulator: counts, resources and outputs of each launch."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from monoc.build.device import DeviceLaunch, resources_of
from monoc.build.resources import Resources
from monoc.sim import Simulator
from monoc.sim.host import DeviceMemory, SimulatedHost, simulate
from monoc.sim.host.engine import LaunchReport, SimulatorEngine
from monoc.sim.observe import Observations
from peer.inputs import Inputs, Shapes
from peer.left import Left, copy_left

__all__ = ["WRITTEN", "Counts", "RecordingEngine", "Side", "count", "ffn_part", "run_side", "tailed_tensors"]

CACHES = ("swa_cache", "comp_cache")
WRITTEN = ("swa_cache",)  # by K1
OUTPUTS = ("out", "residual_out", "post_out", "comb_out", "pre_out")
_SMALL, _TAIL = 1 << 26, 1 << 20
_LAUNCH = re.compile(r"_(k1|k2|ffn)(?=_|E|$)")


@dataclass(frozen=True)
class Counts:
    """What one launch did on one rank (the average of all ranks; ``busiest`` the busiest wave of any); ``polls``:
    wave-instructions of poll loops, in no other count; ``retries``: tries of poll loops that failed."""

    instructions: float
    busiest: int
    weight_bytes: float
    in_flight: float
    polls: float
    retries: float
    lines: Mapping[str, int]
    classes: Mapping[str, int]
    resources: Resources


@dataclass
class Side:
    """``counts`` by launch (k1, k2, ffn); ``outputs`` of every rank by name; ``left``: what each launch left in memory;
    ``problems`` found."""

    counts: dict[str, Counts] = field(default_factory=dict)
    outputs: list[dict[str, torch.Tensor]] = field(default_factory=list)
    left: dict[str, Left] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class RecordingEngine(SimulatorEngine):
    """The simulator, with each launch's observations, resources and what it left kept. ``before``: a launch -> what its
    runners' attributes and caches are set to before it; ``scratch``: a runner's scratch buffer;
    ``peer_bytes`` of its peer buffer are kept."""

    def __init__(
        self,
        simulator: Simulator,
        scratch: Callable[[Any], torch.Tensor],
        before: Mapping[str, Left],
        peer_bytes: int | None = None,
    ) -> None:
        super().__init__(simulator)
        self.scratch, self.before, self.peer_bytes = scratch, before, peer_bytes
        self.runners: dict[int, Any] = {}
        self.caches: dict[int, dict[str, torch.Tensor]] = {}
        self.seen: dict[str, tuple[Observations, Resources]] = {}
        self.left: dict[str, Left] = {}

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> LaunchReport:
        first = launches[0]
        name = _LAUNCH.search(first.symbol)
        assert name is not None
        if name[1] in self.before:
            self._set(self.before[name[1]], memory)
        resources = resources_of(first.text, first.symbol)
        report = super().run_together(launches, memory)
        self.left[name[1]] = copy_left(self.runners, self.caches, self.scratch, memory, self.peer_bytes)
        assert report.observations is not None
        self.seen[name[1]] = (report.observations, resources)
        return report

    def _set(self, wanted: Left, memory: DeviceMemory) -> None:
        for rank, runner in self.runners.items():
            own = {
                n: memory.view(t.data_ptr(), t.nbytes)
                for n in wanted.kept[rank]
                if (t := getattr(runner, n)) is not None
            }
            own |= {n: memory.view(t.data_ptr(), t.nbytes) for n, t in self.caches[rank].items()}
            for name, value in {**wanted.kept[rank], **wanted.caches[rank]}.items():
                data = value.contiguous().view(torch.uint8).flatten()
                own[name][: data.numel()].copy_(data)
                memory.mark_written(own[name][: data.numel()])


def count(seen: Observations, resources: Resources, weights: set[str], tp: int) -> Counts:
    """A launch's counts a rank of ``tp``; ``weights``: names of the buffers that are weights or KV caches."""
    return Counts(
        instructions=sum(seen.classes.values()) / tp,
        busiest=max(c.busiest for c in seen.ctas),
        weight_bytes=sum(t.loaded for t in seen.traffic if t.buffer in weights) / tp,
        in_flight=sum(c.in_flight for c in seen.ctas) / tp,
        polls=seen.polls / tp,
        retries=seen.retries / tp,
        lines={line: count // tp for line, count in seen.lines.items()},
        classes={name: count // tp for name, count in seen.classes.items()},
        resources=resources,
    )


def tailed_tensors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The small tensors with spare bytes behind them: the hand-written shared-expert GEMV requests whole windows of K,
    beyond the last row's end too (their activations are zero), which the simulator would report."""
    tailed = dict(tensors)
    for name, value in tensors.items():
        if isinstance(value, torch.Tensor) and value.nbytes < _SMALL:
            room = torch.zeros(value.nbytes + _TAIL, dtype=torch.uint8)
            tailed[name] = room[: value.nbytes].view(value.dtype).view(value.shape)
            tailed[name].view(torch.uint8).copy_(value.view(torch.uint8))
    return tailed


def _weights(runner: ModuleType, inputs: Inputs) -> Any:
    return runner.MonoLayerWeights(attn=runner.AttnWeights(**inputs.attn), **inputs.layer)


def run_side(
    load: Callable[[], ModuleType],
    shapes: Shapes,
    inputs: Inputs,
    launch: str,
    cache: Path | None,
    *,
    debug: bool = False,
    before: Mapping[str, Left] | None = None,
) -> Side:
    """One step of ``launch`` ("layer": K1 and K2; "ffn") of the runner in the module ``load`` imports; both runners
    have the same class names, methods and arguments. It is imported inside the simulation: what the hand-written
    one is made of depends on the GPU it finds. ``before``: values a launch finds in place of those the launch before it
    left, rows of the step only."""
    simulator = Simulator("gfx950", ranks=shapes.tp, observe=True)
    engine = RecordingEngine(simulator, lambda runner: runner.scratch(shapes.tokens), before or {})
    names = set(CACHES)
    side = Side()
    with simulate(engine, cache_dir=cache, debug=debug) as host:
        runner = load()
        inputs = replace(inputs, attn=tailed_tensors(inputs.attn), layer=tailed_tensors(inputs.layer))
        for name, value in {**inputs.attn, **inputs.layer}.items():
            if isinstance(value, torch.Tensor):
                host.register(value, name=name)
                simulator.watch(value.untyped_storage().data_ptr(), "weight")
                names.add(name)
        weights = _weights(runner, inputs)
        outputs = host.run(lambda rank: _rank(host, engine, runner, shapes, inputs, weights, launch, rank))
    side.counts = {name: count(*seen, names, shapes.tp) for name, seen in engine.seen.items()}
    side.outputs = [dict(zip(OUTPUTS, rank, strict=True)) for rank in outputs]
    side.left = engine.left
    first = side.outputs[0]
    for rank, others in enumerate(side.outputs[1:], 1):
        side.problems += [
            f"{n} of rank {rank} differs from rank 0's" for n in OUTPUTS if not torch.equal(first[n], others[n])
        ]
    side.problems += [f"{n} is not finite" for n, t in first.items() if not torch.isfinite(t.float()).all()]
    return side


def _rank(
    host: SimulatedHost,
    engine: RecordingEngine,
    runner: ModuleType,
    shapes: Shapes,
    inputs: Inputs,
    weights: Any,
    launch: str,
    rank: int,
) -> list[torch.Tensor]:
    # The hand-written runner would exchange handles by torch.distributed; without a group the simulated heap does.
    group = host.group if hasattr(runner, "PeerHeap") else None
    layer = runner.DSV41MonoLayer(shapes.tp, rank, group)
    scratch = layer.scratch(shapes.tokens)
    engine.simulator.watch(scratch.untyped_storage().data_ptr(), "handoff")
    engine.simulator.watch(layer.peer.local, "handoff")
    engine.runners[rank] = layer
    given = {n: v.clone() for n, v in inputs.step.items()}  # a rank's own: K1 writes KV records
    for name, value in given.items():
        host.register(value, rank, name)
    engine.caches[rank] = {n: given[n] for n in WRITTEN}
    step = _step_ffn if launch == "ffn" else _step_layer
    return [t.cpu().clone() for t in step(layer, weights, given, shapes)]


def _step_layer(layer: Any, weights: Any, given: dict[str, torch.Tensor], shapes: Shapes) -> tuple[torch.Tensor, ...]:
    select = _select if shapes.index else None
    outputs: tuple[torch.Tensor, ...] = layer.forward(weights, **given, fold=shapes.fold, select=select)
    return outputs


def _select(*_: torch.Tensor) -> None:
    """The host's selection: the top-k is there already."""


def _step_ffn(layer: Any, weights: Any, given: dict[str, torch.Tensor], shapes: Shapes) -> tuple[torch.Tensor, ...]:
    """From an attention partial: :func:`ffn_part`."""
    seam = {n: given[n] for n in ("residual", "post_mix", "res_mix", "pre_mix")}
    part = ffn_part(given["x"], layer.rank, shapes.tp).to("cuda")
    outputs: tuple[torch.Tensor, ...] = layer.ffn(weights, part, **seam)
    return outputs


def ffn_part(x: torch.Tensor, rank: int, tp: int) -> torch.Tensor:
    """The attention partial of one rank [tokens, hidden] bf16: a share of ``x``."""
    return x * ((rank + 1) / tp)
