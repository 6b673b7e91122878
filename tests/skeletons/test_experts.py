"""Router, route, expert up and expert down as one launch: all hand-offs live, in every form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, to_bits
from moe_reference import ADD, JOIN, WEIGH, Experts, bf16, e4m3_values, exact_activation, mx_quantise_m
from test_expert_up import UP, row_words, x8_words
from test_route import AFFINE, expected_picks
from test_route import WEIGH as ROUTE_WEIGH
from test_router import ROUTER

from monoc.schedule.model import Form
from monoc.skeletons.expert_down import ExpertDownParams
from monoc.skeletons.route import RouteParams

ROUTE = RouteParams(
    "route", "logits", "route_table", "bias", AFFINE, ROUTE_WEIGH, "EXPERTS", "TOPK", "PARTS", copies="COPIES"
)
DOWN = ExpertDownParams(
    "down",
    "route_table",
    "mid",
    "moe",
    "w2",
    "w2_scale",
    "rank",
    WEIGH,
    ADD,
    JOIN,
    "HIDDEN",
    "INTER",
    "PADDED",
    "EXPERTS",
    "TOPK",
    "shared_row",
    "b.groups",
    "b.row_tiles",
    "COPIES",
)


def _mx(values: np.ndarray) -> np.ndarray:
    q, codes = mx_quantise_m(values)
    return e4m3_values(q) * 2.0 ** (np.repeat(codes, 32, -1).astype(np.float64) - 127)


@pytest.mark.parametrize(
    ("tokens", "row_tiles", "kept", "form", "seed"),
    [
        (2, 2, False, Form.PAIR, 0),
        (18, 1, True, Form.FLAG, 7),
        (5, 1, True, Form.PAIR, 3),
        (5, 2, True, Form.BARRIER, 0),
    ],
)
def test_whole_mixture(tmp_path: Path, tokens: int, row_tiles: int, kept: bool, form: Form, seed: int) -> None:
    hidden, inter, padded, experts, topk, grid = 256, 64, 128, 16, 4, 6
    rng = np.random.default_rng(tokens)
    kept = kept and form is not Form.BARRIER  # a launch a stage there: LDS does not outlive it
    dims = {
        "HIDDEN": hidden, "INTER": inter, "PADDED": padded, "EXPERTS": experts, "TOPK": topk, "COPIES": 2, "PARTS": 2,
        "THREADS": 512, "GRID": grid,
    }  # fmt: skip
    stages = [Placed(ROUTER), Placed(ROUTE, 2), Placed(UP, 3), Placed(replace(DOWN, kept=str(kept)), 1)]
    external = {
        "y": (tokens * hidden // 2, tokens),
        "x8": (tokens * row_words(hidden), tokens),
        "shared_row": (tokens * hidden // 2, hidden // 16),
    }
    build = {"tokens": tokens, "groups": 1, "depth": 2, "row_tiles": row_tiles, "tp": 1}
    made = Bench(stages, dims, build, tmp_path, grid, 512, form, external=external)
    y = (rng.integers(-16, 17, (tokens, hidden)) / 8).astype(np.float32)
    gate = (rng.integers(-16, 17, (experts, hidden)) / 64).astype(np.float32)
    bias = (rng.integers(-2, 3, experts) / 2).astype(np.float32)
    w13 = Experts.random(rng, experts, 2 * padded, hidden)
    w2 = Experts.random(rng, experts, hidden, padded)
    shared = bf16(rng.normal(0, 4, (tokens, hidden)).astype(np.float32))
    q, codes = mx_quantise_m(y)
    tensors = {
        "gate": to_bits(gate), "bias": bias, "w13": w13.weights(), "w13_scale": w13.scales(), "w2": w2.weights(),
        "w2_scale": w2.scales(), "rank": 0,
    }  # fmt: skip
    given = {"y": to_bits(y), "x8": x8_words(q, codes), "shared_row": to_bits(shared)}
    out = made.run([tensors], [given], seed=seed).region("moe").view(np.uint16).reshape(tokens, hidden)

    score = (y.astype(np.float64) @ gate.T).astype(np.float32) * np.float32(0.5) + np.float32(3)
    up, down, x = w13.values(), w2.values()[..., :inter], _mx(y)
    for t in range(tokens):
        picked = expected_picks(score[t] + bias, topk)
        total_score = np.float32(0)
        for e in picked:
            total_score = np.float32(total_score + score[t, e])
        total = np.zeros(hidden, np.float32)
        for k, e in enumerate(picked):
            tiles = (up[e] @ x[t]).reshape(-1, 2, 16)
            m = _mx(exact_activation(tiles[:, 0].ravel()[:inter], tiles[:, 1].ravel()[:inter]))
            weight = score[t, e] * (np.float32(1.5) / total_score)
            part = bf16((down[e] @ m).astype(np.float32) * weight)
            total = part if k == 0 else bf16(total + part)
        assert np.array_equal(out[t], to_bits(bf16(total + shared[t])))
