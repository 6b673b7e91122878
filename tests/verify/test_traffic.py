"""Bytes of weights asked for and implied."""

import pytest
import torch

from monoc.spec.program import Program
from monoc.verify.cells import Cell, Kind
from monoc.verify.drive import Driver
from monoc.verify.report import as_json, explain, traffic_table
from monoc.verify.traffic import weight_traffic
from monoc.verify.verify import Verifier

TOKENS = 3


def test_what_is_implied(program: Program, kind_of: dict[str, Kind]) -> None:
    """hidden 256, 384 expert columns padded to a multiple of 128 on two ranks: 192 and 256."""
    build = kind_of["ffn"].build(program, TOKENS, 2)
    assert build is not None
    launch = program.launch["ffn"]
    ids = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 5]])
    (route,) = (s.results[0] for s in launch.statements if getattr(s, "op", "") == "route")
    env = program.environment(build)
    matrices = {"gate_w": 2 * 16 * 256 * 2}
    loaded = matrices | {"w13": 2 * 5 * 384 * 128, "w2": 2 * 5 * 256 * 128, "sgu": 2 * 384 * 256 + 1}
    found = {t.weight: t for t in weight_traffic(program, launch, env, 2, {route: ids}, loaded)}
    assert (found["w13"].implied, found["w13"].stored) == (2 * 5 * 384 * 128, 2 * 5 * 512 * 128)
    assert (found["w2"].implied, found["w2"].stored) == (2 * 5 * 256 * 96, 2 * 5 * 256 * 128)
    assert found["w13"].good
    assert found["w2"].good
    assert not found["sgu"].good  # a byte too many
    assert not found["sw2"].good  # not read at all
    assert found["gate_w"].implied == 2 * 16 * 256 * 2
    assert found["gate_w"].good
    assert found["hc_ffn_fn"].streamed
    assert not found["hc_ffn_fn"].good
    assert found["bias"].good  # lanes share it
    assert "wq_b" not in found


# Within a token tile and past one.
@pytest.mark.parametrize("tokens", [TOKENS, 17])
def test_counted_in_a_run(driver: Driver, kind_of: dict[str, Kind], tokens: int) -> None:
    result = Verifier(driver).run(Cell(kind_of["ratio2"], (tokens,), 1, seed=2, traffic=True))
    assert result.good, explain(result)
    (step,) = result.steps
    streamed = {t.weight: t.times for t in step.traffic if t.streamed}
    padded = {"w13", "w2"}  # 96 columns a rank, stored as 128
    assert set(streamed) == {"wqkv", "wq_b", "wo_a", "wo_b", "sgu", "sw2", "gate_w", "hc_attn_fn", "hc_ffn_fn"} | padded
    assert all(times == 1 for weight, times in streamed.items() if weight not in padded)
    (cell,) = as_json([result])
    assert len(traffic_table([cell]).rows) == len(step.traffic)


def test_an_expert_of_two_tiles_is_named(driver: Driver, kind_of: dict[str, Kind]) -> None:
    """More than 16 tokens of one expert take its weights twice, from the caches: counted, and said."""
    result = Verifier(driver).run(Cell(kind_of["ffn"], (17,), 1, case="same-experts", traffic=True))
    assert not result.good
    assert "bytes of w13, 2.00 times" in "\n".join(explain(result))


def test_counted_on_request(driver: Driver, kind_of: dict[str, Kind]) -> None:
    plain = Verifier(driver).run(Cell(kind_of["ratio2"], (TOKENS,), 1, seed=2))
    assert plain.good, explain(plain)
    assert not plain.steps[0].traffic
