"""The key table: compressed rows through the block table, window slots, counts, padded rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed

from monoc.schedule.formula import formula
from monoc.skeletons.key_table import KeyTableParams, Selection

LOCAL = Selection("b.ratio", "TOPK", "topk", "positions", "block_table", "table_stride", "block", "requests")


def table(selection: Selection | None = LOCAL, fill: bool = True) -> KeyTableParams:
    return KeyTableParams(
        "keys", "table", "TOPK + WINDOW", "slots", "window", "window_counts", "WINDOW", selection, fill
    )


def bench(tmp: Path, tokens: int, topk: int, window: int, ratio: int, fill: bool = True, grid: int = 4) -> Bench:
    dims = {"TOPK": topk, "WINDOW": window}
    return Bench([Placed(table(fill=fill))], dims, {"tokens": tokens, "ratio": ratio}, tmp, grid=grid)


@pytest.mark.parametrize(("ratio", "fill"), [(2, True), (0, True), (4, False)])
def test_compiles_lean(tmp_path: Path, ratio: int, fill: bool) -> None:
    (result,) = bench(tmp_path, 48, 512, 128, ratio, fill, 256).compile()
    assert result.resources.vgprs <= 64
    assert result.resources.scratch_bytes == 0


@pytest.mark.parametrize(("ratio", "fill"), [(2, True), (0, True), (4, False), (1, True)])
def test_entries(tmp_path: Path, ratio: int, fill: bool) -> None:
    topk, width, tokens, block = 48, 24, 7, 16
    rng = np.random.default_rng(ratio)
    positions = np.array([0, 1, 5, 30, 500, 77, 200], np.int64)
    slots = np.array([3, 9, -1, 40, 41, 2, 8], np.int64)
    window = rng.integers(0, 1 << 20, (tokens, width)).astype(np.int32)
    window_counts = np.minimum(positions + 1, width).astype(np.int32)
    requests = np.array([0, 1, 1 << 29, 2, 0, 1, 2], np.int32)  # a padded row's request is anything
    block_table = rng.integers(0, 1000, (3, 40)).astype(np.int32)
    indices = rng.integers(0, 640, (tokens, topk)).astype(np.int32)
    indices[3, 4] = -1
    selected = np.where(slots >= 0, np.minimum((positions + 1) // ratio, topk) if ratio else 0, 0)
    for t in range(tokens):
        indices[t, selected[t] :] = 1 << 28  # never read as a row
    inputs = {
        "slots": slots,
        "window": window,
        "window_counts": window_counts,
        "positions": positions,
        "topk": indices,
        "block_table": block_table,
        "table_stride": 40,
        "block": block,
        "requests": requests,
    }
    out = bench(tmp_path, tokens, topk, width, ratio, fill)
    words = out.run([inputs]).scratch[0].view(np.int32)
    place = out.places["table"]
    got = words[place.offset // 4 :][: 2 * place.words].reshape(-1, 2)[:, 0]
    table, counts = got[: tokens * (topk + width)].reshape(tokens, -1), got[tokens * (topk + width) :]
    for t in range(tokens):
        n = int(selected[t])
        rows = indices[t, :n]
        pages = block_table[requests[t] if slots[t] >= 0 else 0, np.maximum(rows, 0) // block]
        first = np.where(rows >= 0, (pages * block + rows % block) | np.int32(-(2**31)), -1)
        want = np.concatenate([first, window[t, : window_counts[t] if slots[t] >= 0 else 0]])
        assert counts[t] == want.size
        assert np.array_equal(table[t, : want.size], want)
        assert np.all(table[t, want.size :] == (-1 if fill else 0))


@pytest.mark.parametrize("paged", [True, False])
def test_rows_as_wide_as_the_host_has_them(tmp_path: Path, paged: bool) -> None:
    """Pages or slots by the build; the row width bounds the count, and nothing past it is read or written."""
    topk, wide, width, tokens, block = 64, 40, 8, 3, 16
    rng = np.random.default_rng(7)
    positions, slots = np.array([3, 1000, 90], np.int64), np.array([1, 2, 3], np.int64)
    window = rng.integers(0, 1 << 20, (tokens, width)).astype(np.int32)
    indices = rng.integers(0, 640, (tokens, wide)).astype(np.int32)
    block_table = rng.integers(0, 1000, (1, 40)).astype(np.int32)
    selection = replace(LOCAL, paged=formula("b.paged"), pitch="pitch")
    params = table(selection, fill=False)
    made = Bench(
        [Placed(params)], {"TOPK": topk, "WINDOW": width}, {"tokens": tokens, "ratio": 2, "paged": paged}, tmp_path
    )
    inputs = {
        "slots": slots,
        "window": window,
        "window_counts": np.full(tokens, 5, np.int32),
        "positions": positions,
        "topk": indices,
        "pitch": wide,
        "block_table": block_table,
        "table_stride": 40,
        "block": block,
        "requests": np.zeros(tokens, np.int32),
    }
    words = made.run([inputs]).scratch[0].view(np.int32)
    place = made.places["table"]
    got = words[place.offset // 4 :][: 2 * place.words].reshape(-1, 2)[:, 0]
    keys, counts = got[: tokens * (topk + width)].reshape(tokens, -1), got[tokens * (topk + width) :]
    for t in range(tokens):
        rows = indices[t, : min((positions[t] + 1) // 2, wide)]
        chosen = block_table[0, rows // block] * block + rows % block if paged else rows
        want = np.concatenate([chosen | np.int32(-(2**31)), window[t, :5]])
        assert counts[t] == want.size
        assert np.array_equal(keys[t, : want.size], want)
