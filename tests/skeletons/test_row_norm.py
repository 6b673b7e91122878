"""The row norm: one token's row normalised, as bf16 and as MXFP8 by both rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, from_bits, to_bits
from reference import mx_rows, pairs, quantise, random_bf16, unpack
from seam import COLLAPSE, SCALE, rstd

from monoc.schedule.model import Form
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


def bench(tmp: Path, tokens: int, hidden: int, grid: int = 4, threads: int = 512, form: Form = Form.PAIR) -> Bench:
    dims = {"HIDDEN": hidden, "COLUMNS": 32}
    external = {"row": (tokens * hidden // 2, hidden // 32)}
    stages, build = [Placed(norm(hidden))], {"tokens": tokens}
    return Bench(stages, dims, build, tmp, grid=grid, threads=threads, form=form, external=external)


@pytest.mark.parametrize(("tokens", "hidden"), [(48, 5120), (64, 7168)])
def test_compiles_lean(tmp_path: Path, tokens: int, hidden: int) -> None:
    (result,) = bench(tmp_path, tokens, hidden, 256).compile()
    assert result.resources.vgprs <= 128
    assert result.resources.scratch_bytes == 0


def _close(got: np.ndarray, want: np.ndarray) -> None:
    """bf16 bits ``got`` within one step of f64 ``want``, and nearly all equal to its rounding."""
    rounded = to_bits(want.astype(np.float32))
    assert np.all(np.abs(got.astype(np.int64) - rounded) <= 1)
    assert (got == rounded).mean() > 0.99


@pytest.mark.parametrize(
    ("tokens", "hidden", "threads", "form"),
    [(1, 5120, 512, Form.PAIR), (6, 256, 256, Form.FLAG), (3, 7168, 512, Form.BARRIER), (5, 1280, 256, Form.PAIR)],
)
def test_norm(tmp_path: Path, tokens: int, hidden: int, threads: int, form: Form) -> None:
    rng = np.random.default_rng(hidden)
    h, w = random_bf16(rng, tokens, hidden), random_bf16(rng, hidden)
    h[0, :32] = to_bits(np.zeros(32, np.float32))  # a group of zeros
    normed = np.zeros_like(h)
    out = bench(tmp_path, tokens, hidden, threads=threads, form=form).run(
        [{"norm_weight": w, "normed": normed}], [{"row": pairs(h)}]
    )
    x = from_bits(h).astype(np.float64)
    _close(normed, x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-20) * from_bits(w))
    assert np.array_equal(unpack(out.region("y"), tokens, hidden), normed)
    for region, rule in (("x8", "V"), ("m8", "M")):
        values, codes = mx_rows(out.region(region), tokens, hidden)
        want_values, want_codes = quantise(from_bits(normed), rule)
        assert np.array_equal(codes, want_codes)
        assert np.array_equal(values, want_values)


def test_collapse_behind_the_gates(tmp_path: Path) -> None:
    """Streams collapsed in the norm itself, by gates from a region."""
    tokens, hidden = 3, 512
    params = replace(
        norm(hidden),
        value=COLLAPSE,
        streams="STREAMS",
        gates="gates",
        gate_count="STREAMS",
        mx=(),
    )
    rng = np.random.default_rng(1)
    s, w = random_bf16(rng, tokens, 4, hidden), random_bf16(rng, hidden)
    pre = rng.random((tokens, 4), np.float32)
    external = {"row": (tokens * 2 * hidden, hidden // 32), "gates": (tokens * 4, tokens)}
    dims = {"HIDDEN": hidden, "COLUMNS": 32, "STREAMS": 4}
    bench = Bench([Placed(params)], dims, {"tokens": tokens}, tmp_path, external=external)
    normed = np.zeros((tokens, hidden), np.uint16)
    bench.run([{"norm_weight": w, "normed": normed}], [{"row": pairs(s), "gates": pre}])
    values = from_bits(s)
    f = pre[:, 0, None] * values[:, 0]
    for i in range(1, 4):
        f = f + pre[:, i, None] * values[:, i]
    x = from_bits(to_bits(f)).astype(np.float64)
    _close(normed, x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-20) * from_bits(w))


@pytest.mark.parametrize(("hidden", "form"), [(5120, Form.PAIR), (256, Form.FLAG)])
def test_squares_from_the_slices(tmp_path: Path, hidden: int, form: Form) -> None:
    tokens, slices = 3, hidden // 32
    params = replace(norm(hidden), squares="squares", slices="HIDDEN // COLUMNS", mx=(), rows="")
    rng = np.random.default_rng(2)
    h, w = random_bf16(rng, tokens, hidden), random_bf16(rng, hidden)
    x = from_bits(h).astype(np.float64)
    squares = (x * x).reshape(tokens, slices, 32).sum(2).astype(np.float32)
    external = {"row": (tokens * hidden // 2, slices), "squares": (tokens * slices, slices)}
    dims, normed = {"HIDDEN": hidden, "COLUMNS": 32}, np.zeros_like(h)
    bench = Bench([Placed(params)], dims, {"tokens": tokens}, tmp_path, form=form, external=external)
    bench.run([{"norm_weight": w, "normed": normed}], [{"row": pairs(h), "squares": squares}])
    _close(normed, x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-20) * from_bits(w))
