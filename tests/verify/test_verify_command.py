"""``monoc verify`` from the outside."""

import dataclasses
import json
from pathlib import Path

import torch
from typer.testing import CliRunner
from verify.planting import planted

from monoc.cli import make_app
from monoc.verify.cells import Cell, Kind
from monoc.verify.pool import run_cells

SPEC = str(Path(__file__).parents[2] / "layer_specs" / "tiny.yaml")


def invoke(*arguments: str) -> tuple[int, str]:
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(make_app(["verify"]), ["verify", SPEC, *arguments])
    finally:
        torch.set_num_threads(threads)
    return result.exit_code, result.output


def test_a_report_is_printed_and_saved(folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    options = ["--tokens", "2", "--tp", "1", "--kind", "ffn", "--steps", "1", "--out", str(folder)]
    code, text = invoke(*options, "--save", str(saved), "--json")
    assert code == 0, text
    report = json.loads(saved.read_text())
    assert json.loads(text) == report
    assert report["good"] is True
    (cell,) = report["cells"]
    assert (cell["kind"], cell["widths"], cell["tp"]) == ("ffn", [2], 1)
    values = {v["value"] for v in cell["steps"][0]["values"]}
    assert {"residual_out", "out", "comb_out"} <= values
    assert {"residual_out", "out", "comb_out"} <= set(cell["steps"][0]["bits"])


def test_a_run_is_taken_up_again(folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    options = ["--tp", "1", "--kind", "ffn", "--steps", "1", "--out", str(folder), "--save", str(saved), "--resume"]
    code, text = invoke(*options, "--tokens", "2")
    assert code == 0, text
    assert "were good" not in text
    report = json.loads(saved.read_text())
    report["cells"][0]["wave_instructions"] = -1  # a mark: not run again
    saved.write_text(json.dumps(report))
    code, text = invoke(*options, "--tokens", "2,3", "--jobs", "2")
    assert code == 0, text
    assert "1 of them were good" in text
    first, second = json.loads(saved.read_text())["cells"]
    assert (first["widths"], first["wave_instructions"]) == ([2], -1)
    assert (second["widths"], second["good"]) == ([3], True)
    other = saved.read_text().replace(report["package"], "0" * 16)
    saved.write_text(other)
    code, text = invoke(*options, "--tokens", "2")
    assert code == 2
    assert "another package" in text
    assert saved.read_text() == other
    saved.write_text("[]")
    code, text = invoke(*options, "--tokens", "2")
    assert code == 2
    assert "is no report" in text


def test_a_report_that_cannot_be_saved_is_refused_first(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "report.json", tmp_path):
        code, text = invoke("--tokens", "2", "--out", str(folder), "--save", str(path))
        assert code == 2
        assert f"--save {path}: no file can be written there" in text


def test_what_is_no_report_is_not_written_over(folder: Path, tmp_path: Path) -> None:
    notes, link = tmp_path / "notes.txt", tmp_path / "null"
    notes.write_text("not a report\n")
    link.symlink_to("/dev/null")
    for path, why in ((notes, "is no report of this command and stays"), (link, "no file can be written there")):
        code, text = invoke("--tokens", "2", "--out", str(folder), "--save", str(path))
        assert code == 2
        assert why in text
    assert notes.read_text() == "not a report\n"


def test_a_broken_package_is_refused(folder: Path, tmp_path: Path) -> None:
    for k, (file, pattern, replacement) in enumerate(
        (
            ("ffn.py", r"def out_reduce\(", "def out_reduce(("),
            ("runner.py", r"class TinyMonoLayer\b", "class OtherLayer"),
            ("runner.py", r"(?m)^from \. import plan$", "from . import plans"),
        )
    ):
        code, text = invoke("--out", str(planted(folder, tmp_path / str(k), file, pattern, replacement)))
        assert code == 2
        assert "run `monoc compile" in text


def test_processes_share_the_cells_and_one_that_dies_is_told(folder: Path, kind_of: dict[str, Kind]) -> None:
    cells = [Cell(kind_of[k], (2,), tp) for k, tp in (("ffn", 1), ("ffn", 2), ("ffn-draft", 1))]
    begun: list[Cell] = []
    good = list(run_cells(SPEC, folder, cells, 1, 2, begun.append))
    assert begun == cells
    assert sorted(r.cell.name for r in good) == sorted(c.name for c in cells)
    assert all(r.good and r.steps for r in good)
    odd = dataclasses.replace(cells[0], widths=(99,))  # no such build: what runs it ends
    found = {r.cell.name: r for r in run_cells(SPEC, folder, [odd, *cells[1:]], 1, 2, begun.append)}
    assert "ended (exit code 1)" in found[odd.name].error
    assert all(r.good for n, r in found.items() if n != odd.name)


def test_bad_usage_says_what_there_is(folder: Path, tmp_path: Path) -> None:
    code, text = invoke("--kind", "nothing", "--out", str(folder))
    assert code == 2
    assert "there is ratio0, " in text
    code, text = invoke("--tokens", "99", "--out", str(folder))
    assert code == 2
    assert "--tokens 99: no build has that; there is 1..20" in text
    code, text = invoke("--tokens", "3,99", "--out", str(folder))  # not left out in silence
    assert code == 2
    code, text = invoke("--tp", "3", "--out", str(folder))
    assert code == 2
    assert "there is 1, 2, 4" in text
    code, text = invoke("--case", "worst", "--out", str(folder))
    assert code == 2
    assert "usual, padded" in text
    code, text = invoke("--out", str(tmp_path))
    assert code == 2
    assert "monoc compile" in text


def test_a_package_of_another_spec_is_refused() -> None:
    other = Path(SPEC).parents[1] / "generated" / "tiny_pro"
    code, text = invoke("--out", str(other))
    assert code == 2
    assert "was not compiled from" in text
