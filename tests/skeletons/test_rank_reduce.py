"""All-reduce halves: every rank's partial reaches every rank, summed in rank order with one rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Bench, Placed

from monoc.skeletons.rank_reduce import RankPushParams, RankReduceParams

PUSH = RankPushParams("push", "partial", "part", "rank", "HIDDEN", "COLUMNS")
REDUCE = RankReduceParams("reduce", "partial", "out", "HIDDEN", "COLUMNS")


def bench(tmp: Path, tokens: int, tp: int, hidden: int = 256, columns: int = 32, threads: int = 512) -> Bench:
    dims = {"HIDDEN": hidden, "COLUMNS": columns}
    return Bench([Placed(PUSH), Placed(REDUCE, 1)], dims, {"tokens": tokens, "tp": tp}, tmp, threads=threads)


@pytest.mark.parametrize(("tokens", "tp", "hidden", "columns"), [(1, 4, 5120, 32), (64, 8, 7168, 64)])
def test_compiles_lean(tmp_path: Path, tokens: int, tp: int, hidden: int, columns: int) -> None:
    (result,) = bench(tmp_path, tokens, tp, hidden, columns).compile()
    assert result.resources.vgprs <= 128
    assert result.resources.scratch_bytes == 0
