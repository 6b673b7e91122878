"""The seam's gate: partials summed over slices, sigmoid gates and Sinkhorn, one token a task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed
from reference import rsq
from seam import SINKHORN, gates

from monoc.schedule.model import Form
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


def bench(tmp: Path, tokens: int, hidden: int, grid: int = 4, threads: int = 512, form: Form = Form.PAIR) -> Bench:
    dims = {"HIDDEN": hidden, "STREAMS": 4, "MIXES": 24, "COLUMNS": 32}
    slices = hidden // 32
    external = {"partials": (tokens * slices * 26, slices)}
    stages, build = [Placed(gate(hidden))], {"tokens": tokens}
    return Bench(stages, dims, build, tmp, grid=grid, threads=threads, form=form, external=external)


@pytest.mark.parametrize(("tokens", "hidden"), [(48, 5120), (64, 7168)])
def test_compiles_lean(tmp_path: Path, tokens: int, hidden: int) -> None:
    (result,) = bench(tmp_path, tokens, hidden, 256).compile()
    assert result.resources.vgprs <= 96
    assert result.resources.scratch_bytes == 0


def _sinkhorn(z: np.ndarray) -> np.ndarray:
    """20 rounds on [tokens, 4, 4], in f64."""
    e = np.exp2((z - z.max(2, keepdims=True)) / np.log(2))
    e = e / e.sum(2, keepdims=True) + 1e-6
    e = e / (e.sum(1, keepdims=True) + 1e-6)
    for _ in range(19):
        e = e / (e.sum(2, keepdims=True) + 1e-6)
        e = e / (e.sum(1, keepdims=True) + 1e-6)
    return e


@pytest.mark.parametrize(
    ("tokens", "hidden", "threads", "form"),
    [(1, 5120, 512, Form.PAIR), (6, 256, 256, Form.FLAG), (9, 7168, 512, Form.BARRIER), (5, 1280, 256, Form.PAIR)],
)
def test_gates(tmp_path: Path, tokens: int, hidden: int, threads: int, form: Form) -> None:
    rng = np.random.default_rng(hidden)
    slices = hidden // 32
    partials = rng.standard_normal((tokens, slices, 26)).astype(np.float32)
    partials[..., 24] = rng.random((tokens, slices), np.float32) * 128
    scale = rng.standard_normal(3).astype(np.float32)
    base = rng.standard_normal(24).astype(np.float32)
    shapes = {"comb_out": (tokens, 4, 4), "post_out": (tokens, 4), "pre_out": (tokens, 4)}
    outs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    out = bench(tmp_path, tokens, hidden, threads=threads, form=form).run(
        [{"scale": scale, "base": base, **outs}], [{"partials": partials}]
    )
    sums = partials.astype(np.float64).sum(1)
    v = sums[:, :24] * rsq(sums[:, 24] / (4 * hidden) + 1e-20)[:, None]
    close = {"rtol": 1e-4, "atol": 1e-5}
    pre = 1 / (1 + np.exp(-(v[:, :4] * scale[0] + base[:4]))) + 1e-6
    np.testing.assert_allclose(outs["pre_out"], pre, **close)
    np.testing.assert_allclose(outs["post_out"], 2 / (1 + np.exp(-(v[:, 4:8] * scale[1] + base[4:8]))), **close)
    comb = _sinkhorn((v[:, 8:] * scale[2] + base[8:]).reshape(-1, 4, 4))
    np.testing.assert_allclose(outs["comb_out"], comb, **close)
    assert np.array_equal(out.region("pre").view(np.float32), outs["pre_out"].reshape(-1))
