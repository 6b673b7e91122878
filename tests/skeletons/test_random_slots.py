"""Random fold, collapse, gate, activation and score programs: simulated stages equal numpy bit for bit, no Python
changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from harness import Bench, Placed, from_bits
from hypothesis import HealthCheck, Phase, assume, given, settings
from random_slots import evaluate_slot, exact_programs
from reference import random_bf16, unpack
from seam import access
from test_gemv import TINY, bf16, bf16_rows, linear
from test_gemv import params as gemv_params
from test_gemv import run as run_gemv
from test_route import bench as route_bench
from test_route import expected_picks, picks_table
from test_row_slice import FULL, SLICE, Case

from monoc.expr.ir import DType, IndexSum, Round
from monoc.expr.slot import SlotInput
from monoc.schedule.model import Form
from monoc.skeletons.gemv import Rows
from monoc.skeletons.token_program import TokenOutput, TokenProgramParams, TokenWeight

# No shrinking: a failure prints a small program as it is, and every try compiles a launch.
QUICK = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
FOLD_INPUTS = (
    SlotInput("x", access("x", "t", "c")),
    SlotInput("p", access("post", "t", "s")),
    SlotInput("r", access("R", "t", "s", "c")),
    SlotInput("r2", access("R", "t", 2, "c")),
    SlotInput("k", access("comb", "t", 1, "s")),
    SlotInput("k0", access("comb", "t", "s", 0)),
)
COLLAPSE_INPUTS = tuple(
    SlotInput(f"{n}{i}", access(t, *index))
    for i in range(4)
    for n, t, index in (("g", "pre", ("t", i)), ("s", "S", ("t", i, "c")))
)
GATE_INPUTS = (
    SlotInput("m", access("mix", "t", IndexSum((("s", 1),), 2))),
    SlotInput("q", access("ss", "t")),
    SlotInput("a", access("scale", 1)),
    SlotInput("w", access("base", IndexSum((("s", 2),), 1))),
)
ACTIVATION_INPUTS = (SlotInput("gate"), SlotInput("up"))
SCORE_INPUTS = (SlotInput("x"),)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, the sign of a zero and the payload of a NaN apart (min and max state neither)."""
    assert np.array_equal(got + np.float32(0), want + np.float32(0), equal_nan=True)


@QUICK
@given(exact_programs("random_fold", FOLD_INPUTS, True), exact_programs("random_collapse", COLLAPSE_INPUTS, True))
def test_fold_and_collapse(fold, collapse) -> None:  # type: ignore[no-untyped-def]
    tokens, hidden = 3, 64
    case = Case(tokens, hidden, True)
    params = replace(SLICE, fold=fold, collapse=collapse)
    with TemporaryDirectory() as tmp:
        bench = Bench([Placed(params)], FULL | {"HIDDEN": hidden}, {"tokens": tokens, "fold": True}, Path(tmp), grid=2)
        out = bench.run([case.arguments()])
    r, shape = from_bits(case.residual), (tokens, 4, hidden)
    inputs = {
        "x": from_bits(case.pending)[:, None, :],
        "p": case.post[:, :, None],
        "r": r,
        "r2": r[:, 2:3],
        "k": case.comb[:, 1, :, None],
        "k0": case.comb[:, :, 0, None],
    }
    settled = evaluate_slot(fold, {name: np.broadcast_to(v, shape) for name, v in inputs.items()})
    same(from_bits(case.settled), settled)
    s = from_bits(case.settled)
    inputs = {f"g{i}": np.broadcast_to(case.pre[:, i, None], (tokens, hidden)) for i in range(4)}
    inputs |= {f"s{i}": s[:, i] for i in range(4)}
    same(from_bits(unpack(out.region("row"), tokens, hidden)), evaluate_slot(collapse, inputs))


@QUICK
@given(exact_programs("random_gate", GATE_INPUTS, False))
def test_gate(gate) -> None:  # type: ignore[no-untyped-def]
    tokens, slices = 3, 2
    rng = np.random.default_rng(5)
    # few bits: the sums over slices are exact in any order
    partials = from_bits(random_bf16(rng, tokens, slices, 10))
    partials[:, 1] = partials[:, 0]
    scale, base = rng.standard_normal(3).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    params = TokenProgramParams(
        stage="random_stage",
        hidden="HIDDEN",
        columns="COLUMNS",
        mixes="MIXES",
        partials="partials",
        outputs=(TokenOutput(gate, ("3",), ("s",), "out"),),
        weights=(TokenWeight("scale", "scale", ("3",)), TokenWeight("base", "base", ("MIXES",))),
    )
    got = np.zeros((tokens, 3), np.float32)
    with TemporaryDirectory() as tmp:
        external = {"partials": (tokens * slices * 10, slices)}
        dims = {"HIDDEN": 64, "COLUMNS": 32, "MIXES": 8}
        bench = Bench([Placed(params)], dims, {"tokens": tokens}, Path(tmp), grid=2, threads=256, external=external)
        bench.run([{"scale": scale, "base": base, "out": got}], [{"partials": partials}])
    sums = partials.sum(1)
    inputs = {"m": sums[:, 2:5], "q": sums[:, 8:9], "a": scale[1], "w": base[1:7:2]}
    same(got, evaluate_slot(gate, {name: np.broadcast_to(v, (tokens, 3)) for name, v in inputs.items()}))


@QUICK
@given(exact_programs("random_activation", ACTIVATION_INPUTS, False))
def test_activation(activation) -> None:  # type: ignore[no-untyped-def]
    tokens = 5
    data = linear(tokens, 64, 256)
    with TemporaryDirectory() as tmp:
        out = run_gemv(gemv_params(Rows("y"), activation=activation), data, Path(tmp), dims={**TINY, "K": 256})
    halves = {"gate": bf16(data.result)[:, :32], "up": bf16(data.result)[:, 32:]}
    rounded = replace(activation, results=(Round(DType.BF16, activation.results[0]),))
    same(bf16_rows(out, "y", (tokens, 32)), evaluate_slot(rounded, halves))


@QUICK
@given(exact_programs("random_score", SCORE_INPUTS, False))
def test_score(score) -> None:  # type: ignore[no-untyped-def]
    tokens, experts, topk = 3, 100, 3
    rng = np.random.default_rng(6)
    logits = rng.normal(0, 3, (tokens, experts, 1)).astype(np.float32)
    bias = rng.normal(0, 0.2, experts).astype(np.float32)
    scores = evaluate_slot(score, {"x": logits[..., 0]})
    assume((np.isfinite(scores).sum(1) >= topk).all())  # which of the NaNs is picked is nobody's business
    with TemporaryDirectory() as tmp:
        made = route_bench(Path(tmp), tokens, experts, topk, 1, score, Form.PAIR)
        ids, weights = picks_table(made.run([{"bias": bias}], [{"logits": logits}]), tokens, topk)
    for t in range(tokens):
        picked = expected_picks(scores[t] + bias, topk)
        assert ids[t].tolist() == picked
        total = np.float32(0)
        with np.errstate(all="ignore"):
            for value in scores[t, picked]:
                total = np.float32(total + value)
            same(weights[t], scores[t, picked] * (np.float32(1.5) / np.maximum(total, np.float32(1e-20))))
