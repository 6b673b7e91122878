"""Proof 5: LDS, CTAs and registers fit the target."""

from __future__ import annotations

from typing import Any

from monoc.schedule.loader import PlanModule
from monoc.schedule.proofs.failure import Failure
from monoc.target import Target

__all__ = ["prove_grid", "prove_lds"]

NAME = "resources"


def prove_grid(plan: PlanModule, target: Target) -> list[Failure]:
    """The grid is resident: a CTA a compute unit, its threads whole waves of all SIMDs."""
    found = []
    if target.cus < plan.GRID:
        message = (
            f"a grid of {plan.GRID} CTAs cannot be resident on {target.cus} compute units: give the spec's target at "
            f"most {target.cus} ctas"
        )
        found.append((("grid", target.name), message))
    if plan.THREADS % (target.wave * target.simds):
        found.append(
            (
                ("threads", target.name),
                f"{plan.THREADS} threads are not whole waves of {target.wave} on {target.simds} SIMDs",
            )
        )
    elif target.vgpr_budget(plan.THREADS) < 128:
        found.append(
            (
                ("threads", target.name),
                f"{plan.THREADS} threads leave {target.vgpr_budget(plan.THREADS)} registers a lane; stages need 128",
            )
        )
    if target.name != plan.TARGET:
        found.append((("plan", target.name), f"the plan is for {plan.TARGET}, not {target.name}"))
    return [Failure(NAME, "", "every build", who, message) for who, message in found]


def prove_lds(plan: PlanModule, b: Any, launch: str, target: Target, build: str) -> list[Failure]:
    """Every stage of ``launch`` fits the LDS of a CTA."""
    found = []
    for name, stage in plan.LAUNCHES[launch].stages(b).items():
        if stage.lds_bytes > target.lds_bytes:
            widest = max(stage.lds, key=lambda m: m.count * plan.DTYPE_BYTES[m.dtype])
            found.append(
                Failure(
                    NAME,
                    launch,
                    build,
                    (name, widest.name),
                    f"stage {name!r} needs {stage.lds_bytes} bytes of LDS, most of them {widest.name!r} "
                    f"({widest.count} {widest.dtype}); {target.name} has {target.lds_bytes}",
                )
            )
        found += _waits(plan, b, launch, name, stage, build)
    return found


def _waits(plan: PlanModule, b: Any, launch: str, name: str, stage: Any, build: str) -> list[Failure]:
    """A wait for flags has a thread a flag; counted units are the stage's own business."""
    table = plan.LAUNCHES[launch].regions(b)
    counted = {w.region for s in plan.LAUNCHES[launch].stages(b).values() for w in s.writes if w.counted}
    found = []
    for read in stage.reads:
        if table[read.region].form != "flag" or read.region in counted or not stage.tasks:
            continue
        most = max(read.units(0).count, read.units(stage.tasks - 1).count)
        if most > plan.THREADS:
            message = f"stage {name!r} waits for {most} flags of region {read.region!r} with {plan.THREADS} threads"
            found.append(Failure(NAME, launch, build, (name, read.region), message))
    return found
