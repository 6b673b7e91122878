"""order-stages: program order. Producers first; where several stages are ready, those on the longer way to the end
first.

CTAs run stages in this order, so a stage stands as early as its inputs allow (its level), and of a level the one the
rest of the launch waits for comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from monoc.passes.layer import FusedStage, Layer, PassError
from monoc.skeletons.expert_down import ExpertDownParams
from monoc.skeletons.expert_up import ExpertUpParams

__all__ = ["OrderStages"]


@dataclass(frozen=True)
class OrderStages:
    """The order of a launch's stages, and what follows from who comes before whom."""

    name: str = "order-stages"

    def run(self, layer: Layer) -> Layer:
        return replace(layer, stages={launch: _ordered(launch, stages) for launch, stages in layer.stages.items()})


def _ordered(launch: str, stages: tuple[FusedStage, ...]) -> tuple[FusedStage, ...]:
    writer = {w.region: s.name for s in stages for w in s.shape.writes}
    needs = {
        s.name: {writer[r.region] for r in s.shape.reads if writer.get(r.region, s.name) != s.name} for s in stages
    }
    level = _depth(launch, needs)
    readers: dict[str, set[str]] = {s.name: set() for s in stages}
    for name, before in needs.items():
        for other in before:
            readers[other].add(name)
    remaining = _depth(launch, readers)
    return _keeping(tuple(sorted(stages, key=lambda s: (level[s.name], -remaining[s.name]))))


def _keeping(stages: tuple[FusedStage, ...]) -> tuple[FusedStage, ...]:
    """An expert down stage right behind its expert up stage finds the sorted picks in LDS."""
    out = list(stages)
    for k, (before, stage) in enumerate(pairwise(stages), 1):
        up, down = before.params, stage.params
        if isinstance(up, ExpertUpParams) and isinstance(down, ExpertDownParams) and up.mid == down.mid:
            out[k] = replace(stage, params=replace(down, kept="True"))
    return tuple(out)


def _depth(launch: str, needs: dict[str, set[str]]) -> dict[str, int]:
    """The longest way from a stage without needs."""
    depth: dict[str, int] = {}
    while len(depth) < len(needs):
        ready = [n for n, before in needs.items() if n not in depth and before <= depth.keys()]
        if not ready:
            a, b = [n for n in needs if n not in depth][:2]
            raise PassError(f"order-stages: launch {launch}: {a} and {b} each wait for the other")
        depth |= {n: max((depth[m] + 1 for m in needs[n]), default=0) for n in ready}
    return depth
