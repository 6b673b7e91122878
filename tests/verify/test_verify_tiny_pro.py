"""The small V4-Pro layer: every kind, one and two hops (which leave the same bits), tables of every count of keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from variants import edited_spec

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package
from monoc.spec.load import load_program
from monoc.verify.cells import Cell, kinds, mixes, step_widths
from monoc.verify.drive import Driver
from monoc.verify.report import explain
from monoc.verify.verify import CellResult, Verifier

SPEC = Path(__file__).parents[2] / "layer_specs" / "tiny_pro.yaml"


def emitted(spec: Path, folder: Path) -> Driver:
    made = compile_spec(str(spec))
    assert not made.proof.failures, made.proof.failures
    write_package(folder, made.files)
    return Driver(load_program(str(spec)), EmittedPackage.load(folder))


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with emitted(SPEC, tmp_path_factory.mktemp("pro") / "layer") as driver:
        yield Verifier(driver)
    torch.set_num_threads(threads)


def run(verifier: Verifier, kind: str, tokens: int, tp: int, case: str = "usual", steps: int = 2) -> CellResult:
    found = {k.name: k for k in kinds(verifier.program, verifier.driver.runner_class)}
    widths = step_widths(verifier.program, tokens, steps)
    result = verifier.run(Cell(found[kind], widths, tp, seed=tokens, case=case, traffic=tokens <= 16))
    assert result.good, "\n".join(explain(result))
    return result


# Ranks vary slowest: kernels stay compiled as long as they do not change. Two hops from 12 rows.
@pytest.mark.parametrize(
    ("kind", "tokens", "tp", "case"),
    [
        ("no-fold", 1, 1, "usual"),
        ("forward", 17, 2, "usual"),
        ("hca-picks512", 7, 2, "key-counts"),
        ("hca-picks128", 5, 2, "padded"),
        ("hash_route", 5, 4, "usual"),
        ("hca-picks32", 13, 4, "usual"),
    ],
)
def test_kind(verifier: Verifier, kind: str, tokens: int, tp: int, case: str) -> None:
    run(verifier, kind, tokens, tp, case)


def test_kinds_take_turns_on_one_runner(verifier: Verifier) -> None:
    names = ("forward", "hca-picks512", "hash_route", "no-fold")
    found = {k.name: k for k in kinds(verifier.program, verifier.driver.runner_class)}
    (group,) = mixes(verifier.program, [found[n] for n in names])
    cell = Cell(group[0], step_widths(verifier.program, 13, 5), 4, seed=1, turns=group[1:])
    result = verifier.run(cell, orders=2)
    assert result.good, "\n".join(explain(result))
    assert cell.name.startswith("forward+hca-picks512+hash_route+no-fold tokens 13")
    assert [b["ratio"] for b in cell.builds(verifier.program)] == [4, 8, 4, 4, 4]
    assert result.peak_bytes > 0


def test_two_hops_leave_the_bits_of_one(verifier: Verifier, tmp_path: Path) -> None:
    one_hop = edited_spec(tmp_path / "specs", SPEC.name, [(SPEC.name, "two_hop: tokens >= 12", "two_hop: tokens > 99")])
    two = run(verifier, "forward", 13, 2, steps=1).bits
    verifier.driver.close()
    with emitted(one_hop, tmp_path / "layer") as driver:
        assert run(Verifier(driver), "forward", 13, 2, steps=1).bits == two


def test_matrices_are_asked_for_once_past_a_token_tile(verifier: Verifier) -> None:
    """All but those of an expert, which more than 16 tokens of one take again."""
    found = {k.name: k for k in kinds(verifier.program, verifier.driver.runner_class)}
    (step,) = verifier.run(Cell(found["forward"], (17,), 1, seed=17, traffic=True)).steps
    streamed = {t.weight: t for t in step.traffic if t.streamed and t.weight not in ("w13", "w2")}
    assert {"gate_w", "hc_attn_fn", "hc_ffn_fn", "wo_a"} <= set(streamed)
    assert all(t.times == 1 for t in streamed.values())
