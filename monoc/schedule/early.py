"""Which stages' weights are requested before an earlier stage waits."""

from __future__ import annotations

from monoc.schedule.model import ZERO, Launch, Stage

__all__ = ["early_arguments", "request_points"]


def early_arguments(stage: Stage) -> tuple[str, ...]:
    """The kernel arguments of the stage's weight request; empty if its skeleton has none."""
    return tuple(getattr(stage.params, "early", ()))


def request_points(launch: Launch) -> dict[str, str]:
    """Stage -> the earlier stage before which its weights are requested, in builds where it gives no CTA two tasks.

    Stages that can request their weights come in runs, between them others that stream weights. A run's weights are
    requested before the last stage of the run before it waits; in the first run, before its first stage does. So the
    memory works while the CTAs wait, and what was requested has arrived when the stages between ask for their own
    words (loads return in order; a request just before those would only delay them). No weights are held over more
    than one such gap.
    """
    points: dict[str, str] = {}
    run: list[str] = []
    before = ""
    for stage in launch.stages:
        if early_arguments(stage):
            run.append(stage.name)
            if before or len(run) > 1:
                points[stage.name] = before or run[0]
        elif stage.shape.weight_bytes != ZERO and run:
            before, run = run[-1], []
    return points
