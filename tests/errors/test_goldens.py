"""Every bad spec beside this file gives exactly the text of its ``.stderr``: all its errors, in one run.

After a deliberate change of a message: ``python tests/errors/regenerate.py``, then read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from monoc.cli import make_app
from monoc.diagnostics import Code, CompileErrors, Diagnostic
from monoc.spec.load import load_program

HERE = Path(__file__).parent
SPECS = sorted(p.name for p in HERE.glob("*.yaml"))


def errors_of(spec: str, monkeypatch: pytest.MonkeyPatch) -> CompileErrors:
    monkeypatch.chdir(HERE)
    with pytest.raises(CompileErrors) as caught:
        load_program(spec)
    return caught.value


@pytest.mark.parametrize("spec", SPECS)
def test_message(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = (HERE / spec).with_suffix(".stderr")
    assert golden.is_file(), f"{golden.name} is missing: run tests/errors/regenerate.py and read what it wrote"
    assert f"{errors_of(spec, monkeypatch)}\n" == golden.read_text(encoding="utf-8")


def test_every_golden_has_its_spec() -> None:
    assert sorted(p.stem for p in HERE.glob("*.stderr")) == [Path(s).stem for s in SPECS]


def test_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Diagnostic] = [d for spec in SPECS for d in errors_of(spec, monkeypatch).diagnostics]
    codes = {d.code for d in found}
    assert len(SPECS) >= 40
    assert len(codes) >= 25
    # elsewhere: a file too large (tests/spec/test_load.py), what the passes refuse (tests/passes/test_refusals.py)
    assert codes == set(Code) - {Code.TOO_LARGE, Code.UNFIT}


def test_several_errors_come_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = errors_of("several.yaml", monkeypatch).diagnostics
    assert len({d.code for d in found}) == len(found) == 4
    assert [d.span.line for d in found] == sorted(d.span.line for d in found)


def test_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    result = CliRunner().invoke(make_app(["check"]), ["check", "several.yaml"])
    assert isinstance(result.exception, CompileErrors)
    as_json = CliRunner().invoke(make_app(["check"]), ["check", "several.yaml", "--json"])
    assert as_json.exit_code == 2
    assert '"code": "unknown-function"' in as_json.stdout
