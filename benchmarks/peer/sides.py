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

__all__ = ["Counts", "Side", "run_side"]

CACHES = ("swa_cache", "comp_cache")
OUTPUTS = ("out", "residual", "post", "comb", "pre")
_SMALL, _TAIL = 1 << 26, 1 << 20
_LAUNCH = re.compile(r"_(k1|k2|ffn)(?=_|E|$)")


@dataclass(frozen=True)
class Counts:
    """What one launch did on one rank (the average of all ranks; ``busiest`` the busiest wave of any)."""

    instructions: float
    busiest: int
    weight_bytes: float
    in_flight: float
    lines: Mapping[str, int]
    classes: Mapping[str, int]
    resources: Resources


@dataclass
class Side:
    """``counts`` by launch (k1, k2, ffn); ``outputs`` of rank 0 by launch that ends a step; ``problems`` found."""

    counts: dict[str, Counts] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class _Recording(SimulatorEngine):
    """The simulator, with each launch's observations and resources kept."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(simulator)
        self.seen: dict[str, tuple[Observations, Resources]] = {}

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> LaunchReport:
        report = super().run_together(launches, memory)
        first = launches[0]
        name = _LAUNCH.search(first.symbol)
        assert name is not None
        assert report.observations is not None
        self.seen[name[1]] = (report.observations, resources_of(first.text, first.symbol))
        return report


def _counts(seen: Observations, resources: Resources, weights: set[str], tp: int) -> Counts:
    return Counts(
        instructions=sum(seen.classes.values()) / tp,
        busiest=max(c.busiest for c in seen.ctas),
        weight_bytes=sum(t.loaded for t in seen.traffic if t.buffer in weights) / tp,
        in_flight=sum(c.in_flight for c in seen.ctas) / tp,
        lines={line: count // tp for line, count in seen.lines.items()},
        classes={name: count // tp for name, count in seen.classes.items()},
        resources=resources,
    )


def _tailed(tensors: Mapping[str, Any]) -> dict[str, Any]:
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
) -> Side:
    """One step of ``launch`` ("layer": K1 and K2; "ffn") of the runner in the module ``load`` imports; both runners
    have the same class names, methods and arguments. It is imported inside the simulation: what the hand-written
    one is made of depends on the GPU it finds."""
    simulator = Simulator("gfx950", ranks=shapes.tp, observe=True)
    engine = _Recording(simulator)
    names = set(CACHES)
    side = Side()
    with simulate(engine, cache_dir=cache, debug=debug) as host:
        runner = load()
        inputs = replace(inputs, attn=_tailed(inputs.attn), layer=_tailed(inputs.layer))
        for name, value in {**inputs.attn, **inputs.layer}.items():
            if isinstance(value, torch.Tensor):
                host.register(value, name=name)
                simulator.watch(value.untyped_storage().data_ptr(), "weight")
                names.add(name)
        weights = _weights(runner, inputs)
        body = _step_ffn if launch == "ffn" else _step_layer
        outputs = host.run(lambda rank: _rank(host, simulator, runner, shapes, inputs, weights, body, rank))
    side.counts = {name: _counts(*seen, names, shapes.tp) for name, seen in engine.seen.items()}
    side.outputs = dict(zip(OUTPUTS, outputs[0], strict=True))
    for rank, others in enumerate(outputs[1:], 1):
        for name, other in zip(OUTPUTS, others, strict=True):
            if not torch.equal(side.outputs[name], other):
                side.problems.append(f"{name} of rank {rank} differs from rank 0's")
    side.problems += [f"{n} is not finite" for n, t in side.outputs.items() if not torch.isfinite(t.float()).all()]
    return side


Body = Callable[[Any, SimulatedHost, Any, Inputs, Shapes], tuple[torch.Tensor, ...]]


def _rank(
    host: SimulatedHost,
    simulator: Simulator,
    runner: ModuleType,
    shapes: Shapes,
    inputs: Inputs,
    weights: Any,
    body: Body,
    rank: int,
) -> list[torch.Tensor]:
    # The hand-written runner would exchange handles by torch.distributed; without a group the simulated heap does.
    group = host.group if hasattr(runner, "PeerHeap") else None
    layer = runner.DSV41MonoLayer(shapes.tp, rank, group)
    scratch = layer.scratch(shapes.tokens)
    simulator.watch(scratch.untyped_storage().data_ptr(), "handoff")
    simulator.watch(layer.peer.local, "handoff")
    return [t.cpu().clone() for t in body(layer, host, weights, inputs, shapes)]


def _step_layer(
    layer: Any, host: SimulatedHost, weights: Any, inputs: Inputs, shapes: Shapes
) -> tuple[torch.Tensor, ...]:
    given = {}
    for name, value in inputs.step.items():
        given[name] = value.clone()  # a rank's own: K1 writes KV records
        host.register(given[name], layer.rank, name)
    outputs: tuple[torch.Tensor, ...] = layer.forward(weights, **given)
    return outputs


def _step_ffn(
    layer: Any, host: SimulatedHost, weights: Any, inputs: Inputs, shapes: Shapes
) -> tuple[torch.Tensor, ...]:
    """From an attention partial: a rank's share of `x`."""
    given = {n: inputs.step[n].to("cuda") for n in ("residual", "post_mix", "res_mix", "pre_mix")}
    part = (inputs.step["x"] * ((layer.rank + 1) / shapes.tp)).to("cuda")
    outputs: tuple[torch.Tensor, ...] = layer.ffn(weights, part, **given)
    return outputs
