"""Stages in, Schedule out: placement, hand-off forms, barriers, regions, in that order.

Decisions that need numbers (does a stage fill the grid, which form is cheaper at which width) take them from
a first printout of the plan, so that the schedule never has a second opinion of what a formula is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monoc.schedule.barriers import place_barriers
from monoc.schedule.formula import Formula
from monoc.schedule.handoff import Traffic, choose_form
from monoc.schedule.loader import PlanModule, load_plan
from monoc.schedule.model import TRUE, Form, FormRule, Launch, Schedule, Variant
from monoc.schedule.placement import place_stages
from monoc.schedule.printer import print_plan
from monoc.schedule.regions import HandOffError, collect_edges, collect_regions, share_bytes, writers
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
    plain = {
        la.name: {r: (FormRule(w.default, TRUE, ""),) for r, (_, w) in writers(la).items()} for la in draft.launches
    }
    plan = load_plan(print_plan(_assemble(draft, target, draft.launches, plain)))
    probes = list(_probes(plan))
    launches, rules = [], {}
    for launch in draft.launches:
        tables = [(b, tabulate(plan, b, launch.name)) for b in probes if plan.LAUNCHES[launch.name].runs(b)]
        fills = {
            s.name: bool(seen := [t.stages[s.name].tasks for _, t in tables if s.name in t.stages])
            and min(seen) >= draft.grid
            for s in launch.stages
        }
        places = {stage: cta for (where, stage), cta in draft.places.items() if where == launch.name}
        launches.append(place_stages(launch, fills, places))
        rules[launch.name] = {
            region: choose_form(
                write,
                list(_traffic(tables, region)),
                target.costs,
                draft.threads,
                draft.forms.get((launch.name, region)),
            )
            for region, (_, write) in writers(launch).items()
        }
    return _assemble(draft, target, tuple(launches), rules)


def _assemble(
    draft: Draft,
    target: Target,
    launches: tuple[Launch, ...],
    rules: Mapping[str, Mapping[str, tuple[FormRule, ...]]],
) -> Schedule:
    edges = {la.name: collect_edges(la, rules[la.name]) for la in launches}
    return Schedule(
        name=draft.name,
        target=target.name,
        grid=draft.grid,
        threads=draft.threads,
        dims=draft.dims,
        properties=draft.properties,
        variants=draft.variants,
        require=draft.require,
        launches=tuple(replace(la, barriers=place_barriers(la, edges[la.name])) for la in launches),
        regions=share_bytes(tuple(r for la in launches for r in collect_regions(la, edges[la.name]))),
        edges=tuple(e for la in launches for e in edges[la.name]),
    )


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


def _traffic(tables: list[tuple[Any, LaunchTable]], region: str) -> Iterator[Traffic]:
    for b, table in tables:
        for _, write in table.writers(region):
            reads = [r for s in table.stages.values() for r in s.reads if r.region == region and len(r.count)]
            if reads and write.total:
                yield Traffic(
                    tokens=b.tokens,
                    tp=b.tp,
                    task_words=max(write.words * int(r.count.max()) // (write.total * r.part) for r in reads),
                    all_words=sum(write.words * int(r.count.sum()) // (write.total * r.part) for r in reads),
                )
