"""The hand-written V4.1 runner, unchanged, on simulated ranks: several steps of one build, outputs checked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from monoc.sim.host import SimulatedHost
from peer.inputs import Inputs, Shapes

__all__ = ["Outcome", "run_ffn", "run_k1", "run_layer"]

_PACKAGE = "vllm.models.deepseek_v41.amd.mono"
Step = Callable[[Any, int], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Outcome:
    """What one build did: host seconds of each step (tracing and compiling fall into the first) and problems found."""

    seconds: tuple[float, ...]
    problems: tuple[str, ...]


def _weights(inputs: Inputs) -> Any:
    runner = import_module(f"{_PACKAGE}.runner")
    return runner.MonoLayerWeights(attn=runner.AttnWeights(**inputs.attn), **inputs.layer)


def _register(host: SimulatedHost, inputs: Inputs) -> None:
    for name, value in {**inputs.attn, **inputs.layer}.items():
        if isinstance(value, torch.Tensor):
            host.register(value, name=name)


def _problems(outputs: list[list[tuple[torch.Tensor, ...]]], names: tuple[str, ...]) -> tuple[str, ...]:
    """Outputs [rank][step][tensor] that are not finite, or differ between ranks."""
    found = []
    for step in range(len(outputs[0])):
        for index, name in enumerate(names):
            first = outputs[0][step][index]
            if not torch.isfinite(first.float()).all():
                found.append(f"step {step}: {name} is not finite")
            for rank in range(1, len(outputs)):
                other = outputs[rank][step][index]
                if not torch.equal(first.view(torch.uint8), other.view(torch.uint8)):
                    found.append(f"step {step}: {name} of rank {rank} differs from rank 0's")
    return tuple(found)


def _run(
    host: SimulatedHost, shapes: Shapes, inputs: Inputs, steps: int, step: Step, names: tuple[str, ...]
) -> Outcome:
    runner = import_module(f"{_PACKAGE}.runner")
    seconds: list[float] = []
    _register(host, inputs)

    def body(rank: int) -> list[tuple[torch.Tensor, ...]]:
        layer = runner.DSV41MonoLayer(shapes.tp, rank, None)
        outputs = []
        for index in range(steps):
            start = time.perf_counter()
            outputs.append(tuple(t.cpu() for t in step(layer, index)))
            if rank == 0:
                seconds.append(time.perf_counter() - start)
        return outputs

    outputs = host.run(body)
    return Outcome(tuple(seconds), _problems(outputs, names))


def _forward_arguments(inputs: Inputs) -> dict[str, torch.Tensor]:
    return {name: value.to("cuda") for name, value in inputs.step.items()}


def run_layer(host: SimulatedHost, shapes: Shapes, inputs: Inputs, steps: int) -> Outcome:
    """K1 and K2 of a whole layer. Each step takes the last one's outputs in, so a wrong step shows in the next."""
    weights = _weights(inputs)
    caches: dict[int, dict[str, torch.Tensor]] = {}
    names = ("out", "residual", "post", "comb", "pre")

    def step(layer: Any, index: int) -> tuple[torch.Tensor, ...]:
        if layer.rank not in caches:
            caches[layer.rank] = _forward_arguments(inputs)
        arguments = caches[layer.rank]
        outputs: tuple[torch.Tensor, ...] = layer.forward(weights, **arguments)
        arguments.update(zip(("x", "residual", "post_mix", "res_mix", "pre_mix"), outputs, strict=True))
        return outputs

    return _run(host, shapes, inputs, steps, step, names)


def run_k1(host: SimulatedHost, shapes: Shapes, inputs: Inputs, steps: int) -> Outcome:
    """K1 alone. Its epoch is moved on by hand, as K2's last CTA does; without it every tag would be live already."""
    weights = _weights(inputs)
    caches: dict[int, dict[str, torch.Tensor]] = {}

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def step(layer: Any, index: int) -> tuple[torch.Tensor, ...]:
        if layer.rank not in caches:
            caches[layer.rank] = _forward_arguments(inputs)
        arguments = caches[layer.rank]
        key = (shapes.tokens, shapes.ratio, True, False)
        layer._kernels[key] = (layer.kernels(shapes.tokens, shapes.ratio)[0], nothing)
        layer.forward(weights, **arguments)
        layer.epoch[0] += 1
        rows = slice(0, shapes.tokens)
        return layer.res_mid[rows], layer.post_a[rows], layer.comb_a[rows], layer.pre_a[rows], layer.q[rows]

    return _run(host, shapes, inputs, steps, step, ("res_mid", "post", "comb", "pre", "q"))


def run_ffn(host: SimulatedHost, shapes: Shapes, inputs: Inputs, steps: int) -> Outcome:
    """The FFN launch, from an attention partial (a rank's share of `x`)."""
    weights = _weights(inputs)
    names = ("out", "residual", "post", "comb", "pre")

    def step(layer: Any, index: int) -> tuple[torch.Tensor, ...]:
        given = {n: inputs.step[n].to("cuda") for n in ("residual", "post_mix", "res_mix", "pre_mix")}
        part = (inputs.step["x"] * ((layer.rank + 1) / shapes.tp)).to("cuda")
        outputs: tuple[torch.Tensor, ...] = layer.ffn(weights, part, **given)
        return outputs

    return _run(host, shapes, inputs, steps, step, names)
