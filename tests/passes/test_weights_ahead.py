"""Weights requested ahead of their stage, and linears cut so that they can be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from specs import program

from monoc.passes.pipeline import draft_schedule
from monoc.schedule.early import request_points
from monoc.schedule.formula import formula
from monoc.schedule.loader import load_plan
from monoc.schedule.make import make_schedule
from monoc.schedule.model import ZERO, Launch, Schedule, Stage, StageShape
from monoc.schedule.printer import print_plan
from monoc.target import GFX950


@cache
def schedule(name: str) -> Schedule:
    return make_schedule(draft_schedule(program(name)), GFX950)


@dataclass(frozen=True)
class _Params:
    early: tuple[str, ...]


def launch(*stages: tuple[str, bool, bool]) -> Launch:
    """A launch of (name, whether it streams weights, whether it can request them)."""

    def made(name: str, streams: bool, requests: bool) -> Stage:
        shape = StageShape(tasks=formula("1"), weight_bytes=formula("64") if streams else ZERO)
        return Stage(name, "", _Params(("w",) if requests else ()), shape)

    return Launch("k", tuple(made(*s) for s in stages))


def test_a_run_is_requested_where_the_run_before_ends() -> None:
    first = [("a", True, True), ("small", False, False), ("b", True, True), ("c", True, True)]
    gap = [("slice", True, False)]
    second = [("d", True, True), ("e", True, True)]
    assert request_points(launch(*first)) == {"b": "a", "c": "a"}
    assert request_points(launch(*gap, *first)) == {"b": "a", "c": "a"}
    assert request_points(launch(*first, *gap, *second)) == {"b": "a", "c": "a", "d": "c", "e": "c"}
    third = [("f", True, True)]
    assert request_points(launch(*first, *gap, *second, *gap, *third))["f"] == "e"
    assert request_points(launch(*gap)) == {}


def test_each_launchs_weights_are_under_way_before_an_earlier_wait() -> None:
    points = {la.name: request_points(la) for la in schedule("dsv41").launches}
    assert points == {
        "k1": {"wq_b_gemv": "wqkv_gemv"},
        "k2": {"wo_b_gemv": "wo_a_gemv", "sgu_gemv": "wo_b_gemv", "sw2_gemv": "wo_b_gemv"},
        "ffn": {"sw2_gemv": "sgu_gemv"},
    }


@pytest.mark.parametrize("tokens", [1, 48])
def test_a_linear_gives_no_cta_two_tasks(tokens: int) -> None:
    """What the requests of the target's linears depend on, at both tensor-parallel sizes."""
    plan = load_plan(print_plan(schedule("dsv41")))
    for b in plan.builds():
        if (b.tokens, b.variant) != (tokens, "target"):
            continue
        for name in plan.LAUNCHES:
            if plan.LAUNCHES[name].runs(b):
                stages = getattr(plan, f"{name}_stages")(b)
                dense = {n: s.tasks for n, s in stages.items() if n.endswith("_gemv")}
                assert all(tasks <= plan.GRID for tasks in dense.values()), (name, b.tp, dense)
