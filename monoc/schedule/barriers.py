"""Grid barriers: where the barrier form of a launch needs one.

Greedy in program order: a stage that reads a barrier-form region gets a barrier in front of it unless one already
lies between it and the region's writer in every build that has both; one barrier serves all regions written before it.
"""

from __future__ import annotations

from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, Barrier, Edge, Form, Launch

__all__ = ["place_barriers"]


def place_barriers(launch: Launch, edges: tuple[Edge, ...]) -> tuple[Barrier, ...]:
    """The barriers of ``launch``, in program order."""
    position = {stage.name: k for k, stage in enumerate(launch.stages)}
    guard = {stage.name: stage.guard for stage in launch.stages}
    found: list[tuple[Barrier, tuple[Formula, ...]]] = []
    for stage in launch.stages:
        needed: dict[tuple[Formula, ...], list[str]] = {}
        for edge in edges:
            conditions = _conditions(edge, guard)
            if edge.consumer != stage.name or not conditions or edge.producer not in position:
                continue
            fenced = any(
                position[edge.producer] < position[b.before] <= position[stage.name] and set(when) <= set(conditions)
                for b, when in found
            )
            if not fenced:
                needed.setdefault(conditions, []).append(edge.region)
        # Fewest conditions first: the barrier of an edge that is always there serves the others too.
        for conditions in sorted(needed, key=len):
            if not any(b.before == stage.name and set(when) <= set(conditions) for b, when in found):
                regions = [r for c, names in needed.items() if set(conditions) <= set(c) for r in names]
                found.append((Barrier(stage.name, _all(conditions), tuple(regions)), conditions))
    return tuple(b for b, _ in found)


def _conditions(edge: Edge, guard: dict[str, Formula]) -> tuple[Formula, ...]:
    """What must hold for the edge to exist and be of barrier form; empty if it never is."""
    rule = next((r for r in edge.rules if r.form is Form.BARRIER), None)
    if rule is None:
        return ()
    parts = (rule.when, guard.get(edge.producer, TRUE), guard[edge.consumer])
    return tuple(dict.fromkeys(p for p in parts if p != TRUE)) or (TRUE,)


def _all(conditions: tuple[Formula, ...]) -> Formula:
    if len(conditions) == 1:
        return conditions[0]
    return formula(" and ".join(c if c.replace("b.", "").isidentifier() else f"({c})" for c in conditions))
