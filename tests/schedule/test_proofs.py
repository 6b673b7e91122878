"""Each proof refuses a schedule broken in its way and names both culprits; valid schedules pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from layer import draft, every, own, peer, read, small, stage, units, write

from monoc.schedule.formula import formula
from monoc.schedule.make import make_schedule
from monoc.schedule.model import TRUE, Form, FormRule, Launch, LdsMember, Schedule, Take
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs import Failure, ProofResult, prove, prove_cached
from monoc.target import GFX950


def run(schedule: Schedule) -> ProofResult:
    return prove(print_plan(schedule), GFX950)


def refused(schedule: Schedule, proof: str) -> Failure:
    failures = [f for f in run(schedule).failures if f.proof == proof]
    assert failures, f"no {proof} failure among {[str(f) for f in run(schedule).failures]}"
    return failures[0]


@pytest.fixture(scope="module")
def valid() -> Schedule:
    return make_schedule(small(draft()), GFX950)


def change_launch(schedule: Schedule, name: str, change: Callable[[Launch], Launch]) -> Schedule:
    return replace(schedule, launches=tuple(change(la) if la.name == name else la for la in schedule.launches))


def reorder(launch: Launch, first: str, second: str) -> Launch:
    """Swap two stages' places."""
    order = {s.name: s for s in launch.stages}
    names = [second if n == first else first if n == second else n for n in order]
    return replace(launch, stages=tuple(order[n] for n in names))


def one_launch(*stages: object, ends: bool = True) -> Schedule:
    base = small(draft())
    launch = Launch("k2", stages, tag=2, ends_epoch=ends)  # type: ignore[arg-type]
    return make_schedule(replace(base, launches=(launch,)), GFX950)


def test_valid_schedule_passes_queued_tasks_and_neighbour_waits_included(valid: Schedule) -> None:
    result = run(valid)
    assert result.failures == ()
    assert result.builds == 2 * len([0 for v in valid.variants for _ in _combos(v)])


def _combos(variant: object) -> list[tuple[object, ...]]:
    from itertools import product

    return list(product(*(f.values for f in variant.fields)))  # type: ignore[attr-defined]


# ------------------------------------------------------------------ 1: acyclic


def test_acyclic_refuses_reordered_stages(valid: Schedule) -> None:
    failure = refused(change_launch(valid, "k1", lambda la: reorder(la, "norm", "wqkv")), "acyclic")
    assert failure.culprits == ("wqkv", "norm")
    assert "'x8'" in failure.message


def test_acyclic_refuses_a_wait_for_a_later_task_of_a_queue() -> None:
    queued = stage(
        "up",
        "600",
        (read("half", units("min(i + 1, 599)"), step=2),),
        (write("half", "600", "600", own(), forms=(Form.PAIR,)),),
        take=Take.QUEUE,
        counters=("up_queue",),
    )
    assert refused(one_launch(queued), "acyclic").culprits == ("up", "up")


def test_acyclic_refuses_a_wait_for_a_later_round() -> None:
    # Task i and i + 256 run on one CTA: i would wait for what the CTA does only after i.
    placed = stage(
        "gather",
        "512",
        (read("half", units("(i + 256) % 512"), step=2),),
        (write("half", "512", "512", own(), forms=(Form.PAIR,)),),
    )
    failure = refused(one_launch(placed), "acyclic")
    assert failure.culprits == ("gather", "gather")


def test_acyclic_accepts_a_two_hop_gather_over_its_round() -> None:
    hop = stage(
        "two_hop",
        "160",
        (read("sums", units("(i + 80) % 160"), step=2),),
        (write("sums", "b.tp * b.tokens * HIDDEN // 2", "160", own(), default=Form.TWO_HOP, forms=(Form.TWO_HOP,)),),
    )
    assert run(one_launch(hop)).failures == ()


def test_acyclic_accepts_a_later_writer_on_idle_ctas() -> None:
    # Against program order, but the reader's CTAs never run the writer: the graph search finds no cycle.
    reader = stage("reader", "8", (read("words", own()),))
    writer = stage("writer", "8", (), (write("words", "8", "8", own(), forms=(Form.PAIR,)),))
    schedule = one_launch(reader, writer)
    assert run(schedule).failures == ()
    on_top = change_launch(
        schedule, "k2", lambda la: replace(la, stages=tuple(replace(s, first_cta=formula("0")) for s in la.stages))
    )
    assert refused(on_top, "acyclic").culprits == ("reader", "writer")


# ------------------------------------------------------------------ 2: hand-offs


def test_handoffs_refuse_a_dropped_edge(valid: Schedule) -> None:
    kept = tuple(e for e in valid.edges if (e.launch, e.region, e.consumer) != ("k2", "mid", "down"))
    failure = refused(replace(valid, edges=kept), "hand-off")
    assert failure.culprits == ("up", "down")
    assert "'mid'" in failure.message


def test_handoffs_refuse_a_dropped_barrier(valid: Schedule) -> None:
    dropped = change_launch(
        valid, "k2", lambda la: replace(la, barriers=tuple(x for x in la.barriers if x.before != "wo_a"))
    )
    failure = refused(dropped, "hand-off")
    assert failure.culprits == ("combine", "wo_a")
    assert "barriers" in failure.build


def test_handoffs_refuse_a_second_writer(valid: Schedule) -> None:
    def twice(launch: Launch) -> Launch:
        stages = list(launch.stages)
        at = next(k for k, s in enumerate(stages) if s.name == "gate")
        extra = next(w for s in stages if s.name == "norm" for w in s.shape.writes)
        stages[at] = replace(stages[at], shape=replace(stages[at].shape, writes=(extra,)))
        return replace(launch, stages=tuple(stages))

    assert refused(change_launch(valid, "k1", twice), "hand-off").culprits == ("norm", "gate")


def test_handoffs_refuse_a_shrunk_region(valid: Schedule) -> None:
    shrunk = tuple(
        replace(r, words=formula("b.tokens * 100")) if (r.launch, r.name) == ("k1", "q8") else r for r in valid.regions
    )
    assert refused(replace(valid, regions=shrunk), "hand-off").culprits == ("qkv_norm", "q8")


def test_handoffs_refuse_too_few_flags(valid: Schedule) -> None:
    few = tuple(replace(r, units=formula("1")) if (r.launch, r.name) == ("k1", "qkv") else r for r in valid.regions)
    assert refused(replace(valid, regions=few), "hand-off").culprits == ("wqkv", "qkv")


def test_handoffs_refuse_a_unit_nobody_announces() -> None:
    short = stage("writer", "7", (), (write("words", "8", "8", own()),))
    assert refused(one_launch(short, stage("reader", "1", (read("words", every("8")),))), "hand-off").culprits == (
        "writer",
        "words",
    )


def test_handoffs_refuse_two_tasks_with_one_unit() -> None:
    double = stage("writer", "16", (), (write("words", "8", "8", units("i // 2")),))
    failure = refused(one_launch(double, stage("reader", "1", (read("words", every("8")),))), "hand-off")
    assert failure.culprits == ("writer task 0", "writer task 1")


def test_handoffs_refuse_a_wait_past_the_last_unit() -> None:
    writer = stage("writer", "8", (), (write("words", "8", "8", own()),))
    failure = refused(one_launch(writer, stage("reader", "1", (read("words", every("9")),))), "hand-off")
    assert failure.culprits == ("writer", "reader")


# ------------------------------------------------------------------ 3: overtaking


def test_overtake_refuses_aliased_peer_parity(valid: Schedule) -> None:
    failure = refused(replace(valid, peer_halves=1), "overtake")
    assert all("rows" in c for c in failure.culprits)
    assert "same bytes" in failure.message


def test_overtake_refuses_epochs_that_break_parity(valid: Schedule) -> None:
    failure = refused(replace(valid, epochs=2**31 - 257), "overtake")
    assert failure.culprits == ("EPOCHS", "PEER_HALVES")


def test_overtake_refuses_epochs_that_break_the_counter_slots(valid: Schedule) -> None:
    assert refused(replace(valid, epochs=2**31 - 130), "overtake").culprits == ("EPOCHS", "COUNTER_SLOTS")


def test_overtake_refuses_clearing_the_counter_in_use(valid: Schedule) -> None:
    assert refused(replace(valid, counter_ahead=0), "overtake").culprits == ("COUNTER_SLOTS", "COUNTER_AHEAD")


def test_overtake_refuses_two_launches_of_an_epoch_with_one_tag(valid: Schedule) -> None:
    same = change_launch(valid, "k1", lambda la: replace(la, tag=2))
    assert refused(same, "overtake").culprits == ("k1", "k2")


def test_overtake_refuses_a_push_nobody_waits_for() -> None:
    push = stage("push", "320", (), (peer("attn", "COLUMNS"),))
    schedule = one_launch(push, stage("reduce", "160", (read("attn", units("2 * i", "2")),)))
    assert run(schedule).failures == ()
    deaf = change_launch(
        schedule,
        "k2",
        lambda la: replace(
            la, stages=(la.stages[0], replace(la.stages[1], shape=replace(la.stages[1].shape, reads=())))
        ),
    )
    assert refused(deaf, "overtake").culprits == ("push", "attn")


def test_overtake_refuses_regions_of_a_launch_on_the_same_bytes(valid: Schedule) -> None:
    failure = refused(share(valid, "k1.q8", "k1.x8"), "overtake")
    assert failure.culprits == ("x8", "q8")


def test_overtake_accepts_plain_regions_with_a_barrier_between() -> None:
    only = (Form.BARRIER,)
    first = stage("first", "8", (), (write("a", "8", "8", own(), forms=only, default=Form.BARRIER),))
    second = stage("second", "8", (read("a", own()),))
    third = stage("third", "8", (), (write("b", "8", "8", own(), forms=only, default=Form.BARRIER),))
    fourth = stage("fourth", "8", (read("b", own()),))
    schedule = one_launch(first, second, third, fourth)
    always = tuple(
        replace(r, rules=(FormRule(Form.BARRIER, TRUE, "tested"),)) for r in share(schedule, "k2.b", "k2.a").regions
    )
    fenced = change_launch(
        replace(schedule, regions=always),
        "k2",
        lambda la: replace(
            la, barriers=tuple(replace(la.barriers[0], before=s, when=TRUE) for s in ("second", "third", "fourth"))
        ),
    )
    assert run(fenced).failures == ()
    unfenced = change_launch(fenced, "k2", lambda la: replace(la, barriers=(la.barriers[0], la.barriers[2])))
    assert refused(unfenced, "overtake").culprits == ("a", "b")


def share(schedule: Schedule, guest: str, host: str) -> Schedule:
    regions = tuple(replace(r, shares=host) if f"{r.launch}.{r.name}" == guest else r for r in schedule.regions)
    return replace(schedule, regions=regions)


# ------------------------------------------------------------------ 4: tags


def test_tags_refuse_a_live_zero(valid: Schedule) -> None:
    failure = refused(replace(valid, epochs=2**31), "tags")
    assert failure.culprits == ("k2", f"epoch {2**31 - 1}")


def test_tags_refuse_a_tagged_region_on_plain_bytes(valid: Schedule) -> None:
    # Over the launch boundary nothing overtakes, but K2's pairs would lie where K1 has plain words behind flags.
    failure = refused(share(valid, "k2.mid", "k1.qkv"), "tags")
    assert {c.removesuffix(" flags") for c in failure.culprits} == {"k1.qkv", "k2.mid"}


def test_tags_refuse_layouts_that_differ_inside_one_scratch_buffer(valid: Schedule) -> None:
    moved = tuple(
        replace(r, words=formula("b.tokens * (360 + 32 * b.ratio)")) if (r.launch, r.name) == ("k1", "q8") else r
        for r in valid.regions
    )
    assert refused(replace(valid, regions=moved), "tags").culprits[0] != ""


# ------------------------------------------------------------------ 5: resources


def test_resources_refuse_too_much_lds(valid: Schedule) -> None:
    def grow(launch: Launch) -> Launch:
        stages = tuple(
            replace(s, shape=replace(s.shape, lds=(LdsMember("tile", "f32", formula("b.tokens * 3000")),)))
            if s.name == "down"
            else s
            for s in launch.stages
        )
        return replace(launch, stages=stages)

    failure = refused(change_launch(valid, "k2", grow), "resources")
    assert failure.culprits == ("down", "tile")
    assert "tokens 17" in failure.build  # one token fits


def test_resources_refuse_a_grid_that_is_not_resident(valid: Schedule) -> None:
    assert refused(replace(valid, grid=300), "resources").culprits == ("grid", "gfx950")


def test_resources_refuse_threads_that_are_not_whole_waves(valid: Schedule) -> None:
    assert refused(replace(valid, threads=200), "resources").culprits == ("threads", "gfx950")


# ------------------------------------------------------------------ the cache


def test_results_are_cached_by_the_plan(valid: Schedule, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = print_plan(replace(valid, peer_halves=1))
    first, second = prove_cached(text, GFX950), prove_cached(text, GFX950)
    assert (first.cached, second.cached) == (False, True)
    assert first.failures == second.failures != ()
    assert not prove_cached(print_plan(valid), GFX950).cached
