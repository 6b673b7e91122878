"""Ranks that disagree about a value they all hold: which elements, and which rank is wrong."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from monoc.build.package import EmittedPackage
from monoc.reference.formats import Mx
from monoc.spec.program import Program
from monoc.verify.cells import Cell, Kind
from monoc.verify.drive import Driver
from monoc.verify.ranks import rank_difference
from monoc.verify.regions import Seen
from monoc.verify.report import as_json, explain
from monoc.verify.verify import Verifier


def test_same_bits_are_asked_for() -> None:
    first = torch.tensor([[1.0, float("nan")], [0.0, 2.0]])
    assert rank_difference(Seen("v", (first, first.clone()), "m")) is None
    found = rank_difference(Seen("v", (first, torch.tensor([[1.0, float("nan")], [-0.0, 3.0]])), "m"))
    assert found is not None
    assert (found.elements, found.total, found.index, found.values) == (2, 4, (1, 0), (0.0, -0.0))


def test_mxfp8_values_then_codes() -> None:
    values, codes = torch.full((2, 32), 0x38, dtype=torch.uint8), torch.full((2, 1), 127, dtype=torch.uint8)
    moved, scaled = values.clone(), codes.clone()
    moved[1, 5], scaled[1, 0] = 0x40, 128
    first = Mx(values, codes)
    found = rank_difference(Seen("v", (first, first, Mx(moved, codes)), "m"))
    assert found is not None
    assert (found.elements, found.index, found.values) == (1, (1, 5), (1.0, 1.0, 2.0))
    found = rank_difference(Seen("v", (first, Mx(values, scaled)), "m"))
    assert found is not None
    assert (found.elements, found.total, found.values) == (1, 2, (127.0, 128.0))


def test_the_wrong_rank_is_named(
    program: Program, kind_of: dict[str, Kind], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Verifier._seen

    def seen(self, *arguments):  # type: ignore[no-untyped-def]
        values, caches = right(self, *arguments)
        (name,) = (n for n in values if n.rpartition(".")[2] == "y")
        wrong = values[name].ranks[1].clone()
        wrong[2, 7] *= 2
        return {**values, name: replace(values[name], ranks=(values[name].ranks[0], wrong))}, caches

    monkeypatch.setattr(Verifier, "_seen", seen)
    with Driver(program, EmittedPackage.load(folder)) as driver:
        result = Verifier(driver).run(Cell(kind_of["ffn"], (3,), 2, seed=7))
    text = "\n".join(explain(result))
    assert re.search(r"the ranks disagree about [\w.]*\by: 1 of", text)
    assert "token 2, element [7]: rank 0" in text
    first = result.steps[0].first_bad
    assert first is not None
    assert (first.value.rpartition(".")[2], first.rank, first.difference.index) == ("y", 1, (2, 7))
    (cell,) = as_json([result])
    assert cell["steps"][0]["ranks_differ"][0]["index"] == (2, 7)
