"""Routing against numpy: the picks and their order exactly, weights bit for bit where the slots round exactly."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed

from monoc.expr.ir import Binary, BinaryOp, Compare, CompareOp, Const, Expr, Local, Select, Unary, UnaryOp
from monoc.expr.slot import Slot, SlotInput
from monoc.schedule.formula import formula
from monoc.schedule.model import Form
from monoc.skeletons.route import RouteParams


def _op(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b)


def _score(result: Expr) -> Slot:
    return Slot("route_score", (SlotInput("x"),), (), (result,), ("score",))


_LOG2E, _LN2 = math.log2(math.e), math.log(2.0)
_SOFTPLUS = _op(
    BinaryOp.MUL,
    Unary(
        UnaryOp.LOG2, _op(BinaryOp.ADD, Const(1.0), Unary(UnaryOp.EXP2, _op(BinaryOp.MUL, Local("x"), Const(_LOG2E))))
    ),
    Const(_LN2),
)
SQRT_SOFTPLUS = _score(
    Unary(UnaryOp.SQRT, Select(Compare(CompareOp.GT, Local("x"), Const(20.0)), Local("x"), _SOFTPLUS))
)
AFFINE = _score(_op(BinaryOp.ADD, _op(BinaryOp.MUL, Local("x"), Const(0.5)), Const(3.0)))
WEIGH = Slot(
    "route_weigh",
    (SlotInput("score"), SlotInput("total")),
    (),
    (
        _op(
            BinaryOp.MUL,
            Local("score"),
            _op(BinaryOp.DIV, Const(1.5), _op(BinaryOp.MAX, Local("total"), Const(1e-20))),
        ),
    ),
    ("weight",),
)


def bench(
    tmp: Path,
    tokens: int,
    experts: int,
    topk: int,
    parts: int,
    score: Slot,
    form: Form,
    given: str = "",
    grid: int = 4,
    threads: int = 512,
) -> Bench:
    params = RouteParams(
        "route", "logits", "route_table", "bias", score, WEIGH, "EXPERTS", "TOPK", "PARTS", given, "COPIES"
    )
    dims = {"EXPERTS": experts, "TOPK": topk, "PARTS": parts, "COPIES": 2, "THREADS": threads}
    units = -(-experts // 16) * parts
    external = {"logits": (tokens * experts * parts, units)}
    return Bench([Placed(params, 2)], dims, {"tokens": tokens}, tmp, grid, threads, form, external=external)


def expected_picks(keys: np.ndarray, topk: int) -> list[int]:
    """Largest key first; ties by lowest expert % 64, then lowest expert; NaN last of all."""
    clean = [-math.inf if math.isnan(k) else float(k) for k in keys]
    return sorted(range(len(keys)), key=lambda e: (-clean[e], e % 64, e))[:topk]


def picks_table(outcome: object, tokens: int, topk: int) -> tuple[np.ndarray, np.ndarray]:
    # region() is whole copies * words only as far as the place says: compare both copies
    words = outcome.region("route_table").reshape(-1, tokens, topk, 2)  # type: ignore[attr-defined]
    assert (words == words[0]).all()
    return words[0, ..., 0].astype(np.int64), words[0, ..., 1].copy().view(np.float32)


@pytest.mark.parametrize(("tokens", "experts", "topk"), [(1, 384, 6), (48, 256, 8)])
def test_compiles_lean(tmp_path: Path, tokens: int, experts: int, topk: int) -> None:
    (result,) = bench(tmp_path, tokens, experts, topk, 4, SQRT_SOFTPLUS, Form.FLAG, grid=256).compile()
    assert result.resources.vgprs <= 96
    assert result.resources.scratch_bytes == 0


@pytest.mark.parametrize(
    ("tokens", "experts", "topk", "parts", "form", "threads"),
    [
        (3, 384, 6, 4, Form.PAIR, 512),
        (18, 16, 4, 1, Form.FLAG, 512),
        (2, 100, 3, 3, Form.BARRIER, 512),
        (2, 256, 8, 2, Form.PAIR, 512),
        (2, 384, 6, 2, Form.FLAG, 256),  # two experts a lane
        (2, 512, 20, 1, Form.PAIR, 256),  # more of the waves' bests than lanes
    ],
)
def test_picks_and_weights(
    tmp_path: Path, tokens: int, experts: int, topk: int, parts: int, form: Form, threads: int
) -> None:
    rng = np.random.default_rng(experts)
    # few distinct values: many ties
    parts_sum = (rng.integers(-8, 9, (tokens, experts, parts)) / 4).astype(np.float32)
    parts_sum[0, rng.integers(0, experts, 3), 0] = np.nan
    bias = (rng.integers(-2, 3, experts) / 2).astype(np.float32)
    made = bench(tmp_path, tokens, experts, topk, parts, AFFINE, form, threads=threads)
    outcome = made.run([{"bias": bias}], [{"logits": parts_sum}])
    ids, weights = picks_table(outcome, tokens, topk)
    score = parts_sum.sum(-1, dtype=np.float32) * np.float32(0.5) + np.float32(3)
    for t in range(tokens):
        picked = expected_picks(score[t] + bias, topk)
        assert ids[t].tolist() == picked
        mine = np.where(np.isnan(score[t, picked]), np.float32(0), score[t, picked])
        total = np.float32(0)
        for value in mine:
            total = np.float32(total + value)
        assert np.array_equal(weights[t], mine * (np.float32(1.5) / np.maximum(total, np.float32(1e-20))))


def test_square_root_of_softplus(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 6, (4, 384, 1)).astype(np.float32)
    logits[0, 7, 0] = 25.0
    bias = rng.normal(0, 0.2, 384).astype(np.float32)
    outcome = bench(tmp_path, 4, 384, 6, 1, SQRT_SOFTPLUS, Form.PAIR).run([{"bias": bias}], [{"logits": logits}])
    ids, weights = picks_table(outcome, 4, 6)
    x = logits[..., 0].astype(np.float64)
    score = np.sqrt(np.logaddexp(0, x))
    for t in range(4):
        picked = expected_picks(score[t] + bias, 6)
        assert ids[t].tolist() == picked
        # exp2, log2 and sqrt of about one ulp each
        assert np.allclose(weights[t], score[t, picked] * 1.5 / score[t, picked].sum(), rtol=2e-6)


@pytest.mark.parametrize("hashed", [True, False])
def test_given_or_searched_by_the_build(tmp_path: Path, hashed: bool) -> None:
    params = RouteParams(
        "route", "logits", "route_table", "bias", AFFINE, WEIGH, "EXPERTS", "TOPK", "PARTS", "route_ids", "COPIES",
        given_when=formula("b.hashed"),
    )  # fmt: skip
    dims = {"EXPERTS": 128, "TOPK": 3, "PARTS": 2, "COPIES": 2}
    external = {"logits": (2 * 128 * 2, 16)}
    made = Bench([Placed(params, 2)], dims, {"tokens": 2, "hashed": hashed}, tmp_path, external=external)
    rng = np.random.default_rng(8)
    logits = rng.normal(0, 2, (2, 128, 2)).astype(np.float32)
    bias = rng.normal(0, 1, 128).astype(np.float32)
    given = np.array([[5, 127, 64], [1, 0, 90]], np.int32)
    outcome = made.run([{"bias": bias, "route_ids": given}], [{"logits": logits}])
    ids, _ = picks_table(outcome, 2, 3)
    score = logits.sum(-1, dtype=np.float32) * np.float32(0.5) + np.float32(3)
    want = given if hashed else [expected_picks(score[t] + bias, 3) for t in range(2)]
    assert np.array_equal(ids, want)


def test_given_experts(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    logits = (rng.integers(-8, 9, (4, 128, 2)) / 4).astype(np.float32)
    given = np.array([[5, 127, 64], [1, 0, 90], [3, -1, 200], [7, 7, 0]], np.int32)
    outcome = bench(tmp_path, 4, 128, 3, 2, AFFINE, Form.PAIR, "route_ids").run(
        [{"route_ids": given}], [{"logits": logits}]
    )
    ids, weights = picks_table(outcome, 4, 3)
    assert ids.tolist() == [[5, 127, 64], [1, 0, 90], [3, 0, 1], [7, 1, 0]]
    inside = ids == given
    score = logits.sum(-1, dtype=np.float32) * np.float32(0.5) + np.float32(3)
    for t in range(4):
        mine = np.where(inside[t], score[t, ids[t]], np.float32(0))
        total = np.float32(mine[0] + mine[1]) + mine[2]
        assert np.array_equal(weights[t], mine * (np.float32(1.5) / total))
