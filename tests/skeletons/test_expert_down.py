"""Expert down projections, their sum in pick order and the push, against numpy, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, to_bits
from moe_reference import ADD, JOIN, WEIGH, Experts, bf16, e4m3_values, pick_tiles
from test_expert_up import routed, row_words

from monoc.schedule.model import Form
from monoc.skeletons.expert_down import ExpertDownParams


def params(shared: str) -> ExpertDownParams:
    return ExpertDownParams(
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
        shared,
        "b.groups",
        "b.row_tiles",
        "COPIES",
    )


def bench(
    tmp: Path,
    tokens: int,
    hidden: int,
    inter: int,
    experts: int,
    topk: int,
    groups: int,
    row_tiles: int,
    form: Form,
    shared: str = "shared_row",
    grid: int = 5,
    threads: int = 512,
    tp: int = 1,
) -> Bench:
    padded = -(-inter // 128) * 128
    dims = {"HIDDEN": hidden, "INTER": inter, "PADDED": padded, "EXPERTS": experts, "TOPK": topk, "COPIES": 2}
    picks = tokens * topk
    tiles = min(picks, min(picks, experts) + picks // 16)
    external = {
        "route_table": (2 * picks * 2, tokens),
        "mid": (picks * row_words(padded), tiles * -(-(inter // 32) // groups)),
    }
    if shared:
        external[shared] = (tokens * hidden // 2, hidden // 16)
    build = {"tokens": tokens, "groups": groups, "row_tiles": row_tiles, "tp": tp}
    return Bench(
        [Placed(params(shared), 1)], {**dims, "THREADS": threads}, build, tmp, grid, threads, form, external=external
    )


@pytest.mark.parametrize(("tokens", "row_tiles"), [(1, 2), (16, 2), (48, 1)])
def test_compiles_lean(tmp_path: Path, tokens: int, row_tiles: int) -> None:
    (result,) = bench(tmp_path, tokens, 5120, 576, 384, 6, 1, row_tiles, Form.FLAG, grid=256, tp=4).compile()
    assert result.resources.vgprs <= 192
    assert result.resources.scratch_bytes == 0


@pytest.mark.parametrize(
    ("tokens", "hidden", "inter", "experts", "topk", "groups", "row_tiles", "shared", "threads", "form"),
    [
        (1, 256, 64, 16, 4, 1, 2, "shared_row", 512, Form.PAIR),
        (3, 256, 96, 8, 3, 2, 1, "", 512, Form.FLAG),
        (20, 128, 160, 8, 2, 1, 1, "shared_row", 256, Form.FLAG),  # more than a tile of one expert
        (16, 128, 288, 16, 4, 2, 2, "shared_row", 512, Form.BARRIER),
        (34, 64, 32, 70, 3, 1, 1, "shared_row", 512, Form.PAIR),
    ],
)
def test_rows(
    tmp_path: Path,
    tokens: int,
    hidden: int,
    inter: int,
    experts: int,
    topk: int,
    groups: int,
    row_tiles: int,
    shared: str,
    threads: int,
    form: Form,
) -> None:
    rng = np.random.default_rng(hidden + tokens)
    made = bench(tmp_path, tokens, hidden, inter, experts, topk, groups, row_tiles, form, shared, threads=threads)
    padded = made.dims["PADDED"]
    matrices = Experts.random(rng, experts, hidden, padded)
    ids = routed(rng, tokens, experts, topk, tokens > 16)
    weights = rng.random((tokens, topk)).astype(np.float32)
    table = np.zeros((2, tokens, topk, 2), np.uint32)
    table[..., 0], table[..., 1] = ids, weights.view(np.uint32)
    order, _ = pick_tiles(ids)
    mid_values = rng.integers(0, 256, (tokens * topk, padded), dtype=np.uint8) & 0xBF | 0x20
    mid_values[:, inter:] = 0x7F  # NaN: what lies past the real columns must not matter
    codes = rng.integers(126, 129, (tokens * topk, padded // 32), dtype=np.uint8)
    codes[:, inter // 32 :] = 0xFF
    mid = np.zeros((tokens * topk, row_words(padded)), np.uint32)
    mid[:, : padded // 4] = mid_values.view(np.uint32)
    at = np.arange(padded // 32)
    mid[:, padded // 4 + at % 4 * (padded // 128) + at // 4] = codes
    given = {"route_table": table, "mid": mid}
    row = bf16(rng.normal(0, 4, (tokens, hidden)).astype(np.float32))
    if shared:
        given[shared] = to_bits(row)
    outcome = made.run([{"w2": matrices.weights(), "w2_scale": matrices.scales(), "rank": 0}], [given])
    out = outcome.region("moe").view(np.uint16).reshape(tokens, hidden)
    x = e4m3_values(mid_values[:, :inter]) * 2.0 ** (
        np.repeat(codes[:, : inter // 32], 32, -1).astype(np.float64) - 127
    )
    full = matrices.values()[..., :inter]
    parts = np.zeros((tokens, topk, hidden), np.float32)
    for position, pick in enumerate(order):
        token, k = divmod(pick, topk)
        value = (full[ids[token, k]] @ x[position]).astype(np.float32)
        parts[token, k] = bf16(value * weights[token, k])
    total = parts[:, 0]
    for k in range(1, topk):
        total = bf16(total + parts[:, k])
    if shared:
        total = bf16(total + row)
    assert np.array_equal(out, to_bits(total).reshape(out.shape))


def test_every_rank_gets_the_rows(tmp_path: Path) -> None:
    """Two ranks: each finds both ranks' rows, its own rank's at its place."""
    tokens, hidden, inter, experts, topk = 2, 64, 32, 8, 2
    made = bench(tmp_path, tokens, hidden, inter, experts, topk, 1, 1, Form.PAIR, "", tp=2)
    rng = np.random.default_rng(3)
    table = np.zeros((2, tokens, topk, 2), np.uint32)
    table[..., 0] = [[1, 2], [2, 5]]
    table[..., 1] = np.float32(0.5).view(np.uint32)
    inputs, given = [], []
    for rank in range(2):
        matrices = Experts.random(rng, experts, hidden, 128)
        inputs.append({"w2": matrices.weights(), "w2_scale": matrices.scales(), "rank": rank})
        mid = np.zeros((tokens * topk, row_words(128)), np.uint32)
        mid[:, :8], mid[:, 32:] = 0x38383838, 127
        given.append({"route_table": table, "mid": mid})
    outcome = made.run(inputs, given)
    first, second = outcome.region("moe", 0), outcome.region("moe", 1)
    assert np.array_equal(first, second)
    half = first.size // 2
    assert not np.array_equal(first[:half], first[half:])
