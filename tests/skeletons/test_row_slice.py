"""The seam's slice: fold, collapse, mix partials and sums of squares of a column slice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Outcome, Placed, from_bits, to_bits
from reference import pairs, random_bf16, unpack
from seam import COLLAPSE, FOLD

from monoc.build.isa import CompileError
from monoc.schedule.formula import formula
from monoc.schedule.model import Form
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
    row_squares="squares",
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
    bench = Bench([Placed(REDUCED)], FULL, build, tmp_path, grid=256, forms={"attention": Form.PEER}, external=external)
    (result,) = bench.compile()
    assert result.resources.vgprs <= 160


class Case:
    """Random operands of a slice and what facts of the seam say it computes."""

    def __init__(self, tokens: int, hidden: int, fold: bool, tp: int = 1) -> None:
        rng = np.random.default_rng(7 * tokens + hidden)
        self.tokens, self.hidden = tokens, hidden
        self.residual = random_bf16(rng, tokens, 4, hidden)
        self.comb = rng.random((tokens, 4, 4), np.float32)
        self.post = rng.random((tokens, 4), np.float32)
        self.pre = rng.random((tokens, 4), np.float32)
        self.fn = rng.standard_normal((24, 4 * hidden)).astype(np.float32)
        self.parts = [random_bf16(rng, tokens, hidden) for _ in range(tp)]
        self.settled = np.zeros_like(self.residual)
        x = from_bits(self.parts[0])
        for part in self.parts[1:]:
            x = x + from_bits(part)
        self.pending = to_bits(x)
        self.want_settled = self._fold(from_bits(self.pending)) if fold else self.residual
        s = from_bits(self.want_settled)
        h = self.pre[:, 0, None] * s[:, 0]
        for i in range(1, 4):
            h = h + self.pre[:, i, None] * s[:, i]
        self.want_row = to_bits(h)

    def _fold(self, x: np.ndarray) -> np.ndarray:
        r, out = from_bits(self.residual), np.empty_like(self.residual)
        for s in range(4):
            c = self.comb[:, :, s, None]
            v = self.post[:, s, None] * x + c[:, 0] * r[:, 0]
            v = v + c[:, 1] * r[:, 1]
            v = v + c[:, 2] * r[:, 2]
            # the product of two f32 is exact in f64; its sum there rounds far below f32's rounding
            out[:, s] = to_bits((c[:, 3].astype(np.float64) * r[:, 3] + v).astype(np.float32))
        return out

    def arguments(self) -> dict[str, np.ndarray]:
        names = ("residual", "pending", "comb", "post", "pre", "fn", "settled")
        return {name: getattr(self, name) for name in names}

    def check(self, settled: np.ndarray, out: Outcome, rank: int = 0, columns: int = 32) -> None:
        row, partials, squares = (out.region(name, rank) for name in ("row", "partials", "squares"))
        assert np.array_equal(settled, self.want_settled)
        assert np.array_equal(unpack(row, self.tokens, self.hidden), self.want_row)
        slices = self.hidden // columns
        got = partials.view(np.float32).reshape(self.tokens, slices, 26)
        s = from_bits(self.want_settled).astype(np.float64).reshape(self.tokens, 4, slices, columns)
        hi = from_bits(to_bits(self.fn))
        w = (hi + from_bits(to_bits(self.fn - hi))).astype(np.float64).reshape(24, 4, slices, columns)
        mixes = np.einsum("jsnc,tsnc->tnj", w, s)
        scale = np.einsum("jsnc,tsnc->tnj", np.abs(w), np.abs(s))
        assert np.all(np.abs(got[..., :24] - mixes) <= 1e-6 * scale)
        np.testing.assert_allclose(got[..., 24], np.einsum("tsnc,tsnc->tn", s, s), rtol=1e-6)
        h = from_bits(self.want_row).astype(np.float64).reshape(self.tokens, slices, columns)
        np.testing.assert_allclose(
            squares.view(np.float32).reshape(self.tokens, slices), np.einsum("tnc,tnc->tn", h, h), rtol=1e-6
        )


@pytest.mark.parametrize(
    ("tokens", "columns", "fold", "form", "threads"),
    [
        (1, 32, True, Form.PAIR, 512),
        (5, 32, False, Form.FLAG, 256),
        (19, 64, True, Form.BARRIER, 256),
        (64, 32, True, Form.PAIR, 512),
    ],
)
def test_slice(tmp_path: Path, tokens: int, columns: int, fold: bool, form: Form, threads: int) -> None:
    case = Case(tokens, 256, fold)
    dims = FULL | {"HIDDEN": 256, "COLUMNS": columns}
    bench = Bench([Placed(SLICE, 1)], dims, {"tokens": tokens, "fold": fold}, tmp_path, threads=threads, form=form)
    out = bench.run([case.arguments()])
    case.check(case.settled, out, columns=columns)


@pytest.mark.parametrize(("tokens", "mixes", "streams"), [(3, 40, 2), (35, 40, 2), (20, 6, 1)])
def test_other_shapes(tmp_path: Path, tokens: int, mixes: int, streams: int) -> None:
    """Streams as they come, other numbers of streams and mixes, eight columns a thread, streams handed on."""
    params = replace(SLICE, fold=None, pending="", collapse=None, row="", vector="8", settled_region="on")
    params = replace(params, row_squares="", coefficients=())
    dims = {"HIDDEN": 128, "STREAMS": streams, "MIXES": mixes, "COLUMNS": 64}
    rng = np.random.default_rng(mixes)
    residual, settled = random_bf16(rng, tokens, streams, 128), np.zeros((tokens, streams, 128), np.uint16)
    fn = from_bits(random_bf16(rng, mixes, streams * 128))
    bench = Bench([Placed(params)], dims, {"tokens": tokens}, tmp_path)
    out = bench.run([{"residual": residual, "settled": settled, "fn": fn}])
    assert np.array_equal(settled, residual)
    assert np.array_equal(out.region("on"), pairs(residual))
    pad = -(-mixes // 4) * 4
    place = out.places["partials"]
    words = out.scratch[0][place.offset // 4 :][: 2 * place.words].reshape(-1, 2)[:, 0].copy().view(np.float32)
    got = words.reshape(tokens, 2, pad + 2)
    s = from_bits(residual).astype(np.float64).reshape(tokens, streams, 2, 64)
    want = np.einsum("jsnc,tsnc->tnj", fn.reshape(mixes, streams, 2, 64).astype(np.float64), s)
    np.testing.assert_allclose(got[..., :mixes], want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(got[..., pad], np.einsum("tsnc,tsnc->tn", s, s), rtol=1e-6)


def test_too_many_mixes(tmp_path: Path) -> None:
    params = replace(SLICE, mixes="80")
    bench = Bench([Placed(params)], FULL, {"tokens": 1, "fold": True}, tmp_path, threads=256)
    with pytest.raises(CompileError, match="80 mixes need 5 waves"):
        bench.compile()


def test_slice_of_a_reduced_row(tmp_path: Path) -> None:
    tokens, tp = 6, 4
    case = Case(tokens, 256, True, tp)
    build = {"tokens": tokens, "fold": True, "tp": tp}
    external = {"attention": (tp * tokens * 128, 8)}
    forms = {"attention": Form.PEER}
    bench = Bench([Placed(REDUCED)], FULL | {"HIDDEN": 256}, build, tmp_path, forms=forms, external=external)
    words = np.concatenate([pairs(part) for part in case.parts])
    out = bench.run([case.arguments()], [{"attention": words}])
    case.check(case.settled, out)
