"""Stages in, Schedule out: placement, hand-off forms, barriers, regions, in that order.

Decisions that need numbers (does a stage fill the grid, which form is cheaper at which width) take them from
a first printout of the plan, so that the schedule never has a second opinion of what a formula is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monoc.schedule.barriers import place_barriers
from monoc.schedule.formula import Formula, formula
from monoc.schedule.handoff import Traffic, choose_form
from monoc.schedule.loader import PlanModule, load_plan
from monoc.schedule.memo import ByFields
from monoc.schedule.model import TRUE, ZERO, Form, FormRule, Launch, Schedule, Variant
from monoc.schedule.parameters import scratch_parameters
from monoc.schedule.placement import place_stages
from monoc.schedule.printer import print_plan
from monoc.schedule.regions import (
    LEAVES,
    HandOffError,
    carried_regions,
    collect_edges,
    collect_regions,
    share_bytes,
    writers,
)
from monoc.schedule.tables import LaunchTable, tabulate
from monoc.target import Target

__all__ = ["Draft", "make_schedule"]

# Widths the cost rule compares at: all small ones, then coarser; a change of form takes effect at one of these.
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 48, 64)


@dataclass(frozen=True)
class Draft:
    """Everything the scheduler is given. ``forms``: hand-off forms the spec fixed with their reasons, by
    (launch, region); ``places``: first CTAs it fixed, by (launch, stage)."""

    name: str
    grid: int
    threads: int
    dims: tuple[tuple[str, int], ...]
    properties: tuple[tuple[str, Formula], ...]
    variants: tuple[Variant, ...]
    require: tuple[Formula, ...]
    launches: tuple[Launch, ...]
    forms: Mapping[tuple[str, str], tuple[Form, str]] = field(default_factory=dict)
    places: Mapping[tuple[str, str], Formula] = field(default_factory=dict)


def make_schedule(draft: Draft, target: Target) -> Schedule:
    """The schedule of ``draft`` on ``target``. Raises :class:`~monoc.schedule.regions.HandOffError`."""
    _check_overrides(draft)
    carried = carried_regions(draft.launches)
    leaving = {(source, region) for (_, region), (source, _, _) in carried.items()}
    plain = {
        (la.name, r): (FormRule(w.default, TRUE, ""),) for la in draft.launches for r, (_, w) in writers(la).items()
    } | dict.fromkeys(carried, (LEAVES,))
    plan = load_plan(print_plan(_assemble(draft, target, draft.launches, plain)))
    probes = list(_probes(plan))
    launches: list[Launch] = []
    rules: dict[tuple[str, str], tuple[FormRule, ...]] = {}
    for launch in draft.launches:
        tables = list(_tables(plan, launch.name, probes))
        places = {stage: cta for (where, stage), cta in draft.places.items() if where == launch.name}
        launches.append(place_stages(launch, places))
        for region, (stage, write) in writers(launch).items():
            at = launch.name, region
            if at in leaving and not any(r.region == region for s in launch.stages for r in s.shape.reads):
                rules[at] = (LEAVES,)
                continue
            if at in carried:
                # Its bytes are plain data in the builds where the earlier launch wrote them: never tags here.
                plain_forms = tuple(form for form in write.forms if not form.tagged)
                write = replace(write, forms=plain_forms, default=plain_forms[0])
            chosen = choose_form(
                write, list(_traffic(tables, region)), target.costs, draft.threads, draft.forms.get(at)
            )
            if at in carried:
                chosen = (_from_before(carried[at][0], stage.guard), *chosen)
            rules[at] = chosen
        rules |= {at: (_from_before(source, ZERO),) for at, (source, _, _) in carried.items() if at not in rules}
    return _assemble(draft, target, tuple(launches), rules)


def _assemble(
    draft: Draft,
    target: Target,
    launches: tuple[Launch, ...],
    rules: Mapping[tuple[str, str], tuple[FormRule, ...]],
) -> Schedule:
    edges = collect_edges(launches, rules)
    schedule = Schedule(
        name=draft.name,
        target=target.name,
        grid=draft.grid,
        threads=draft.threads,
        dims=draft.dims,
        properties=draft.properties,
        variants=draft.variants,
        require=draft.require,
        launches=tuple(
            replace(la, barriers=place_barriers(la, tuple(e for e in edges if e.launch == la.name))) for la in launches
        ),
        regions=share_bytes(collect_regions(launches, edges)),
        edges=edges,
    )
    return replace(schedule, scratch_key=(*schedule.scratch_key, *scratch_parameters(schedule)))


def _from_before(source: str, own: Formula) -> FormRule:
    """The form of a carried region where this launch's own writer (guard ``own``) does not run."""
    when = TRUE if own == ZERO else formula(f"not ({own})")
    return FormRule(Form.LAUNCH, when, f"launch {source} wrote it: the launch boundary published it")


def _check_overrides(draft: Draft) -> None:
    regions = {(la.name, r): w for la in draft.launches for r, (_, w) in writers(la).items()}
    for (launch, region), (form, _) in draft.forms.items():
        if (launch, region) not in regions:
            known = ", ".join(sorted(r for la, r in regions if la == launch)) or "none"
            raise HandOffError(
                f"the schedule section gives a form to {region!r}, which is no hand-off of launch {launch}; "
                f"its hand-offs are: {known}"
            )
        if form not in regions[launch, region].forms:
            served = ", ".join(f.value for f in regions[launch, region].forms)
            raise HandOffError(
                f"the schedule section asks for form {form.value!r} of {region!r} in launch {launch}; "
                f"its stage serves {served}"
            )


def _probes(plan: PlanModule) -> Iterator[Any]:
    """Builds that stand for all: every (variant, tp) at the widths of the rule, with its options all off and
    each on."""
    for variant, fields in plan.VARIANTS.items():
        choices = {n: v for n, v in fields.items() if n not in ("tokens", "tp")}
        combos: list[dict[str, Any]] = [{n: v[0] for n, v in choices.items()}]
        combos += [{**combos[0], n: value} for n, v in choices.items() for value in v[1:]]
        combos.append({n: v[-1] for n, v in choices.items()})
        for tokens in sorted(set(fields["tokens"]) & set(_WIDTHS) | {max(fields["tokens"])}):
            for tp in fields["tp"]:
                for combo in {tuple(c.items()): c for c in combos}.values():
                    try:
                        yield plan.Plan(tokens=tokens, tp=tp, variant=variant, **combo)
                    except ValueError:
                        continue  # the spec rules this combination out


def _tables(plan: PlanModule, launch: str, probes: list[Any]) -> Iterator[tuple[Any, LaunchTable]]:
    """The launch in every probe that differs from those before."""
    table = ByFields(lambda b: tabulate(plan, b, launch) if plan.LAUNCHES[launch].runs(b) else None)
    for b in probes:
        found, new = table(b)
        if found is not None and new:
            yield b, found


def _traffic(tables: list[tuple[Any, LaunchTable]], region: str) -> Iterator[Traffic]:
    for b, table in tables:
        for _, write in table.writers(region):
            reads = [r for s in table.stages.values() for r in s.reads if r.region == region and len(r.count)]
            if reads and write.total:
                yield Traffic(
                    tokens=b.tokens,
                    tp=b.tp,
                    task_words=max(write.words * int(r.count.max()) // (write.total * r.part) for r in reads),
                    readers=sum(min(len(r.count), table.grid) for r in reads),
                    all_words=sum(write.words * int(r.count.sum()) // (write.total * r.part) for r in reads),
                )
