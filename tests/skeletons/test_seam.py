"""The whole seam in one launch: push, reduce and slice, gate, norm, handing off through every form of region."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, from_bits
from reference import mx_rows, quantise
from test_row_norm import norm
from test_row_slice import FULL, REDUCED, Case
from test_token_program import gate

from monoc.schedule.model import Form
from monoc.skeletons.rank_reduce import RankPushParams

PUSH = RankPushParams("push", "attention", "part", "rank", "HIDDEN", "COLUMNS")


def seam(tmp: Path, tokens: int, hidden: int, tp: int, form: Form, grid: int) -> Bench:
    slices = hidden // 32
    rows = replace(norm(hidden), rows="", out_when="True")
    stages = [Placed(PUSH, 1), Placed(REDUCED), Placed(rows, slices), Placed(gate(hidden), slices + tokens)]
    build = {"tokens": tokens, "fold": True, "tp": tp}
    return Bench(stages, FULL | {"HIDDEN": hidden}, build, tmp, grid=grid, form=form)


@pytest.mark.parametrize(("form", "seed"), [(Form.PAIR, 0), (Form.FLAG, 1), (Form.PAIR, 2)])
def test_seam(tmp_path: Path, form: Form, seed: int) -> None:
    tokens, hidden, tp = 5, 256, 2
    case = Case(tokens, hidden, True, tp)
    rng = np.random.default_rng(3)
    shared = {
        "scale": rng.standard_normal(3).astype(np.float32),
        "base": rng.standard_normal(24).astype(np.float32),
        "norm_weight": np.full(hidden, 0x3F80, np.uint16),
    }
    inputs = []
    for rank in range(tp):
        own = {name: value.copy() for name, value in (case.arguments() | shared).items()}
        own |= {"part": case.parts[rank], "rank": rank, "normed": np.zeros((tokens, hidden), np.uint16)}
        own |= {n: np.zeros((tokens, 4, 4), np.float32) for n in ("comb_out", "post_out", "pre_out")}
        inputs.append(own)
    mx = hidden // 4 + hidden // 32
    chunks = {"row": 16, "squares": 1, "partials": 26, "x8": mx, "m8": mx, "pre": 4}
    out = seam(tmp_path, tokens, hidden, tp, form, 6).run(inputs, seed=seed, chunks=chunks)
    for rank, own in enumerate(inputs):
        case.check(own["settled"], out, rank)
        for name in ("normed", "comb_out", "post_out", "pre_out"):
            assert np.array_equal(own[name], inputs[0][name])  # all ranks agree bit for bit
        values, codes = mx_rows(out.region("x8", rank), tokens, hidden)
        want_values, want_codes = quantise(from_bits(own["normed"]), "V")
        assert np.array_equal(values, want_values)
        assert np.array_equal(codes, want_codes)
