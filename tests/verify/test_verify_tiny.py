"""Every kind of the small layer, on 1, 2 and 4 ranks, below and past a token tile, both hand-off forms, hard inputs."""

import pytest

from monoc.verify.cells import Cell, Kind
from monoc.verify.drive import Driver
from monoc.verify.inputs.cases import CASES
from monoc.verify.report import explain
from monoc.verify.verify import Verifier

KINDS = (
    "ratio0", "ratio0-no-fold", "ratio1", "ratio1-no-fold", "ratio1-index", "ratio2", "ratio2-no-fold", "ratio2-index",
    "draft", "ffn", "ffn-draft",
)  # fmt: skip


@pytest.fixture(scope="module")
def verifier(driver: Driver) -> Verifier:
    return Verifier(driver)


def check(verifier: Verifier, cell: Cell, orders: int = 1) -> None:
    result = verifier.run(cell, orders)
    assert result.good, "\n".join(explain(result))
    assert len(result.steps) == len(cell.widths)
    assert all(step.stages for step in result.steps)


def test_kinds_are_all_there(kind_of: dict[str, Kind]) -> None:
    assert tuple(kind_of) == KINDS


# Ranks vary slowest: kernels stay compiled as long as they do not change.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_kind(verifier: Verifier, kind_of: dict[str, Kind], kind: str, tp: int) -> None:
    check(verifier, Cell(kind_of[kind], (17, 2, 17, 2), tp, seed=tp))


@pytest.mark.parametrize("tokens", [1, 16, 20])
def test_widths(verifier: Verifier, kind_of: dict[str, Kind], tokens: int) -> None:
    check(verifier, Cell(kind_of["ratio2-index"], (tokens, tokens), 2, seed=tokens))


@pytest.mark.parametrize("kind", ["ratio0", "ratio2-index", "draft", "ffn"])
@pytest.mark.parametrize("tp", [1, 4])
def test_barriers(verifier: Verifier, kind_of: dict[str, Kind], kind: str, tp: int) -> None:
    check(verifier, Cell(kind_of[kind], (17, 2, 17, 2), tp, seed=1, barriers=True))


@pytest.mark.parametrize("case", [c for c in CASES if c != "usual"])
def test_hard_inputs(verifier: Verifier, kind_of: dict[str, Kind], case: str) -> None:
    check(verifier, Cell(kind_of["ratio2-index"], (6, 5, 6), 2, seed=3, case=case))


def test_an_expert_all_tokens_pick(verifier: Verifier, kind_of: dict[str, Kind]) -> None:
    """More picks than a tile holds."""
    for kind in ("ffn", "ffn-draft"):
        check(verifier, Cell(kind_of[kind], (20, 17), 2, seed=3, case="same-experts"))


def test_other_schedules_leave_the_same_bits(verifier: Verifier, kind_of: dict[str, Kind]) -> None:
    check(verifier, Cell(kind_of["ratio2-index"], (6, 5, 6, 5), 2, seed=4), orders=5)
