"""The critical chain of a launch: the longest run of hand-offs from its first task to its last.

Counted in units of a device-scope round trip: a pair 1, a flag 2, a grid barrier 3, a push to all ranks or to an owner
2 (a two-hop exchange is one of each). At small step widths a layer's time is this chain's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monoc.schedule.tables import LaunchTable

__all__ = ["COSTS", "Chain", "critical_chain"]

COSTS: Mapping[str, int] = {"pair": 1, "flag": 2, "barrier": 3, "peer": 2, "two_hop": 2}


@dataclass(frozen=True)
class Chain:
    """``length`` in round trips; ``hops``: (region, form, reader) along the chain, the first stage before them."""

    length: int
    first: str
    hops: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        return self.first + "".join(f" -{form}-> {reader}" for _, form, reader in self.hops)


def critical_chain(table: LaunchTable) -> Chain:
    """The longest chain of ``table``'s build; between equals, the one whose last stage comes first.

    A barrier costs once however many regions it orders: what follows it starts from the longest chain before it. A wait
    on the own stage (an odd task on its even neighbour) adds its hop once.
    """
    best: dict[str, Chain] = {}
    at_barrier: Chain | None = None
    for stage in sorted(table.stages.values(), key=lambda s: s.position):
        if stage.name in table.barriers:
            longest = max([*best.values(), *([at_barrier] if at_barrier else [])], key=lambda c: c.length)
            at_barrier = Chain(
                longest.length + COSTS["barrier"], longest.first, (*longest.hops, ("grid", "barrier", ""))
            )
        chains = [Chain(0, stage.name, ())]
        if at_barrier is not None:
            hops = (*at_barrier.hops[:-1], ("grid", "barrier", stage.name))
            chains.append(Chain(at_barrier.length, at_barrier.first, hops))
        own = []
        for read in stage.reads:
            form = table.regions[read.region].form
            if not read.count.any() or form == "barrier":
                continue
            for writer, _ in table.writers(read.region):
                if writer is stage:
                    own.append((read.region, form, stage.name))
                elif writer.name in best:
                    before = best[writer.name]
                    hop = (read.region, form, stage.name)
                    chains.append(Chain(before.length + COSTS[form], before.first, (*before.hops, hop)))
        chain = max(chains, key=lambda c: c.length)
        for hop in own:
            chain = Chain(chain.length + COSTS[hop[1]], chain.first, (*chain.hops, hop))
        best[stage.name] = chain
    return max(best.values(), key=lambda c: c.length, default=Chain(0, "", ()))
