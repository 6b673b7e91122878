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


def run(
    program: Program, kind: Kind, folder: Path, tp: int = 1, case: str = "usual", rows: tuple[int, ...] = CELL
) -> CellResult:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with Driver(program, EmittedPackage.load(folder)) as driver:
            return Verifier(driver).run(Cell(kind, rows, tp, seed=7, case=case))
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


def wrong_values(result: CellResult) -> set[str]:
    return {f.value.rpartition(".")[2] for step in result.steps for f in step.stages if not f.difference.good}


def test_what_hardly_ever_counts_is_asked_for(
    program: Program, kind_of: dict[str, Kind], folder: Path, tmp_path: Path
) -> None:
    """Epsilons and floors that change no bit of a usual input: each hard input finds its own."""
    faulty, edits = folder, (
        (r"(fma\(hh, constant_f32\([0-9.]+\), constant_f32\()1e-20", r"\g<1>1e-06"),  # of the norm
        (r"\) \+ constant_f32\(1e-06\)\n", ")\n"),  # of the gates
        (r"rcp\(total \+ constant_f32\(1e-06\)\)", "rcp(total)"),  # of the mixes
        (r"fx\.max\(total, constant_f32\(1e-20\)\)", "total"),  # of the picked scores
    )  # fmt: skip
    for k, edit in enumerate(edits):
        faulty = planted(faulty, tmp_path / str(k), "ffn.py", *edit)
    found = {
        case: wrong_values(run(program, kind_of["ffn"], faulty, case=case, rows=(4,)))
        for case in ("usual", "small-rows", "closed-gates", "steep-gates", "no-scores")
    }
    assert not found["usual"]
    assert "y" in found["small-rows"]
    assert "pre_out" in found["closed-gates"]
    assert "comb_out" in found["steep-gates"]
    assert "weight" in found["no-scores"]


def test_block_sizes_and_the_epsilons_of_latents_are_asked_for(
    program: Program, kind_of: dict[str, Kind], folder: Path, tmp_path: Path
) -> None:
    one = planted(folder, tmp_path / "1", "k1.py", r"size = fx\.Int32\(block\)", "size = fx.Int32(64)")
    faulty = planted(
        one, tmp_path / "2", "k1.py", r"(ss / constant_f32\(128\.0\) \+ constant_f32\()1e-20", r"\g<1>1e-06"
    )
    assert run(program, kind_of["ratio2"], faulty, rows=(3,)).good
    assert "q_heads_mxfp8" in wrong_values(run(program, kind_of["ratio2"], faulty, case="small-norms", rows=(3,)))
    assert not run(program, kind_of["ratio2"], faulty, case="blocks", rows=(3,)).good


def test_ranks_that_were_sent_different_parts_are_told(
    program: Program, kind_of: dict[str, Kind], folder: Path, tmp_path: Path
) -> None:
    faulty = planted(
        folder, tmp_path / "tiny", "device.py",
        r"_store_pairs\(self\.copies\[rank\], index, words, self\.tag, SYSTEM\)",
        "_store_pairs(self.copies[rank], index, [fx.Int32(w) ^ rank for w in words], self.tag, SYSTEM)",
    )  # fmt: skip
    result = run(program, kind_of["ffn"], faulty, tp=2, rows=(2,))
    assert not result.good
    assert "region out_ranks of launch ffn: the ranks' copies differ: of what rank 0 sent, token 0" in result.error


def test_an_error_of_the_package_is_the_cells(
    program: Program, kind_of: dict[str, Kind], folder: Path, tmp_path: Path
) -> None:
    faulty = planted(folder, tmp_path / "tiny", "ffn.py", r"total = rank_sum\(", "total = rank_summ(")
    result = run(program, kind_of["ffn"], faulty, rows=(1,))
    assert result.error.startswith("NameError: name 'rank_summ' is not defined\nat ")
    assert "ffn.py:" in result.error
