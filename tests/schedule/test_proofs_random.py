"""The acyclicity proof against execution: random launches run task by task, and deadlock exactly where the proof says
so.

Waits are monotone (a unit once announced stays announced), so whether placed tasks get stuck does not depend on the
order CTAs run in. Tasks of a queue go to whichever CTA asks first; there the proof has to hold for every order tried.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from layer import draft, own, read, small, stage, units, write

from monoc.schedule.formula import formula
from monoc.schedule.loader import load_plan
from monoc.schedule.make import make_schedule
from monoc.schedule.model import Field, Form, Launch, Schedule, Stage, Take, Variant
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs.acyclic import prove_acyclic
from monoc.schedule.proofs.handoffs import prove_handoffs
from monoc.schedule.tables import LaunchTable, tabulate
from monoc.target import GFX950

GRID = 4


@dataclass
class Machine:
    """CTAs running a launch, one task at a time; a task runs its steps in order and blocks at a wait."""

    table: LaunchTable
    choose: random.Random
    announced: set[tuple[str, int]] = field(default_factory=set)
    taken: dict[str, int] = field(default_factory=dict)

    def finishes(self) -> bool:
        programs = [self._program(cta) for cta in range(self.table.grid)]
        waiting: list[set[tuple[str, int]] | None] = [set() for _ in programs]
        while any(w is not None for w in waiting):
            ready = [c for c, w in enumerate(waiting) if w is not None and w <= self.announced]
            if not ready:
                return False
            cta = self.choose.choice(ready)
            waiting[cta] = next(programs[cta], None)
        return True

    def _program(self, cta: int):  # type: ignore[no-untyped-def]
        """What the CTA waits for next, again and again."""
        for s in self.table.stages.values():
            for task in self._tasks(s, cta):
                steps = sorted({a.step for a in (*s.reads, *s.writes)})
                for step in steps:
                    yield {(r.region, u) for r in s.reads if r.step == step for u in _units(r, task)}
                    self.announced |= {(w.region, u) for w in s.writes if w.step == step for u in _units(w, task)}

    def _tasks(self, s, cta: int):  # type: ignore[no-untyped-def]
        first = (cta - s.first_cta) % self.table.grid
        if s.take == "placed":
            yield from range(first, s.tasks, self.table.grid)
            return
        if first < s.tasks:
            yield first
        while self.taken.setdefault(s.name, self.table.grid) < s.tasks:
            self.taken[s.name] += 1
            yield self.taken[s.name] - 1


def _units(access, task: int) -> list[int]:  # type: ignore[no-untyped-def]
    first, count, stride = (int(x[task]) for x in (access.first, access.count, access.stride))
    return [first + k * stride for k in range(count)]


def scheduled(stages: list[Stage]) -> Schedule:
    base = small(draft())
    variants = (Variant("target", (Field("tokens", (1,)), Field("tp", (2,)))),)
    launch = Launch("k2", tuple(stages), tag=2, ends_epoch=True)
    return make_schedule(replace(base, grid=GRID, properties=(), variants=variants, launches=(launch,)), GFX950)


def table_of(schedule: Schedule) -> LaunchTable:
    plan = load_plan(print_plan(schedule))
    return tabulate(plan, plan.Plan(tokens=1, tp=2), "k2")


@st.composite
def launches(draw: st.DrawFn, takes: tuple[Take, ...] = (Take.PLACED,)) -> list[Stage]:
    """A few stages; each reads some of what the ones before it wrote: one unit, all, or a shifted one."""
    stages: list[Stage] = []
    for k in range(draw(st.integers(2, 5))):
        tasks = draw(st.integers(1, 9))
        reads = []
        for before in stages:
            total = int(before.shape.tasks)
            how = draw(st.sampled_from(["no", "no", "one", "all", "some"]))
            if how == "one":
                reads.append(read(f"r_{before.name}", units(f"(i + {draw(st.integers(0, 3))}) % {total}")))
            elif how == "all":
                reads.append(read(f"r_{before.name}", units("0", str(total))))
            elif how == "some":
                reads.append(read(f"r_{before.name}", units(f"i % {total}", f"({total} - i % {total} + 1) // 2", "2")))
        forms = (Form.PAIR,)
        writes = (write(f"r_s{k}", str(8 * tasks), str(tasks), own(), forms=forms),)
        take = draw(st.sampled_from(takes))
        counters = () if take is Take.PLACED else (f"q{k}",)
        stages.append(stage(f"s{k}", str(tasks), tuple(reads), writes, take=take, counters=counters))
    last = stage("end", "1", tuple(read(f"r_{s.name}", units("0", s.shape.tasks)) for s in stages))
    return [*stages, last]


def reorder(stages: list[Stage], order: list[int]) -> list[Stage]:
    return [stages[k] for k in order]


@settings(max_examples=60, deadline=None)
@given(launches(), st.randoms(use_true_random=False))
def test_launches_in_dependence_order_are_accepted_and_finish(stages: list[Stage], order: random.Random) -> None:
    table = table_of(scheduled(stages))
    assert prove_acyclic(table, "any") == []
    assert prove_handoffs(table, "any") == []
    assert Machine(table, order).finishes()


@settings(max_examples=120, deadline=None)
@given(st.data(), launches(), st.randoms(use_true_random=False))
def test_the_proof_rejects_exactly_what_deadlocks(
    data: st.DataObject, stages: list[Stage], order: random.Random
) -> None:
    shuffled = reorder(stages, data.draw(st.permutations(range(len(stages)))))
    places = [data.draw(st.integers(0, GRID - 1)) for _ in shuffled]
    placed = [replace(s, first_cta=formula(p)) for s, p in zip(shuffled, places, strict=True)]
    schedule = scheduled(stages)
    mixed = replace(schedule, launches=(replace(schedule.launches[0], stages=tuple(placed), barriers=()),))
    table = table_of(mixed)
    failures = prove_acyclic(table, "any")
    assert bool(failures) == (not Machine(table, order).finishes())
    for failure in failures:
        assert set(failure.culprits) <= {s.name for s in stages}


@settings(max_examples=60, deadline=None)
@given(launches(takes=tuple(Take)), st.randoms(use_true_random=False))
def test_queued_tasks_finish_whoever_takes_them(stages: list[Stage], order: random.Random) -> None:
    table = table_of(scheduled(stages))
    assert prove_acyclic(table, "any") == []
    for _ in range(5):
        assert Machine(table, order).finishes()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12), st.integers(0, 11), st.integers(0, 3), st.sampled_from([Take.PLACED, Take.QUEUE]), st.randoms()
)
def test_waits_inside_a_stage(tasks: int, shift: int, place: int, take: Take, order: random.Random) -> None:
    # Task i reads at step 2 what task (i + shift) mod tasks wrote at step 1.
    counters = () if take is Take.PLACED else ("q",)
    inner = stage(
        "hop",
        str(tasks),
        (read("sums", units(f"(i + {shift}) % {tasks}"), step=2),),
        (write("sums", str(tasks), str(tasks), own(), forms=(Form.PAIR,)),),
        take=take,
        counters=counters,
    )
    table = table_of(scheduled([replace(inner, first_cta=formula(place))]))
    accepted = prove_acyclic(table, "any") == []
    finished = all(Machine(table, order).finishes() for _ in range(5))
    assert finished or not accepted  # never accepts what gets stuck
    if take is Take.PLACED:
        assert accepted == finished
