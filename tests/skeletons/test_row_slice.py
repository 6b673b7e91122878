"""The seam's slice: fold, collapse, mix partials and sums of squares of a column slice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from harness import Bench, Placed
from seam import COLLAPSE, FOLD

from monoc.schedule.formula import formula
from monoc.skeletons.row_slice import Coefficients, RowSliceParams

SLICE = RowSliceParams(
    stage="seam_slice",
    hidden="HIDDEN",
    streams="STREAMS",
    mixes="MIXES",
    columns="COLUMNS",
    residual="residual",
    settled="settled",
    weight="fn",
    partials="partials",
    row="row",
    fold=FOLD,
    collapse=COLLAPSE,
    fold_when=formula("b.fold"),
    pending="pending",
    coefficients=(
        Coefficients("comb", "comb", ("STREAMS", "STREAMS")),
        Coefficients("post", "post", ("STREAMS",)),
        Coefficients("pre", "pre", ("STREAMS",)),
    ),
    row_squares=True,
)
REDUCED = replace(SLICE, stage="ffn_slice", pending="", pending_region="attention", fold_when=formula("True"))
FULL = {"HIDDEN": 5120, "STREAMS": 4, "MIXES": 24, "COLUMNS": 32}


@pytest.mark.parametrize("tokens", [1, 16, 48, 64])
def test_compiles_lean(tmp_path: Path, tokens: int) -> None:
    (result,) = Bench([Placed(SLICE)], FULL, {"tokens": tokens, "fold": True}, tmp_path, grid=256).compile()
    assert result.resources.vgprs <= 128
    assert result.resources.scratch_bytes == 0


def test_reduces_over_ranks(tmp_path: Path) -> None:
    build = {"tokens": 48, "fold": True, "tp": 4}
    external = {"attention": (4 * 48 * 2560, 160)}
    from monoc.schedule.model import Form

    bench = Bench([Placed(REDUCED)], FULL, build, tmp_path, grid=256, forms={"attention": Form.PEER}, external=external)
    (result,) = bench.compile()
    assert result.resources.vgprs <= 160
