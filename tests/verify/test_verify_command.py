"""``monoc verify`` from the outside."""

import json
from pathlib import Path

import torch
from typer.testing import CliRunner

from monoc.cli import make_app

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


def test_bad_usage_says_what_there_is(folder: Path, tmp_path: Path) -> None:
    code, text = invoke("--kind", "nothing", "--out", str(folder))
    assert code == 2
    assert "there is ratio0, " in text
    code, text = invoke("--tokens", "99", "--out", str(folder))
    assert code == 2
    assert "no build has tokens 99" in text
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
