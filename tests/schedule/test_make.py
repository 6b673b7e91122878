"""What the scheduler decides: forms and reasons, placement, barriers, shared bytes, carried regions, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from layer import FLAG_ONLY, draft, every, own, read, small, stage, write

from monoc.schedule.chain import critical_chain
from monoc.schedule.formula import formula
from monoc.schedule.handoff import Traffic, choose_form
from monoc.schedule.loader import load_plan
from monoc.schedule.make import make_schedule
from monoc.schedule.model import TRUE, Carried, Form, Launch, RegionWrite, Schedule, Units
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs import prove
from monoc.schedule.regions import HandOffError
from monoc.schedule.tables import tabulate
from monoc.target import GFX950


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return make_schedule(draft(), GFX950)


def forms(schedule: Schedule, launch: str, region: str) -> list[tuple[str, str]]:
    found = next(r for r in schedule.regions if (r.launch, r.name) == (launch, region))
    return [(rule.form.value, rule.when) for rule in found.rules]


def test_small_messages_go_as_pairs_and_wide_rows_behind_flags(schedule: Schedule) -> None:
    assert forms(schedule, "k1", "lin")[1] == ("pair", TRUE)
    assert forms(schedule, "k1", "x8")[1:] == [("pair", "b.tokens <= 1"), ("flag", TRUE)]
    assert forms(schedule, "k2", "attn") == [("peer", TRUE)]


def test_every_rule_keeps_its_numbers(schedule: Schedule) -> None:
    for region in schedule.regions:
        for rule in region.rules:
            assert rule.reason
            if rule.form in (Form.PAIR, Form.FLAG) and "only form" not in rule.reason:
                assert "ns as pairs" in rule.reason


def test_a_limit_may_differ_by_tp() -> None:
    region = RegionWrite("r", formula("8"), formula("8"), Units(formula("0")))
    traffic = [Traffic(t, tp, 1000 * t, 100_000 * t * 4 // tp, 40) for t in (1, 2, 4, 8, 16, 32, 48) for tp in (2, 4)]
    rules = choose_form(region, traffic, GFX950.costs, 512, None)
    assert [r.form for r in rules] == [Form.BARRIER, Form.PAIR, Form.FLAG]
    assert "b.tp == 2" in rules[1].when


def test_the_spec_can_fix_a_form_and_its_reason_is_kept() -> None:
    fixed = replace(draft(), forms={("k1", "lin"): (Form.FLAG, "measured")})
    schedule = make_schedule(fixed, GFX950)
    rule = next(r for r in schedule.regions if (r.launch, r.name) == ("k1", "lin")).rules[-1]
    assert (rule.form, rule.when) == (Form.FLAG, TRUE)
    assert "measured" in rule.reason


def test_a_fixed_form_must_name_a_hand_off_and_one_its_stage_serves() -> None:
    with pytest.raises(HandOffError, match="no hand-off of launch k1; its hand-offs are: lin, pmix"):
        make_schedule(replace(draft(), forms={("k1", "nothing"): (Form.FLAG, "")}), GFX950)
    with pytest.raises(HandOffError, match="its stage serves flag, barrier"):
        make_schedule(replace(draft(), forms={("k2", "mid"): (Form.PAIR, "")}), GFX950)


def test_stages_follow_each_other_round_the_grid(schedule: Schedule) -> None:
    plan = load_plan(print_plan(schedule))
    b = plan.Plan(tokens=8, tp=4, ratio=0, fold=True, index=False, experts=384, topk=6)
    at = {name: s.first_cta for name, s in plan.LAUNCHES["k1"].stages(b).items()}
    assert at == {
        "slice": 0,
        "norm": 160,
        "gate": 168,
        "key_table": 176,
        "wqkv": 184,
        "qkv_norm": (184 + 224) % 256,
        "wq_b": (184 + 224 + 8) % 256,
    }


def test_the_spec_can_fix_a_place() -> None:
    schedule = make_schedule(replace(draft(), places={("k1", "wqkv"): formula("32")}), GFX950)
    plan = load_plan(print_plan(schedule))
    b = plan.Plan(tokens=8, tp=4, ratio=0, fold=True, index=False, experts=384, topk=6)
    stages = plan.LAUNCHES["k1"].stages(b)
    assert (stages["wqkv"].first_cta, stages["qkv_norm"].first_cta) == (32, 0)


def test_a_barrier_serves_every_region_written_before_it(schedule: Schedule) -> None:
    plan = load_plan(print_plan(schedule))
    b = plan.Plan(tokens=8, tp=4, ratio=1, fold=True, index=True, experts=384, topk=6, barriers=True)
    assert plan.LAUNCHES["k1"].barriers(b) == ("norm", "wqkv", "qkv_norm", "wq_b")
    assert plan.LAUNCHES["k2"].barriers(b)[0] == "split"
    without = replace(b, index=False)
    assert plan.LAUNCHES["k2"].barriers(without)[0] == "combine"  # no key table in front of the split
    assert plan.LAUNCHES["k1"].barriers(replace(b, barriers=False)) == ()


def test_chain_lengths(schedule: Schedule) -> None:
    plan = load_plan(print_plan(schedule))
    one = plan.Plan(tokens=1, tp=4, ratio=0, fold=True, index=False, experts=384, topk=6)
    chain = critical_chain(tabulate(plan, one, "k1"))
    assert str(chain) == "slice -pair-> norm -pair-> wqkv -pair-> qkv_norm -pair-> wq_b"
    assert chain.length == 4
    barriers = critical_chain(tabulate(plan, replace(one, barriers=True), "k1"))
    assert barriers.length == 12
    two = critical_chain(tabulate(plan, one, "ffn"))
    assert [form for _, form, _ in two.hops].count("peer") == 2


def test_later_launches_take_over_the_bytes_of_like_regions(schedule: Schedule) -> None:
    shares = {(r.launch, r.name): r.shares for r in schedule.regions}
    assert shares["k2", "lin"] == "k1.lin"
    assert shares["ffn", "mid"] == "k2.mid"
    assert shares["ffn", "attn"] == "k2.attn"
    assert shares["k2", "part"] == ""


def carried() -> Schedule:
    """A region one launch leaves to the next, which writes it itself in index builds."""
    first = stage("rows", "8", (), (write("kept", "64", "8", own(), forms=FLAG_ONLY),), guard="not b.index")
    again = stage("again", "8", (), (write("kept", "64", "8", own(), forms=FLAG_ONLY),), guard="b.index")
    second = stage("use", "4", (read("kept", every("8")),))
    launches = (
        Launch("k1", (first,), tag=1),
        Launch("k2", (again, second), tag=2, ends_epoch=True, carried=(Carried("kept", "k1"),)),
    )
    return make_schedule(replace(small(draft()), launches=launches), GFX950)


def test_a_region_is_carried_to_the_next_launch() -> None:
    schedule = carried()
    assert prove(print_plan(schedule), GFX950).failures == ()
    assert forms(schedule, "k1", "kept") == [("launch", TRUE)]
    assert forms(schedule, "k2", "kept")[0] == ("launch", "not b.index")
    plan = load_plan(print_plan(schedule))
    b = plan.Plan(tokens=1, tp=4, ratio=1, index=False, experts=384, topk=6)
    assert [(h.writer, h.form) for h in plan.manifest(b, "k2")] == [("k1.rows", "launch")]
    assert [(h.writer, h.form) for h in plan.manifest(replace(b, index=True), "k2")] == [("again", "flag")]
    assert plan.scratch(b)["k1.kept"] == plan.scratch(b)["k2.kept"]


def test_a_carried_region_nobody_wrote_is_refused() -> None:
    schedule = carried()
    launches = tuple(replace(la, stages=()) if la.name == "k1" else la for la in schedule.launches)
    failures = prove(print_plan(replace(schedule, launches=launches)), GFX950).failures
    assert {f.culprits for f in failures if f.proof == "hand-off"} == {("use", "kept")}


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (("a", "b"), "'words' is written by stage 'a' and by 'b'"),
        (("a",), "stage 'a' writes region 'words', which no stage reads"),
        ((), "stage 'use' reads region 'words', which no stage writes"),
    ],
)
def test_regions_need_one_writer_and_a_reader(stages: tuple[str, ...], message: str) -> None:
    made = [stage(n, "1", (), (write("words", "1", "1", own()),)) for n in stages]
    if len(stages) != 1:
        made.append(stage("use", "1", (read("words", own()),)))
    with pytest.raises(HandOffError, match=message):
        make_schedule(replace(draft(), launches=(Launch("k2", tuple(made), tag=2),)), GFX950)
