"""layer_specs/dsv4_pro.yaml against the model it describes: sizes, builds, what each kind of layer is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from monoc.spec.load import load_program
from monoc.spec.program import Layout, OpStatement, Program

SPECS = Path(__file__).parents[2] / "layer_specs"


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(str(SPECS / "dsv4_pro.yaml"))


@pytest.mark.parametrize(
    ("tensor", "shape", "layout"),
    [
        ("wqkv", [2048, 7168], Layout.SHUFFLE16),
        ("wq_b", [16 * 512, 1536], Layout.ROWS_PAD256),
        ("wo_a", [2 * 1024, 4096], Layout.ROWS_PAD256),
        ("wo_b", [7168, 2 * 1024], Layout.SHUFFLE16),
        ("hc_ffn_fn", [24, 4 * 7168], Layout.ROWS),
        ("w13", [384, 2 * 384, 3584], Layout.SHUFFLE16),
        ("w2", [384, 7168, 192], Layout.SHUFFLE16),
        ("sgu", [2 * 384, 7168], Layout.SHUFFLE16),
        ("sw2", [7168, 384], Layout.ROWS_PAD256),
    ],
)
def test_shapes_the_host_holds(program: Program, tensor: str, shape: list[int], layout: Layout) -> None:
    env = program.environment(next(program.space.builds(tokens=8)))
    decl = program.tensor[tensor]
    assert [None if e.size is None else e.size.evaluate(env) for e in decl.host_shape] == shape
    assert decl.layout is layout


def test_builds(program: Program) -> None:
    kinds = {(b.variant, b["ratio"], b["global_keys"]) for b in program.space.builds(tokens=1)}
    assert kinds == {("csa", 4, 0), ("hca", 128, 1)}
    picks = {v: {b["picks"] for b in program.space.builds(tokens=64) if b.variant == v} for v in ("csa", "hca")}
    assert picks == {"csa": {1024}, "hca": {128, 256, 512, 1024, 2048, 4096, 8192}}


@pytest.mark.parametrize(
    ("tensor", "fixed", "given"),
    [
        ("bias", {"hash_route": 0}, True),
        ("bias", {"hash_route": 1}, False),
        ("route_ids", {"hash_route": 1}, True),
        ("route_ids", {"hash_route": 0}, False),
        ("comp_block_table", {"ratio": 4}, True),
        ("comp_block_table", {"ratio": 128}, False),
    ],
)
def test_what_a_layer_is_given(program: Program, tensor: str, fixed: dict[str, int], given: bool) -> None:
    build = next(program.space.builds(tokens=1, **fixed))
    assert bool(program.tensor[tensor].guard.evaluate(program.environment(build))) is given


def test_scores_take_the_factor_of_their_head(program: Program) -> None:
    attend = next(s for s in program.launch["k2"].statements if isinstance(s, OpStatement) and s.op == "attend")
    assert attend.operand("factor") == "q_rstd"


def test_two_hops_from_42_rows(program: Program) -> None:
    guard = program.schedule.two_hop
    assert guard is not None
    wide = [b["tokens"] for b in program.space.builds(ratio=4) if guard.evaluate(program.environment(b))]
    assert min(wide) == 42
