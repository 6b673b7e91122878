"""What a launch left in memory on every rank, copied when it ended, and the emitted launches' share of it as values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from monoc.sim.host import DeviceMemory
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Build, Entry, Launch, Program
from monoc.verify.regions import LaunchMemory, Seen, read_regions
from monoc.verify.watch import package_build, region_bytes

__all__ = ["KEPT", "Left", "copy_left", "emitted_values"]

KEPT = (
    "q",
    "kt",
    "klen",
    "res_mid",
    "post_a",
    "comb_a",
    "pre_a",
    "y",
    "q_lat",
    "normed",
    "qr",
)  # attributes of either runner


@dataclass
class Left:
    """By rank: bytes of the scratch buffer and of the peer buffer (a benchmark's only step is its first, so its half
    of the peer buffer is the first), tensors the runner keeps for its next launch, caches."""

    scratch: list[torch.Tensor] = field(default_factory=list)
    peer: list[torch.Tensor] = field(default_factory=list)
    kept: list[dict[str, torch.Tensor]] = field(default_factory=list)
    caches: list[dict[str, torch.Tensor]] = field(default_factory=list)


def copy_left(
    runners: Mapping[int, Any],
    caches: Mapping[int, Mapping[str, torch.Tensor]],
    scratch: Callable[[Any], torch.Tensor],
    memory: DeviceMemory,
    peer_bytes: int | None = None,
) -> Left:
    """A copy of what the last launch of ``runners`` left; ``scratch``: a runner's scratch buffer;
    ``peer_bytes``: of the peer buffer from its start, all if None."""
    left = Left()
    for rank, runner in sorted(runners.items()):
        left.scratch.append(_plain(scratch(runner)))
        first = memory.view(runner.peer.local, 1)
        whole = torch.empty(0, dtype=torch.uint8).set_(first.untyped_storage())
        left.peer.append(_plain(whole[first.storage_offset() :][:peer_bytes]))
        left.kept.append({n: _plain(getattr(runner, n)) for n in KEPT if hasattr(runner, n)})
        left.caches.append({n: _plain(c) for n, c in caches.get(rank, {}).items()})
    return left


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().clone()


def emitted_values(
    program: Program,
    plan: Any,
    build: Build,
    entry: Entry,
    left: Mapping[str, Left],
    outputs: list[dict[str, torch.Tensor]],
    given: tuple[Mapping[str, torch.Tensor], ...],
) -> dict[str, Seen]:
    """Every value the emitted launches of ``entry`` left, by the name it has in the spec's program."""
    env = program.environment(build)
    found: dict[str, Seen] = {}
    for launch in entry.launches:
        here = left[launch.name]
        b = package_build(program, plan, build, barriers=False)
        both = zip(here.scratch, here.peer, strict=True)
        regions = tuple(region_bytes(plan, b, launch.name, scratch, peer) for scratch, peer in both)
        memory = LaunchMemory(program, launch, env, plan, b, regions, given)
        found |= read_regions(memory, found)
        made = {r for s in memory.statements() for r in s.results}
        leaving = {n for n in made if n not in found and _leaves(entry, launch, n, env)}
        for name in leaving & here.kept[0].keys():
            rows = tuple(k[name][: b.tokens].float() for k in here.kept)
            found[name] = Seen(name, rows, "memory")
    for name in entry.outputs:
        found[name] = Seen(name, tuple(o[name].float() for o in outputs), "an output")
    return found


def _leaves(entry: Entry, launch: Launch, name: str, env: Mapping[str, BuildValue]) -> bool:
    """Whether a later launch or a host call of this build reads ``name``; if none does, no launch writes it."""
    if any(name in step.arguments and step.guard.evaluate(env) for step in entry.host_calls):
        return True
    later = (s for la in entry.launches if la is not launch for s in la.statements)
    return any(name in s.operands and s.guard.evaluate(env) for s in later)
