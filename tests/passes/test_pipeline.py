"""Specs through all passes: which stages they become, what those compute, and that the schedules hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from specs import program, variation

from monoc.graph import build_graphs
from monoc.passes.fuse import RULES
from monoc.passes.layer import Layer, PassError
from monoc.passes.pipeline import PASSES, compile_layer, draft_schedule
from monoc.passes.shard import ShardTp
from monoc.passes.views import ResolveViews
from monoc.schedule.make import make_schedule
from monoc.schedule.model import Field, Form
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs import prove
from monoc.skeletons.attend_split import AttendSplitParams
from monoc.skeletons.expert_down import ExpertDownParams
from monoc.skeletons.gemv import GemvParams
from monoc.skeletons.latent_norm import LatentNormParams
from monoc.skeletons.row_norm import RowNormParams
from monoc.skeletons.row_slice import RowSliceParams
from monoc.skeletons.token_program import TokenProgramParams
from monoc.spec.program import Program
from monoc.target import GFX950

FFN_HALF = [
    "row_slice", "row_norm", "token_program", "router", "gemv", "route", "gemv", "expert_up", "expert_down",
    "rank_reduce",
]  # fmt: skip


@pytest.mark.parametrize("name", ["dsv41", "tiny"])
def test_the_layers_stages(name: str) -> None:
    stages = compile_layer(program(name)).stages
    kinds = {launch: [s.skeleton for s in found] for launch, found in stages.items()}
    assert kinds["k1"] == ["row_slice", "key_table", "row_norm", "token_program", "gemv", "latent_norm", "gemv"]
    assert kinds["k2"] == ["key_table", "attend_split", "attend_combine", "gemv", "gemv", *FFN_HALF]
    (last,) = [launch for launch in kinds if launch not in ("k1", "k2")]
    assert kinds[last] == ["rank_push", *FFN_HALF]


@pytest.mark.parametrize("name", ["dsv41", "tiny"])
def test_every_operation_is_in_one_stage(name: str) -> None:
    layer = compile_layer(program(name))
    for graph in layer.graphs:
        taken = [op for stage in layer.stages[graph.launch] for op in stage.operations]
        assert sorted(taken) == sorted(op.name for op in graph.operations)


def test_what_the_next_launch_needs_is_carried() -> None:
    carried = compile_layer(program("tiny")).carried
    assert [(c.region, c.source) for c in carried["k2"]] == [("q_rows", "k1"), ("keys_table", "k1")]
    assert all(not c for launch, c in carried.items() if launch != "k2")


def test_the_seams_slots() -> None:
    stages = {s.skeleton: s.params for s in compile_layer(program("dsv41")).stages["k1"]}
    slice_, gate, norm = stages["row_slice"], stages["token_program"], stages["row_norm"]
    assert isinstance(slice_, RowSliceParams)
    assert isinstance(gate, TokenProgramParams)
    assert isinstance(norm, RowNormParams)
    assert slice_.fold is not None
    assert {i.access.tensor for i in slice_.fold.inputs if i.access} == {"x", "residual", "post_mix", "res_mix"}
    assert (slice_.fold_when, slice_.pending, slice_.pending_region) == ("b.fold", "x", "")
    assert slice_.collapse is not None
    assert len(slice_.collapse.inputs) == 8  # four streams, four factors
    assert [o.argument for o in gate.outputs] == ["pre_a", "post_a", "comb_a"]
    assert [o.program is not None for o in gate.outputs] == [False, False, True]
    assert gate.outputs[2].program is not None
    assert gate.outputs[2].program.iterations == "19"
    assert [i.access.tensor for i in norm.rstd.inputs if i.access] == ["attn_seam.hh"]
    assert norm.out_when == "b.index"
    assert slice_.fold_call  # the skeletons find every input of their slots
    assert slice_.collapse_call
    assert norm.scale_call


def test_epilogues_and_sources_of_the_linears() -> None:
    layer = compile_layer(program("dsv41"))
    linears = {s.name: s.params for stages in layer.stages.values() for s in stages if isinstance(s.params, GemvParams)}
    assert {n: p.epilogue.kind for n, p in linears.items() if isinstance(p, GemvParams)} == {
        "wqkv_gemv": "partials",
        "wq_b_gemv": "rows",
        "wo_a_gemv": "mx",
        "wo_b_gemv": "push",
        "sgu_gemv": "rows",
        "sw2_gemv": "rows",
    }
    shared_down = linears["sw2_gemv"]
    assert isinstance(shared_down, GemvParams)
    assert (shared_down.source.quantised, shared_down.source.code) == (False, "mx_code")


def test_the_head_of_the_layer_reads_its_spec() -> None:
    stages = {s.skeleton: s.params for la in compile_layer(program("dsv41")).stages.values() for s in la}
    latents, split, down = stages["latent_norm"], stages["attend_split"], stages["expert_down"]
    assert isinstance(latents, LatentNormParams)
    assert isinstance(split, AttendSplitParams)
    assert isinstance(down, ExpertDownParams)
    assert (latents.latent.columns, latents.record.columns, latents.nope) == ("Q_RANK", "HEAD", "(HEAD - ROPE_WIDTH)")
    assert split.with_compressed == "b.ratio > 0"
    assert [len(s.inputs) for s in (down.weigh, down.add, down.join)] == [2, 2, 2]
    assert down.kept == "True"  # the picks lie in LDS from the stage before


def narrow(source: Program) -> str:
    """A plan of few widths, so that its proofs take a second."""
    draft = draft_schedule(source)
    variants = tuple(
        replace(v, fields=tuple(Field("tokens", (1, 17)) if f.name == "tokens" else f for f in v.fields))
        for v in draft.variants
    )
    return print_plan(make_schedule(replace(draft, variants=variants), GFX950))


@pytest.mark.parametrize("name", ["dsv41", "tiny"])
def test_schedules_hold(name: str) -> None:
    assert prove(narrow(program(name)), GFX950).failures == ()


def test_another_model_is_spec_edits_only(tmp_path: Path) -> None:
    other = variation(
        tmp_path,
        ("hidden: 256", "hidden: 512"),
        ("heads: 16 / tp", "heads: 24 / tp"),
        ("groups: 4 / tp", "groups: 8 / tp"),
        ("experts: 16, topk: 4", "experts: 32, topk: 5"),
        ("limit: 10 ", "limit: 7 "),
        program_edits=(("sqrt(softplus(logit))", "softplus(logit)"),),
    )
    text = narrow(other)
    assert "HIDDEN = 512" in text
    assert prove(text, GFX950).failures == ()


def test_a_handoff_the_spec_fixes_is_taken(tmp_path: Path) -> None:
    override = "schedule:\n  handoff:\n    - {launch: k1, value: y, form: flag, reason: measured so}\n"
    fixed = variation(tmp_path, ("schedule:\n", override))
    assert draft_schedule(fixed).forms == {("k1", "y_mx_v"): (Form.FLAG, "measured so")}


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("edits", "program_edits", "message"),
    [
        ((("hidden: 256", "hidden: 288"),), (), "has to be a multiple of 64"),
        ((), (("bf16(mxfp8(a, rule=V) @ sw2)", "mxfp8(a, rule=V) @ sw2"),), "has to be rounded to bf16"),
        ((("interleave: 16, ", ""),), (), "gate and up interleaved by 16-row tiles"),
    ],
)
def test_refusals_name_the_statement(
    tmp_path: Path, edits: tuple[tuple[str, str], ...], program_edits: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(PassError, match=message) as caught:
        compile_layer(variation(tmp_path, *edits, program_edits=program_edits))
    assert ".monoc:" in str(caught.value)


def test_an_operation_no_rule_takes_says_what_there_is(tmp_path: Path) -> None:
    odd = variation(
        tmp_path,
        program_edits=(("y[t,c] = bf16((x[t,c] * rsq(", "y[t,c] = bf16(0.5 + (x[t,c] * rsq("),),
    )
    assert compile_layer(odd)  # another scale is another slot, not another rule
    twice = variation(tmp_path, program_edits=(("hh[t]    = sum[c] h[t,c] * h[t,c]", "hh[t]    = sum[c] h[t,c]"),))
    with pytest.raises(PassError, match=r"fits no stage\. For reduce there is: row_slice"):
        compile_layer(twice)


# ------------------------------------------------------------------ the passes one by one


def test_passes_have_kebab_case_names() -> None:
    names = [p.name for p in PASSES]
    assert names == ["resolve-views", "shard-tp", "legalise", "fuse", "fit", "order-stages"]


def test_views_keep_offsets() -> None:
    source = program("dsv41")
    layer = ResolveViews().run(Layer(source, build_graphs(source)))
    k1 = layer.graphs[0]
    assert {v: (k1.base(v), str(k1.views[v].offset)) for v in ("q_raw", "kv_raw")} == {
        "q_raw": (k1.base("q_raw"), "0"),
        "kv_raw": (k1.base("q_raw"), "q_rank"),
    }
    assert all(op.kind not in ("split", "group", "flatten") for op in k1.operations)


def test_an_all_reduce_becomes_a_push_and_a_sum() -> None:
    source = program("dsv41")
    layer = ShardTp().run(Layer(source, build_graphs(source)))
    k2 = layer.graphs[1]
    assert [op.kind for op in k2.operations if "@ranks" in " ".join((*op.reads, *op.writes))] == [
        "push", "rank_sum", "push", "rank_sum",
    ]  # fmt: skip


def test_the_rule_table_names_its_skeletons() -> None:
    made = {kind.strip() for rule in RULES for kind in rule.stages.split(",")}
    stages = {s.skeleton for la in compile_layer(program("dsv41")).stages.values() for s in la}
    assert made == stages
