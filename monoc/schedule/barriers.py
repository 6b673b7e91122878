"""Grid barriers: where the barrier form of a launch needs one.

Greedy in program order: a stage that reads a barrier-form region gets a barrier in front of it unless one
already lies between it and the region's writer; one barrier serves all regions written before it.
"""

from __future__ import annotations

from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, Barrier, Edge, Form, Launch, Stage

__all__ = ["place_barriers"]


def place_barriers(launch: Launch, edges: tuple[Edge, ...]) -> tuple[Barrier, ...]:
    """The barriers of ``launch``, in program order."""
    position = {stage.name: k for k, stage in enumerate(launch.stages)}
    found: list[Barrier] = []
    for stage in launch.stages:
        for when in _conditions(edges, stage):
            needed = [
                e.region
                for e in edges
                if e.consumer == stage.name and _when(e) == when and not _fenced(launch, found, position, e)
            ]
            if needed:
                found.append(Barrier(stage.name, _and(when, stage.guard), tuple(needed)))
    return tuple(found)


def _conditions(edges: tuple[Edge, ...], stage: Stage) -> list[Formula]:
    return list(dict.fromkeys(w for e in edges if e.consumer == stage.name and (w := _when(e)) is not None))


def _when(edge: Edge) -> Formula | None:
    """In which builds the edge is of barrier form."""
    earlier = [r for r in edge.rules if r.form is Form.BARRIER]
    return earlier[0].when if earlier else None


def _fenced(launch: Launch, found: list[Barrier], position: dict[str, int], edge: Edge) -> bool:
    guards = {s.name: s.guard for s in launch.stages}
    return any(
        position[edge.producer] < position[b.before] <= position[edge.consumer]
        and guards[b.before] in (TRUE, guards[edge.producer], guards[edge.consumer])
        and _when(edge) in (b.when, _plain(b, guards))
        for b in found
    )


def _plain(barrier: Barrier, guards: dict[str, Formula]) -> Formula:
    """The barrier's condition without the guard of the stage it precedes."""
    suffix = f" and ({guards[barrier.before]})"
    return Formula(barrier.when.removesuffix(suffix))


def _and(when: Formula, guard: Formula) -> Formula:
    return when if guard == TRUE else formula(f"{when} and ({guard})")
