"""DeepSeek-V4.1-Flash at full size on four ranks, every kind: steps of one row and of seventeen, one past a token tile.

The cells run in two processes of their own; `monoc verify` runs the other widths (docs/verify.md)."""

from pathlib import Path

import pytest

from monoc.build.package import EmittedPackage
from monoc.spec.load import load_program
from monoc.verify.cells import Cell, kinds
from monoc.verify.pool import run_cells
from monoc.verify.report import explain
from monoc.verify.verify import CellResult

ROOT = Path(__file__).parents[2]
SPEC, FOLDER = str(ROOT / "layer_specs" / "dsv41.yaml"), ROOT / "generated" / "dsv41"
KINDS = (
    "ratio0", "ratio0-no-fold", "ratio1", "ratio1-no-fold", "ratio1-index", "ratio2", "ratio2-no-fold", "ratio2-index",
    "draft", "ffn", "ffn-draft",
)  # fmt: skip
STEPS = (1, 17, 1)  # the second one-row step meets its scratch and its half of the peer buffer again


@pytest.fixture(scope="module")
def results() -> dict[str, CellResult]:
    """By kind."""
    program = load_program(SPEC)
    runner = getattr(EmittedPackage.load(FOLDER).part("runner"), program.runner.class_name)
    cells = [Cell(k, STEPS, 4) for k in kinds(program, runner)]
    return {r.cell.kind.name: r for r in run_cells(SPEC, FOLDER, cells, 1, 2, lambda cell: None)}


def test_kinds_are_all_there(results: dict[str, CellResult]) -> None:
    assert set(results) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_kind(results: dict[str, CellResult], kind: str) -> None:
    result = results[kind]
    assert result.good, "\n".join(explain(result))
    assert tuple(s.width for s in result.steps) == STEPS
    assert all(s.stages and s.ends for s in result.steps)
