"""What ``monoc plan`` shows of one build, as data: stages, hand-offs with reasons, regions, the critical chain."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from monoc.schedule.chain import critical_chain
from monoc.schedule.formula import Formula
from monoc.schedule.loader import PlanModule, load_plan
from monoc.schedule.model import Launch, Schedule
from monoc.schedule.printer import print_plan
from monoc.schedule.tables import tabulate

__all__ = ["HandOffRow", "LaunchReport", "PlanReport", "RegionRow", "StageRow", "plan_report"]


@dataclass(frozen=True)
class StageRow:
    """A stage of the build. ``first_cta`` is taken modulo the grid; ``weight_bytes``: of all tasks together."""

    name: str
    skeleton: str
    tasks: int
    first_cta: int
    placement: str
    take: str
    weight_bytes: int
    lds_bytes: int
    barrier_before: bool
    statements: tuple[str, ...]


@dataclass(frozen=True)
class HandOffRow:
    """An edge of the build: who hands ``region`` to whom, in which form and why."""

    region: str
    producer: str
    consumer: str
    form: str
    why: str


@dataclass(frozen=True)
class RegionRow:
    """A region: bytes ``offset`` .. + ``bytes`` of its space (of a half, for peer space), from its first to its last
    use."""

    region: str
    space: str
    offset: int
    bytes: int
    form: str
    scope: str
    tag: int
    first: str
    last: str
    shares: str


@dataclass(frozen=True)
class LaunchReport:
    """A launch of the build: its tag, its LDS in bytes, its tables, its critical chain."""

    name: str
    tag: int
    ends_epoch: bool
    stages: tuple[StageRow, ...]
    hand_offs: tuple[HandOffRow, ...]
    regions: tuple[RegionRow, ...]
    lds_bytes: int
    chain_length: int
    chain: str


@dataclass(frozen=True)
class PlanReport:
    """One build: its parameters, its launches, and the bytes of the buffers it needs."""

    build: dict[str, Any]
    launches: tuple[LaunchReport, ...]
    chains: dict[str, dict[int, int]]  # launch -> step width -> length of the critical chain, this build otherwise
    scratch_bytes: int
    peer_bytes: int
    epoch_bytes: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_report(schedule: Schedule, build: dict[str, Any]) -> PlanReport:
    """The report of the build with the given fields. Raises ``ValueError`` or ``TypeError`` for one not served."""
    plan = load_plan(print_plan(schedule))
    b = plan.Plan(**build)
    return PlanReport(
        build={name: getattr(b, name) for name in b.__dataclass_fields__},
        launches=tuple(_launch(schedule, plan, b, la) for la in schedule.launches if plan.LAUNCHES[la.name].runs(b)),
        chains=_chains(schedule, plan, b),
        scratch_bytes=plan.scratch_bytes(b),
        peer_bytes=plan.peer_bytes(b.tp),
        epoch_bytes=plan.epoch_bytes(),
    )


def _chains(schedule: Schedule, plan: PlanModule, b: Any) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for launch in schedule.launches:
        for tokens in plan.VARIANTS[b.variant]["tokens"]:
            other = replace(b, tokens=tokens)
            if plan.LAUNCHES[launch.name].runs(other):
                length = critical_chain(tabulate(plan, other, launch.name)).length
                found.setdefault(launch.name, {})[tokens] = length
    return found


def _launch(schedule: Schedule, plan: PlanModule, b: Any, launch: Launch) -> LaunchReport:
    table = tabulate(plan, b, launch.name)
    chain = critical_chain(table)
    return LaunchReport(
        name=launch.name,
        tag=launch.tag,
        ends_epoch=launch.ends_epoch,
        stages=_stages(plan, b, launch, table.barriers),
        hand_offs=_hand_offs(schedule, plan, b, launch.name, table.edges),
        regions=_regions(schedule, plan, b, launch.name, {r for s in table.stages.values() for r in _used(s)}),
        lds_bytes=plan.lds_bytes(b, launch.name),
        chain_length=chain.length,
        chain=str(chain),
    )


def _used(stage: Any) -> set[str]:
    return {a.region for a in (*stage.reads, *stage.writes)}


def _stages(plan: PlanModule, b: Any, launch: Launch, barriers: tuple[str, ...]) -> tuple[StageRow, ...]:
    known = {s.name: s for s in launch.stages}
    stages = plan.LAUNCHES[launch.name].stages(b)
    return tuple(
        StageRow(
            name=name,
            skeleton=known[name].skeleton,
            tasks=stage.tasks,
            first_cta=stage.first_cta % plan.GRID,
            placement=_placed(known[name].placement_reason, list(stages), name),
            take=stage.take,
            weight_bytes=sum(int(stage.weight_bytes(i)) for i in range(stage.tasks)),
            lds_bytes=stage.lds_bytes,
            barrier_before=name in barriers,
            statements=known[name].statements,
        )
        for name, stage in stages.items()
    )


def _placed(reason: str, stages: list[str], name: str) -> str:
    """The placement's reason in a build of these stages: the stage it comes after may not be among them."""
    after = reason.removeprefix("after ")
    if after == reason or after in stages:
        return reason
    at = stages.index(name)
    return f"after {stages[at - 1]}" if at else "first on the grid"


def _hand_offs(
    schedule: Schedule, plan: PlanModule, b: Any, launch: str, edges: tuple[tuple[str, str, str], ...]
) -> tuple[HandOffRow, ...]:
    regions = plan.LAUNCHES[launch].regions(b)
    rows = []
    for edge in schedule.edges:
        if edge.launch != launch or (edge.region, edge.producer, edge.consumer) not in edges:
            continue
        rule = next(r for r in edge.rules if holds(plan, r.when, b))
        rows.append(HandOffRow(edge.region, edge.producer, edge.consumer, regions[edge.region].form, rule.reason))
    return tuple(rows)


def _regions(schedule: Schedule, plan: PlanModule, b: Any, launch: str, used: set[str]) -> tuple[RegionRow, ...]:
    table, offsets = plan.LAUNCHES[launch].regions(b), plan.offsets(b, launch)
    shares = {r.name: r.shares for r in schedule.regions if r.launch == launch}
    return tuple(
        RegionRow(
            name, r.space, offsets[name], r.bytes, r.form, r.scope, r.tag, r.lifetime[0], r.lifetime[1], shares[name]
        )
        for name, r in table.items()
        if name in used
    )


def holds(plan: PlanModule, when: Formula, b: Any) -> bool:
    """Whether a condition of the schedule (a checked formula) holds in build ``b``."""
    names = {k: v for k, v in vars(plan).items() if k.isupper() or k in ("cdiv", "round_up", "min", "max")}
    return bool(eval(when, {"__builtins__": {}, "min": min, "max": max, **names}, {"b": b}))
