"""Expert gate and up against numpy: weights and rows whose products sum exactly, so MXFP8 results bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed
from moe_reference import (
    EXACT_ACTIVATION,
    Experts,
    e4m3_values,
    exact_activation,
    mx_quantise_m,
    pick_tiles,
    region_words,
)

from monoc.schedule.model import Form
from monoc.skeletons.expert_up import ExpertUpParams

UP = ExpertUpParams(
    "up",
    "route_table",
    "x8",
    "mid",
    "w13",
    "w13_scale",
    EXACT_ACTIVATION,
    "HIDDEN",
    "INTER",
    "PADDED",
    "EXPERTS",
    "TOPK",
    groups="b.groups",
    depth="b.depth",
    copies="COPIES",
)


def row_words(k: int) -> int:
    return -(-(k // 4 + k // 32) // 4) * 4


def bench(
    tmp: Path,
    tokens: int,
    hidden: int,
    inter: int,
    experts: int,
    topk: int,
    groups: int,
    depth: int,
    form: Form,
    grid: int = 5,
    threads: int = 512,
) -> Bench:
    padded = -(-inter // 128) * 128
    dims = {"HIDDEN": hidden, "INTER": inter, "PADDED": padded, "EXPERTS": experts, "TOPK": topk, "COPIES": 2}
    external = {"route_table": (2 * tokens * topk * 2, tokens), "x8": (tokens * row_words(hidden), tokens)}
    build = {"tokens": tokens, "groups": groups, "depth": depth}
    return Bench(
        [Placed(UP, 3)], {**dims, "THREADS": threads, "GRID": grid}, build, tmp, grid, threads, form, external=external
    )


def routed(rng: np.random.Generator, tokens: int, experts: int, topk: int, crowd: bool) -> np.ndarray:
    """Distinct picks a token; with ``crowd`` every token picks expert 1, more than a tile takes."""
    ids = np.stack([rng.permutation(experts)[:topk] for _ in range(tokens)])
    if crowd:
        for row in ids:
            if 1 not in row:
                row[rng.integers(topk)] = 1
    return ids


def x8_words(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    tokens, k = values.shape
    out = np.zeros((tokens, row_words(k)), np.uint32)
    out[:, : k // 4] = np.ascontiguousarray(values).view(np.uint32)
    out[:, k // 4 : k // 4 + k // 32] = codes
    return out


@pytest.mark.parametrize(("tokens", "groups", "depth"), [(1, 1, 5), (16, 2, 3), (48, 1, 5)])
def test_compiles_lean(tmp_path: Path, tokens: int, groups: int, depth: int) -> None:
    (result,) = bench(tmp_path, tokens, 5120, 576, 384, 6, groups, depth, Form.FLAG, 256).compile()
    assert result.resources.vgprs <= 192
    assert result.resources.scratch_bytes == 0
    assert result.resources.lds_bytes <= 160 * 1024


@pytest.mark.parametrize(
    ("tokens", "hidden", "inter", "experts", "topk", "groups", "depth", "threads", "form"),
    [
        (1, 256, 64, 16, 4, 1, 4, 512, Form.PAIR),
        (3, 512, 96, 8, 3, 2, 1, 512, Form.FLAG),  # ragged parts, fewer pairs than slices
        (20, 768, 64, 8, 2, 1, 2, 256, Form.FLAG),  # a tile of 16 and one of 4, ragged K slices
        (16, 1024, 128, 16, 4, 2, 3, 512, Form.BARRIER),
        (34, 256, 32, 70, 3, 1, 1, 512, Form.PAIR),  # two mask words, two groups of experts
    ],
)
def test_mid(
    tmp_path: Path,
    tokens: int,
    hidden: int,
    inter: int,
    experts: int,
    topk: int,
    groups: int,
    depth: int,
    threads: int,
    form: Form,
) -> None:
    rng = np.random.default_rng(hidden + tokens)
    made = bench(tmp_path, tokens, hidden, inter, experts, topk, groups, depth, form, threads=threads)
    padded = made.dims["PADDED"]
    experts_ = Experts.random(rng, experts, 2 * padded, hidden)
    ids = routed(rng, tokens, experts, topk, tokens > 16)
    table = np.zeros((2, tokens, topk, 2), np.uint32)
    table[..., 0] = ids
    x = rng.integers(0, 256, (tokens, hidden), dtype=np.uint8) & 0xBF | 0x20  # exponents 4 .. 7: |x| in 1/8 .. 1.9
    codes = rng.integers(126, 129, (tokens, hidden // 32), dtype=np.uint8)
    outcome = made.run(
        [{"w13": experts_.weights(), "w13_scale": experts_.scales()}],
        [{"route_table": table, "x8": x8_words(x, codes)}],
    )
    mid = region_words(outcome, "mid").reshape(tokens * topk, row_words(padded))
    values = e4m3_values(x) * 2.0 ** (np.repeat(codes, 32, -1).astype(np.float64) - 127)
    order, _ = pick_tiles(ids)
    full = experts_.values()
    for position, pick in enumerate(order):
        token, expert = pick // topk, ids[pick // topk, pick % topk]
        sums = full[expert] @ values[token]
        tiles = sums.reshape(-1, 2, 16)  # gate and up alternate by 16 rows
        gate, up = tiles[:, 0].reshape(-1)[:inter], tiles[:, 1].reshape(-1)[:inter]
        q, code = mx_quantise_m(exact_activation(gate, up))
        assert np.array_equal(mid[position, : inter // 4], q.view(np.uint32))
        groups_at = padded // 4 + np.arange(inter // 32) % 4 * (padded // 128) + np.arange(inter // 32) // 4
        assert np.array_equal(mid[position, groups_at], code.astype(np.uint32))
