"""Faults planted in the emitted text: each is found, and blamed on the value it spoils first."""

import re
from pathlib import Path

import pytest
import torch
from verify.planting import planted

from monoc.build.package import EmittedPackage
from monoc.spec.program import Program
from monoc.verify.cells import Cell, Kind
from monoc.verify.drive import Driver
from monoc.verify.report import as_json, explain
from monoc.verify.verify import CellResult, Verifier

CELL = (3, 3)  # rows of the steps


def run(program: Program, kind: Kind, folder: Path, tp: int = 1) -> CellResult:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with Driver(program, EmittedPackage.load(folder)) as driver:
            return Verifier(driver).run(Cell(kind, CELL, tp, seed=7))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "value"),
    [
        pytest.param(
            "device.py",
            r"return fx\.Float32\(fx\.Float32\(x\)\.to\(fx\.BFloat16\)\)",
            "return (fx.Float32(x).bitcast(fx.Int32) & fx.Int32(-65536)).bitcast(fx.Float32)",
            "residual_out",
            id="rounding-towards-zero",
        ),
        pytest.param("ffn.py", r"res_mix_1, residual_1, res_mix_2, residual_2",
                     "res_mix_2, residual_1, res_mix_1, residual_2", "residual_out", id="coefficients-swapped"),
        pytest.param("ffn.py", r"rsq\(fma\(hh, constant_f32\([0-9.]+\)", "rsq(fma(hh, constant_f32(0.0041)", "y",
                     id="norm-of-a-wrong-length"),
        pytest.param("ffn.py", r"constant_f32\(1\.5\) /", "constant_f32(1.4990) /", "weight", id="route-scale"),
    ],
)  # fmt: skip
def test_fault_is_found_and_blamed(
    program: Program,
    kind_of: dict[str, Kind],
    folder: Path,
    tmp_path: Path,
    file: str,
    pattern: str,
    replacement: str,
    value: str,
) -> None:
    result = run(program, kind_of["ffn"], planted(folder, tmp_path / "tiny", file, pattern, replacement))
    assert not result.good
    assert not result.error
    first = result.steps[0].first_bad
    assert first is not None
    assert first.value.rpartition(".")[2] == value
    text = "\n".join(explain(result))
    assert "first wrong value" in text
    assert re.search(r"\.monoc:\d+", text)
    (cell,) = as_json([result])
    assert not cell["good"]


def test_a_store_without_its_scope_is_found(
    program: Program, kind_of: dict[str, Kind], folder: Path, tmp_path: Path
) -> None:
    faulty = planted(folder, tmp_path / "tiny", "device.py", r"(?m)^DEVICE = 16", "DEVICE = 0")
    result = run(program, kind_of["ffn"], faulty)
    assert not result.good
    assert "handoff" in result.error


def test_no_fault_no_finding(program: Program, kind_of: dict[str, Kind], folder: Path) -> None:
    result = run(program, kind_of["ffn"], folder)
    assert result.good, explain(result)
    assert not explain(result)
