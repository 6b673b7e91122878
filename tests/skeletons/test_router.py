"""Router logits against numpy: exact sums, so bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, to_bits

from monoc.schedule.model import Form
from monoc.skeletons.router import RouterParams

ROUTER = RouterParams("router", "y", "logits", "gate", "HIDDEN", "EXPERTS", "PARTS")


def bench(
    tmp: Path,
    tokens: int,
    hidden: int,
    experts: int,
    parts: int,
    form: Form = Form.PAIR,
    grid: int = 4,
    threads: int = 512,
) -> Bench:
    dims = {"HIDDEN": hidden, "EXPERTS": experts, "PARTS": parts, "THREADS": threads}
    external = {"y": (tokens * hidden // 2, tokens)}
    return Bench([Placed(ROUTER, 1)], dims, {"tokens": tokens}, tmp, grid, threads, form, external=external)


@pytest.mark.parametrize("tokens", [1, 48])
def test_compiles_lean(tmp_path: Path, tokens: int) -> None:
    (result,) = bench(tmp_path, tokens, 5120, 384, 4, Form.FLAG, 256).compile()
    assert result.resources.vgprs <= 96
    assert result.resources.scratch_bytes == 0


@pytest.mark.parametrize(
    ("tokens", "hidden", "experts", "parts", "threads", "form"),
    [
        (1, 256, 16, 1, 512, Form.PAIR),
        (19, 512, 40, 3, 512, Form.FLAG),  # two token tiles, a partial expert tile, ragged K parts
        (5, 1024, 32, 2, 256, Form.BARRIER),
    ],
)
def test_logits(tmp_path: Path, tokens: int, hidden: int, experts: int, parts: int, threads: int, form: Form) -> None:
    rng = np.random.default_rng(tokens)
    y = (rng.integers(-16, 17, (tokens, hidden)) / 8).astype(np.float32)
    gate = (rng.integers(-16, 17, (experts, hidden)) / 16).astype(np.float32)
    made = bench(tmp_path, tokens, hidden, experts, parts, form, threads=threads)
    outcome = made.run([{"gate": to_bits(gate)}], [{"y": to_bits(y)}])
    logits = outcome.region("logits").view(np.float32).reshape(tokens, experts, parts)
    steps = -(-(hidden // 32) // parts)
    for part in range(parts):
        k = slice(part * steps * 32, (part + 1) * steps * 32)
        assert np.array_equal(logits[..., part], (y[:, k].astype(np.float64) @ gate[:, k].T).astype(np.float32))
