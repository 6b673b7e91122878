"""Placement: the CTA a stage's task 0 runs on.

A running cursor: a stage starts at the CTA after the last one the stages before it occupy, so neighbours in
program order sit on different CTAs. Independent stages then run side by side, and a consumer's weights stream
on CTAs that are not busy with its producers. A stage that fills the grid starts over at CTA 0. The sum runs
past the grid freely: it is taken modulo the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monoc.schedule.formula import Formula, add, formula
from monoc.schedule.model import ZERO, Launch, Stage, StageShape

__all__ = ["place_stages"]


def place_stages(launch: Launch, fills: Mapping[str, bool], overrides: Mapping[str, Formula]) -> Launch:
    """``launch`` with every stage's ``first_cta``. ``fills``: whether a stage's tasks fill the grid in every
    build; ``overrides``: first CTAs the spec fixed, by stage name."""
    cursor, placed = ZERO, []
    after = ""
    for stage in launch.stages:
        first, reason = cursor, f"after {after}" if after else "first on the grid"
        if fills[stage.name]:
            first, reason = ZERO, "fills the grid"
        if stage.name in overrides:
            first, reason = overrides[stage.name], "as the spec's schedule section says"
        placed.append(replace(stage, first_cta=first, placement_reason=reason))
        cursor = ZERO if fills[stage.name] else add(first, _occupied(stage))
        after = "" if fills[stage.name] else stage.name
    return replace(launch, stages=tuple(placed))


def _occupied(stage: Stage) -> Formula:
    tasks = _wrapped(stage.shape)
    return tasks if stage.guard == "True" else formula(f"({tasks} if {stage.guard} else 0)")


def _wrapped(shape: StageShape) -> Formula:
    atom = shape.tasks.replace("b.", "", 1)
    return shape.tasks if atom.isidentifier() or atom.isdigit() else formula(f"({shape.tasks})")
