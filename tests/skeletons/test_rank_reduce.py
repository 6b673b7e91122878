"""All-reduce halves: every rank's partial reaches every rank, summed in rank order with one rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, from_bits, to_bits
from reference import random_bf16

from monoc.schedule.formula import formula
from monoc.skeletons.rank_reduce import RankPushParams, RankReduceParams, TwoHop

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


@pytest.mark.parametrize(("tokens", "tp", "threads"), [(3, 2, 256), (5, 4, 512), (9, 8, 256)])
def test_sums_in_rank_order(tmp_path: Path, tokens: int, tp: int, threads: int) -> None:
    rng = np.random.default_rng(tokens)
    parts = [random_bf16(rng, tokens, 256) for _ in range(tp)]
    outs = [np.zeros((tokens, 256), np.uint16) for _ in range(tp)]
    inputs = [{"part": parts[r], "rank": r, "out": outs[r]} for r in range(tp)]
    bench(tmp_path, tokens, tp, threads=threads).run(inputs)
    total = from_bits(parts[0])
    for part in parts[1:]:
        total = total + from_bits(part)
    for out in outs:
        assert np.array_equal(out, to_bits(total))


@pytest.mark.parametrize(("tokens", "tp", "threads"), [(3, 2, 256), (5, 4, 512), (9, 8, 256)])
def test_two_hops_give_the_bits_of_one(tmp_path: Path, tokens: int, tp: int, threads: int) -> None:
    hop = TwoHop("sums", "rank", formula("b.tokens >= 3"))
    push = RankPushParams("push", "partial", "part", "rank", "HIDDEN", "COLUMNS", hop.when)
    reduce = RankReduceParams("reduce", "partial", "out", "HIDDEN", "COLUMNS", hop)
    rng = np.random.default_rng(tokens)
    parts = [random_bf16(rng, tokens, 256) for _ in range(tp)]
    outs = [np.zeros((tokens, 256), np.uint16) for _ in range(tp)]
    inputs = [{"part": parts[r], "rank": r, "out": outs[r]} for r in range(tp)]
    dims = {"HIDDEN": 256, "COLUMNS": 32}
    stages = [Placed(push), Placed(reduce, 1)]
    Bench(stages, dims, {"tokens": tokens, "tp": tp}, tmp_path, threads=threads).run(inputs)
    total = from_bits(parts[0])
    for part in parts[1:]:
        total = total + from_bits(part)
    for out in outs:
        assert np.array_equal(out, to_bits(total))
