"""The key table: compressed rows through the block table, window slots, counts, padded rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Bench, Placed

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
