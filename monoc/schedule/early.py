"""Which stages' weights are requested before an earlier stage waits."""

from __future__ import annotations

from monoc.schedule.model import Launch, Stage

__all__ = ["early_arguments", "request_points"]


def early_arguments(stage: Stage) -> tuple[str, ...]:
    """The kernel arguments of the stage's weight request; empty if its skeleton has none."""
    return tuple(getattr(stage.params, "early", ()))


def request_points(launch: Launch) -> dict[str, str]:
    """Stage -> the earlier stage before which its weights are requested, in builds where it gives no CTA two tasks.

    That is the nearest earlier stage that can request its own: both streams are then under way while the CTA waits for
    the first stage's input, and have arrived when stages between the two ask for their own words (loads return in
    order). A CTA without tasks there reaches this stage at once anyway.
    """
    points: dict[str, str] = {}
    before: Stage | None = None
    for stage in launch.stages:
        if early_arguments(stage):
            if before is not None:
                points[stage.name] = before.name
            before = stage
    return points
