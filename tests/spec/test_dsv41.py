"""layer_specs/dsv41.yaml against the model it describes: sizes, types, order of the host's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from variants import OTHER_LAYER, edited_spec

from monoc.diagnostics import CompileErrors
from monoc.expr.ir import DType, IndexConst, IndexSum, IndexVar, Reduce, ReduceOp, accesses, walk
from monoc.spec.buildspace import Build
from monoc.spec.load import load_program
from monoc.spec.program import Extent, MapStatement, OpStatement, Program, ScalarFunction, ShardingKind

SPECS = Path(__file__).parents[2] / "layer_specs"


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(str(SPECS / "dsv41.yaml"))


def build(program: Program, variant: str = "target", **fixed: int) -> Build:
    return next(b for b in program.space.builds(**fixed) if b.variant == variant)


def sizes(program: Program, at: Build, shape: tuple[Extent, ...]) -> list[int | None]:
    env = program.environment(at)
    return [None if e.size is None else e.size.evaluate(env) for e in shape]


@pytest.mark.parametrize(
    ("tensor", "tp", "shape"),
    [
        ("wqkv", 4, [1792, 5120]),
        ("wq_b", 4, [16 * 512, 1280]),
        ("wq_b", 2, [32 * 512, 1280]),
        ("wo_a", 2, [4 * 1024, 4096]),
        ("wo_b", 4, [5120, 2 * 1024]),
        ("hc_attn_fn", 2, [24, 20480]),
        ("gate_w", 2, [384, 5120]),
        ("w13", 4, [384, 2 * 640, 2560]),
        ("w13", 2, [384, 2 * 1152, 2560]),
        ("w2", 4, [384, 5120, 320]),
        ("sgu", 4, [2 * 576, 5120]),
        ("sw2", 2, [5120, 1152]),
        ("post_mix", 2, [8, 4, 1]),
        ("swa_cache", 2, [None, None, 584]),
    ],
)
def test_shapes_the_host_holds(program: Program, tensor: str, tp: int, shape: list[int | None]) -> None:
    at = build(program, tokens=8, tp=tp)
    assert sizes(program, at, program.tensor[tensor].host_shape) == shape


@pytest.mark.parametrize(
    ("weight", "name", "tp", "shape"),
    [
        ("wqkv", "wqkv_scale", 4, [56, 160]),
        ("wq_b", "wq_b_scale", 4, [16 * 16, 40]),
        ("w13", "w13_s", 4, [384 * 1280, 160]),
        ("w2", "w2_s", 4, [384 * 5120, 24]),
        ("sw2", "sw2_s", 4, [160, 18]),
    ],
)
def test_scale_shapes(program: Program, weight: str, name: str, tp: int, shape: list[int]) -> None:
    scale = program.tensor[weight].scale
    assert scale is not None
    assert scale.name == name
    env = program.environment(build(program, tokens=1, tp=tp))
    assert [s.evaluate(env) for s in scale.shape] == shape


def test_draft_variant(program: Program) -> None:
    at = build(program, "draft", tokens=8, tp=4)
    assert (at["experts"], at["topk"], at["window"], at["ratio"], at["index"]) == (128, 3, 192, 0, 0)
    assert sizes(program, at, program.tensor["swa_indices"].shape) == [8, 1, 192]


def test_builds(program: Program) -> None:
    builds = list(program.space.builds(tokens=8))
    # target: fold x (index x ratio, an index layer has a ratio), draft: fold; all at tp 2 and 4
    assert len(builds) == 2 * (2 * (3 + 2) + 2)
    assert all(b["ratio"] > 0 for b in builds if b["index"])


def test_runner_order(program: Program) -> None:
    attn, layer = program.runner.weights
    assert [f.name for f in attn.fields] == [
        "layer_id", "wqkv", "wqkv_scale", "q_norm", "kv_norm", "wq_b", "wq_b_scale", "wo_a", "wo_a_scale", "wo_b",
        "wo_b_scale", "attn_sink", "cos_sin", "ratio",
    ]  # fmt: skip
    assert layer.fields[0].optional
    assert [f.name for f in layer.fields][-4:] == ["sgu", "sgu_s", "sw2", "sw2_s"]
    forward, ffn = program.entries
    assert forward.arguments[:6] == ("x", "residual", "post_mix", "res_mix", "pre_mix", "positions")
    assert ffn.arguments == ("part", "residual", "post_mix", "res_mix", "pre_mix")
    assert forward.outputs == ffn.outputs == ("out", "residual_out", "post_out", "comb_out", "pre_out")


def test_launches_and_host_call(program: Program) -> None:
    forward, _ = program.entries
    assert [s.name for s in forward.steps] == ["k1", "select", "k2"]
    (select,) = forward.host_calls
    assert (select.arguments, select.writes, str(select.guard)) == (("y", "q_lat"), ("topk_indices",), "index")
    assert {"res_mid", "post_a", "comb_a", "pre_a", "q", "keys", "counts"} <= set(forward.carried)


def test_fold_is_two_statements_of_one_value(program: Program) -> None:
    folds = [s for s in program.launch["k1"].statements if "res_mid" in s.results]
    assert [str(s.guard) for s in folds] == ["fold", "not fold"]
    assert program.type_of["res_mid"].dtype is DType.BF16
    first = folds[0]
    assert isinstance(first, MapStatement)
    comb = [a for a in accesses(first.expr) if a.tensor == "res_mix"]
    assert [a.index[1] for a in comb] == [IndexConst(3), IndexConst(0), IndexConst(1), IndexConst(2)]


def test_key_table_is_built_once_a_build(program: Program) -> None:
    found = {
        name: [str(s.guard) for s in launch.statements if "keys" in s.results]
        for name, launch in program.launch.items()
    }
    assert found == {"k1": ["not index"], "k2": ["index"], "ffn": []}


def test_mix_weight_is_read_by_an_affine_index(program: Program) -> None:
    mix = next(s for s in program.launch["k1"].statements if s.results == ("attn_seam.mix",))
    assert isinstance(mix, MapStatement)
    (total,) = [n for n in walk(mix.expr) if isinstance(n, Reduce)]
    assert total.op is ReduceOp.SUM
    weight = next(a for a in accesses(mix.expr) if a.tensor == "hc_attn_fn")
    assert weight.index == (IndexVar("j"), IndexSum((("s", 5120), ("c", 1)), 0))


def test_sharding(program: Program) -> None:
    want = {
        "q": ShardingKind.SPLIT,
        "attn_part": ShardingKind.PARTIAL,
        "attn": ShardingKind.REPLICATED,
        "ffn_half.moe.down": ShardingKind.PARTIAL,
        "out": ShardingKind.REPLICATED,
    }
    assert {name: program.type_of[name].sharding.kind for name in want} == want


def test_functions_as_attributes(program: Program) -> None:
    route = next(s for s in program.launch["ffn"].statements if isinstance(s, OpStatement) and s.op == "route")
    weigh = route.attribute("weigh")
    assert isinstance(weigh, ScalarFunction)
    assert weigh.params == ("score", "total")


def test_scale_of_scores_is_rounded_once(program: Program) -> None:
    import numpy as np

    from monoc.expr.ir import Const

    attend = next(s for s in program.launch["k2"].statements if isinstance(s, OpStatement) and s.op == "attend")
    score = attend.attribute("score")
    assert isinstance(score, ScalarFunction)
    (factor,) = [n.value for n in walk(score.body) if isinstance(n, Const)]
    assert np.float32(factor) == np.float32(512**-0.5 * 1.4426950408889634) == factor


def test_spec_edits_alone_make_another_layer(tmp_path: Path) -> None:
    """Hidden 4096, 48 heads, 256 experts top 8, another clamp, another score function, tp 2."""
    path = edited_spec(tmp_path / "specs", "dsv41.yaml", OTHER_LAYER)
    try:
        other = load_program(str(path))
    except CompileErrors as e:
        pytest.fail(str(e))
    at = build(other, tokens=17, tp=2)
    assert sizes(other, at, other.tensor["wq_b"].host_shape) == [24 * 512, 1280]
    assert sizes(other, at, other.tensor["wo_a"].host_shape) == [4 * 1024, 3072]
