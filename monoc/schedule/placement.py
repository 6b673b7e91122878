"""Placement: the CTA a stage's task 0 runs on.

A running cursor, in ``plan.py`` itself: a stage starts at the CTA after the last one the stages before it occupy,
modulo the grid. Neighbours in program order then sit on different CTAs: independent stages run side by side, a
consumer's weights stream on CTAs that are not busy with its producers, and a stage of a grid and a bit gives its second
tasks to CTAs that had none of the small stages before. The spec's schedule section may fix a stage's first CTA; the
cursor goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monoc.schedule.formula import Formula
from monoc.schedule.model import Launch

__all__ = ["place_stages"]


def place_stages(launch: Launch, fixed: Mapping[str, Formula]) -> Launch:
    """``launch`` with every stage's placement and why. ``fixed``: first CTAs the spec fixed, by stage name."""
    placed, before = [], ""
    for stage in launch.stages:
        if stage.name in fixed:
            first, reason = fixed[stage.name], "as the spec's schedule section says"
        else:
            first, reason = None, f"after {before}" if before else "first on the grid"
        placed.append(replace(stage, first_cta=first, placement_reason=reason))
        before = stage.name
    return replace(launch, stages=tuple(placed))
