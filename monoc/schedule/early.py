"""Which stages' weights are requested before an earlier stage waits."""

from __future__ import annotations

from monoc.schedule.model import ZERO, Launch, Stage

__all__ = ["early_arguments", "request_points"]


def early_arguments(stage: Stage) -> tuple[str, ...]:
    """The kernel arguments of the stage's weight request; empty if its skeleton has none."""
    return tuple(getattr(stage.params, "early", ()))


def request_points(launch: Launch) -> dict[str, str]:
    """Stage -> the earlier stage before which its weights are requested, in builds where it gives no CTA two tasks.

    That is the nearest earlier stage that streams weights, if it too can request them: both streams are then under way
    while the CTA waits for the first stage's input. Behind any other stage a request would only delay that stage's own
    loads, since loads return in order; a CTA without tasks there reaches this stage at once anyway.
    """
    points: dict[str, str] = {}
    before: Stage | None = None
    for stage in launch.stages:
        if early_arguments(stage) and before is not None and early_arguments(before):
            points[stage.name] = before.name
        if stage.shape.weight_bytes != ZERO:
            before = stage
    return points
