"""Operations and whole entries of the reference, against sums written out by hand."""

import math
from pathlib import Path

import pytest
import torch

from monoc.reference.arithmetic import EXACT, STATED
from monoc.reference.attention import COMPRESSED, attend, key_table
from monoc.reference.call import Call
from monoc.reference.evaluate import evaluate_map
from monoc.reference.formats import decode_records, encode_records
from monoc.reference.interpret import Reference
from monoc.reference.layouts import store_records
from monoc.reference.operations import rope, route, sinkhorn, unrope
from monoc.spec.load import load_program
from monoc.spec.program import MapStatement, OpStatement, Program
from monoc.verify.inputs.step import Contexts, make_step
from monoc.verify.inputs.weights import Weights

SPEC = str(Path(__file__).parents[2] / "layer_specs" / "tiny.yaml")


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SPEC)


def statement(program: Program, name: str) -> OpStatement | MapStatement:
    """The first statement that makes ``name``, its definition's path apart."""
    made = [(r.rpartition(".")[2], s) for la in program.launch.values() for s in la.statements for r in s.results]
    return next(s for r, s in made if r == name)


def call(program: Program, name: str, **values: torch.Tensor) -> Call:
    s = statement(program, name)
    assert isinstance(s, OpStatement)
    build = next(iter(program.space.builds(ratio=2, tp=1)))
    return Call(s, values, program.environment(build), STATED)


def test_fold_rounds_as_written(program: Program) -> None:
    g = torch.Generator().manual_seed(1)
    comb, R = torch.rand(2, 4, 4, generator=g), torch.randn(2, 4, 8, generator=g).bfloat16().float()
    post, x = torch.rand(2, 4, generator=g), torch.randn(2, 8, generator=g).bfloat16().float()
    s = statement(program, "res_mid")
    assert isinstance(s, MapStatement)
    extents = {n: {"t": 2, "s": 4, "c": 8}[n] for n, _ in s.extents}
    values = {"res_mix": comb, "residual": R, "post_mix": post, "x": x}
    got = evaluate_map(s.expr, s.index, extents, values, STATED)
    for t, stream, c in [(0, 0, 0), (1, 3, 7), (1, 2, 4)]:
        v = post[t, stream] * x[t, c] + comb[t, 0, stream] * R[t, 0, c]
        v = v + comb[t, 1, stream] * R[t, 1, c]
        v = v + comb[t, 2, stream] * R[t, 2, c]
        v = (comb[t, 3, stream].double() * R[t, 3, c].double() + v.double()).float()  # no double rounding at these
        assert got[t, stream, c] == v.bfloat16().float()


def test_pick_sum_rounds_after_every_addition(program: Program) -> None:
    down = torch.tensor([[[1.0], [2.0**-8], [2.0**-8]]])
    weight = torch.ones(1, 3)
    s = statement(program, "routed")
    assert isinstance(s, MapStatement)
    values = dict(zip(s.operands, (down, weight), strict=True))
    got = evaluate_map(s.expr, s.index, {"t": 1, "c": 1, "p": 3}, values, STATED)
    assert got.item() == 1.0  # 1 + 2^-8 is a tie that goes to 1, twice
    exact = evaluate_map(s.expr, s.index, {"t": 1, "c": 1, "p": 3}, {k: v.double() for k, v in values.items()}, EXACT)
    assert exact.item() == 1 + 2.0**-7


def test_rope_turns_and_unrope_turns_back(program: Program) -> None:
    angle = torch.arange(10.0)[:, None] * torch.rand(32, generator=torch.Generator().manual_seed(2))
    table = torch.cat([angle.cos(), angle.sin()], 1)
    x = torch.randn(2, 3, 256, generator=torch.Generator().manual_seed(3))
    at = torch.tensor([7, 2])
    (turned,) = rope(call(program, "q_rope", x=x, table=table, positions=at))
    assert torch.equal(turned[..., :192], x[..., :192])
    pair = torch.complex(x[0, 1, 196], x[0, 1, 197]) * torch.polar(torch.tensor(1.0), angle[7, 2])
    assert turned[0, 1, 196].item() == pytest.approx(pair.real.item(), rel=1e-5)
    assert turned[0, 1, 197].item() == pytest.approx(pair.imag.item(), rel=1e-5)
    (back,) = unrope(call(program, "o8_unrope", x=turned, table=table, positions=at))
    assert torch.allclose(back, x, rtol=1e-5, atol=1e-6)


def test_sinkhorn_makes_rows_and_columns_sum_to_one(program: Program) -> None:
    (comb,) = sinkhorn(call(program, "comb_a", z=torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(4))))
    assert torch.allclose(comb.sum(1), torch.ones(3, 4), atol=1e-4)
    assert torch.allclose(comb.sum(2), torch.ones(3, 4), atol=1e-3)


def test_route_breaks_ties_by_expert_mod_64(program: Program) -> None:
    score = torch.full((1, 130), 0.5)
    score[0, 7] = math.nan
    ids, weights = route(call(program, "ids", score=score))
    assert ids.tolist() == [[0, 64, 128, 1]]
    assert weights.flatten().tolist() == pytest.approx([1.5 / 4] * 4)


def test_route_picks_by_biased_and_weighs_by_unbiased_scores(program: Program) -> None:
    score, bias = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5]]), torch.tensor([9.0, 0.0, 0.0, 0.0, 0.0])
    ids, weights = route(call(program, "ids", score=score, bias=bias))
    assert ids.tolist() == [[0, 4, 3, 2]]
    assert weights[0].tolist() == pytest.approx([1.5 * s / 1.3 for s in (0.1, 0.5, 0.4, 0.3)], rel=1e-5)


def table_call(program: Program, **changed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values = {
        "positions": torch.tensor([4, 9]),
        "slots": torch.tensor([3, -1]),
        "window_slots": torch.arange(64, dtype=torch.int32).reshape(2, 1, 32),
        "window_lens": torch.tensor([2, 5], dtype=torch.int32),
        "requests": torch.tensor([1, 99], dtype=torch.int32),
        "picks": torch.tensor([[1, -1, 77], [0, 0, 0]], dtype=torch.int32),
        "block_table": torch.tensor([[8, 9], [5, 6]], dtype=torch.int32),
        "compressed": torch.zeros(10, 64, 328, dtype=torch.uint8),
    }
    keys, counts = key_table(call(program, "keys", **(values | changed)))
    return keys, counts


def test_key_table(program: Program) -> None:
    keys, counts = table_call(program)
    assert keys[0, :5].tolist() == [5 * 64 + 1 + COMPRESSED, -1, 0, 1, -1]  # (4 + 1) // 2 picks, the third is past them
    assert counts.tolist() == [[4, 0], [2, 0]]
    assert keys[1].eq(-1).all()


def test_attention_is_a_softmax_with_a_sink(program: Program) -> None:
    g = torch.Generator().manual_seed(5)
    cache = torch.full((1, 8, 328), 0xFF, dtype=torch.uint8)
    x = torch.randn(3, 256, generator=g).bfloat16().float()
    data, codes = encode_records(x, 64)
    store_records(cache, torch.tensor([6, 1, 4]), data, codes, 3)
    q = torch.randn(2, 16, 256, generator=g).bfloat16().float()
    keys = torch.full((2, 96), -1, dtype=torch.int32)
    keys[0, :4] = torch.tensor([6, -1, 1, 4])
    counts = torch.tensor([[4, 0], [0, 0]], dtype=torch.int32)
    sink = torch.randn(16, generator=g)
    (got,) = attend(call(program, "o", q=q, keys=keys, counts=counts, sink=sink, window=cache))
    records = decode_records(data, codes, 64)
    logits = q[0].double() @ records.T * 256**-0.5
    weights = torch.softmax(torch.cat([logits, sink[:, None].double()], 1), 1)[:, :3]
    assert torch.allclose(got[0].double(), weights @ records, rtol=2e-2, atol=2e-2)
    assert not got[1].any()


def test_infinite_sink_takes_everything(program: Program) -> None:
    cache = torch.full((1, 8, 328), 0x38, dtype=torch.uint8)
    keys, counts = torch.zeros(1, 96, dtype=torch.int32), torch.tensor([[1], [0]], dtype=torch.int32)
    sink = torch.tensor([math.inf, -math.inf] * 8)
    (got,) = attend(call(program, "o", q=torch.ones(1, 16, 256), keys=keys, counts=counts, sink=sink, window=cache))
    assert not got[0, 0].any()
    assert got[0, 1].abs().max() > 0


def test_an_observer_takes_the_place_of_a_value(program: Program) -> None:
    build = next(b for b in program.space.builds(tokens=1, tp=1))
    entry = next(e for e in program.entries if e.name == "ffn")
    env = program.environment(build)
    weights = Weights(program, env, 1, 0)
    step = make_step(program, entry, env, 1, 0, Contexts())
    given = [{**weights.tensors[0], **step.tensors[0]}]
    reference = Reference(program, build)
    plain = reference.run(entry, given)
    zeroed = reference.run(
        entry,
        given,
        observer=lambda name, _, both: [torch.zeros_like(both.stated[0])] if name == "attn" else None,
    )
    assert plain.values["attn"].stated[0].any()
    assert not zeroed.values["attn"].stated[0].any()
    assert not torch.equal(plain.values["residual_out"].stated[0], zeroed.values["residual_out"].stated[0])
