"""Specs that read well and cannot be scheduled or emitted: a diagnostic with the place, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from passes.specs import variation

from monoc.cli import run
from monoc.compiler import compile_spec, schedule_program
from monoc.diagnostics import Code, CompileErrors, Diagnostic
from monoc.spec.program import Program

Edits = tuple[tuple[str, str], ...]


def refusal(act: Callable[[Program], object], program: Program) -> Diagnostic:
    with pytest.raises(CompileErrors) as caught:
        act(program)
    (only,) = caught.value.diagnostics
    assert only.code is Code.UNFIT
    assert f"{only.span.line:>5} | " in caught.value.render()
    return only


def override(value: str, form: str) -> Edits:
    item = f"{{launch: k2, value: {value}, form: {form}, reason: measured so}}"
    return (("schedule:\n", f"schedule:\n  handoff: [{item}]\n"),)


@pytest.mark.parametrize(
    ("edits", "program_edits", "message", "place"),
    [
        ((("hidden: 256", "hidden: 288"),), (), "has to be a multiple of 64", "mhc_mla_moe.monoc"),
        ((("head: 256", "head: 320"), ("record: 328", "record: 392")), (), "head = 320 values", "mhc_mla_moe.monoc"),
        ((("hidden: 256", "hidden: 384"),), (), "has to be a multiple of 256", "deepseek_v4.monoc"),
        ((), (("bf16(mxfp8(a, rule=V) @ sw2)", "mxfp8(a, rule=V) @ sw2"),), "rounded to bf16", "deepseek_v4.monoc"),
        (
            (("threads: 512", "threads: 256"), ("experts: 16", "experts: 70")),
            (),
            "of a CTA, 4, has to be",
            "mhc_mla_moe.monoc",
        ),
        ((("threads: 512", "threads: 64"),), (), "the waves of a CTA, 1, has to be", "monoc"),
        ((("threads: 512", "threads: 960"),), (), "the waves of a CTA, 15, has to be", "monoc"),
        (
            (("pad(inter, 128)", "pad(inter, 32)"), ("inter: 384", "inter: 1280")),
            (),
            "stored columns, 320",
            "deepseek_v4.monoc",
        ),
        (
            (("head: 256", "head: 128"), ("record: 328", "record: 200")),
            (),
            "the width of a head, 128, has to be at least 256",
            "mhc_mla_moe.monoc",
        ),
        ((("ug_groups: 2", "ug_groups: 3"),), (), "a CTA, 8, has to be a multiple of 6", "deepseek_v4.monoc"),
        (override("x", "flag"), (), "is no hand-off of launch k2", "spec.yaml"),
        ((("o_rank: 64", "o_rank: 1073741824"),), (), "the sizes are too large", "spec.yaml"),
        ((("q_rank", "grid"),), (("q_rank", "grid"),), "plan.py has a `GRID` of its own", "spec.yaml"),
        ((("q_rank", "launches"),), (("q_rank", "launches"),), "plan.py has a `LAUNCHES`", "spec.yaml"),
    ],
)
def test_schedule(tmp_path: Path, edits: Edits, program_edits: Edits, message: str, place: str) -> None:
    program = variation(tmp_path, *edits, program_edits=program_edits)
    found = refusal(schedule_program, program)
    assert message in found.message
    assert found.span.file.endswith(place)


def test_what_a_stage_needs_is_refused_with_a_remedy_at_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variation(tmp_path, ("threads: 512", "threads: 64"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["monoc", "check", "spec.yaml"])
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 2
    assert "help: change `threads` of `target`" in capsys.readouterr().err


def test_a_size_too_large_is_pointed_at(tmp_path: Path) -> None:
    found = refusal(schedule_program, variation(tmp_path, ("o_rank: 64", "o_rank: 1073741824")))
    line = (tmp_path / "spec.yaml").read_text().splitlines()[found.span.line - 1]
    assert line[found.span.column - 1 :] == "o_rank: 1073741824"


@pytest.mark.parametrize("name", ["torch", "AttnWeights", "plan"])
def test_a_class_with_a_name_of_the_runner_module(tmp_path: Path, name: str) -> None:
    program = variation(tmp_path, ("class: TinyMonoLayer", f"class: {name}"))
    found = refusal(lambda p: compile_spec(p.path), program)
    assert f"runner.py has a `{name}` of its own" in found.message


@pytest.mark.parametrize("command", ["compile", "plan"])
def test_commands(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variation(tmp_path, ("hidden: 256", "hidden: 288"))
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["monoc", command, "spec.yaml", *options])
        with pytest.raises(SystemExit) as stopped:
            run()
        assert stopped.value.code == 2
        out, err = capsys.readouterr()
        if options:
            assert json.loads(out)["errors"][0]["code"] == "unfit"
        else:
            assert "error[unfit]: " in err
        assert not (tmp_path / "generated").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["compile", "spec.yaml", "--out", "spec.yaml"],
        ["graph", "spec.yaml", "--out", "nowhere/graph.dot"],
        ["graph", "spec.yaml", "--out", "."],
    ],
)
def test_places_that_cannot_be_written(
    tmp_path: Path, argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variation(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["monoc", *argv])
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 2
    assert f"cannot use {argv[-1]}: " in capsys.readouterr().err
