"""The row norm: one token's row normalised, as bf16 and as MXFP8 by both rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Bench, Placed
from seam import SCALE, rstd

from monoc.skeletons.row_norm import MxOutput, RowNormParams, RowWeight


def norm(hidden: int) -> RowNormParams:
    return RowNormParams(
        stage="seam_norm",
        hidden="HIDDEN",
        row="row",
        row_units="HIDDEN // COLUMNS",
        rstd=rstd(hidden),
        scale=SCALE,
        weights=(RowWeight("w", "norm_weight"),),
        out="normed",
        rows="y",
        mx=(MxOutput("x8", "V"), MxOutput("m8", "M")),
    )


def bench(tmp: Path, tokens: int, hidden: int, grid: int = 4, threads: int = 512) -> Bench:
    dims = {"HIDDEN": hidden, "COLUMNS": 32}
    external = {"row": (tokens * hidden // 2, hidden // 32)}
    return Bench([Placed(norm(hidden))], dims, {"tokens": tokens}, tmp, grid=grid, threads=threads, external=external)


@pytest.mark.parametrize(("tokens", "hidden"), [(48, 5120), (64, 7168)])
def test_compiles_lean(tmp_path: Path, tokens: int, hidden: int) -> None:
    (result,) = bench(tmp_path, tokens, hidden, 256).compile()
    assert result.resources.vgprs <= 128
    assert result.resources.scratch_bytes == 0
