"""The seam's gate: partials summed over slices, sigmoid gates and Sinkhorn, one token a task."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Bench, Placed
from seam import SINKHORN, gates

from monoc.skeletons.token_program import TokenOutput, TokenProgramParams, TokenWeight


def gate(hidden: int) -> TokenProgramParams:
    pre, post, comb = gates(4 * hidden)
    return TokenProgramParams(
        stage="seam_gate",
        hidden="HIDDEN",
        columns="COLUMNS",
        mixes="MIXES",
        partials="partials",
        outputs=(
            TokenOutput(comb, ("STREAMS", "STREAMS"), ("r", "s"), "comb_out", program=SINKHORN),
            TokenOutput(post, ("STREAMS",), ("s",), "post_out"),
            TokenOutput(pre, ("STREAMS",), ("s",), "pre_out", region="pre"),
        ),
        weights=(TokenWeight("scale", "scale", ("3",)), TokenWeight("base", "base", ("MIXES",))),
    )


def bench(tmp: Path, tokens: int, hidden: int, grid: int = 4, threads: int = 512) -> Bench:
    dims = {"HIDDEN": hidden, "STREAMS": 4, "MIXES": 24, "COLUMNS": 32}
    slices = hidden // 32
    external = {"partials": (tokens * slices * 26, slices)}
    return Bench([Placed(gate(hidden))], dims, {"tokens": tokens}, tmp, grid=grid, threads=threads, external=external)


@pytest.mark.parametrize(("tokens", "hidden"), [(48, 5120), (64, 7168)])
def test_compiles_lean(tmp_path: Path, tokens: int, hidden: int) -> None:
    (result,) = bench(tmp_path, tokens, hidden, 256).compile()
    assert result.resources.vgprs <= 96
    assert result.resources.scratch_bytes == 0
