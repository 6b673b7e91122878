"""Arguments and options that several commands take, and how they refuse."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from monoc.diagnostics import ExitCode

__all__ = [
    "Barriers",
    "Json",
    "Kinds",
    "Out",
    "Settings",
    "Spec",
    "bad_input",
    "chosen",
    "numbers",
    "settings",
    "writable",
]

T = TypeVar("T")

Spec = Annotated[str, typer.Argument(metavar="SPEC", help="The spec file.")]
Out = Annotated[Path | None, typer.Option("--out", help="The package's folder (default: generated/<layer>).")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Barriers = Annotated[bool, typer.Option("--barriers", help="The all-barrier form.")]
Kinds = Annotated[str | None, typer.Option("--kind", help="Layer kinds (default: all; a wrong name lists them).")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A build parameter, like index=1; repeatable.")
]


def bad_input(message: str) -> NoReturn:
    """Say what is wrong and leave with the exit code of bad usage."""
    typer.echo(message, err=True)
    raise typer.Exit(ExitCode.BAD_INPUT)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """``text``, given as ``option``, as a list of numbers; leaves if it is none."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        bad_input(f"{option} {text!r}: not a list of numbers, like 1,8,17")


def chosen(text: str | None, known: Mapping[str, T], option: str) -> list[T]:
    """The entries of ``known`` a comma-separated list names, all of them for None; leaves at any other name."""
    if text is None:
        return list(known.values())
    wrong = [n for n in text.split(",") if n not in known]
    if wrong:
        bad_input(f"{option} {wrong[0]!r}: there is {', '.join(known)}")
    return [known[n] for n in dict.fromkeys(text.split(","))]


def writable(path: Path | None, option: str, holds: str) -> None:
    """Leaves if no report can be written at ``path``: said before the work whose result it is to hold. A file that is
    there is written over if it is a report of the same command, which has the key ``holds``, or empty."""
    if path is None:
        return
    if (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        bad_input(f"{option} {path}: no file can be written there; give a path in a folder that exists")
    if path.exists() and path.stat().st_size and not _is_report(path, holds):
        bad_input(f"{option} {path}: what is there is no report of this command and stays; save to another file")


def _is_report(path: Path, holds: str) -> bool:
    try:
        report = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(report, dict) and "good" in report and holds in report


def settings(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """The build parameters of ``--set``: name -> values (several with commas); leaves at what is no NAME=VALUE."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, _, values = text.partition("=")
        if not name.isidentifier() or not all(v.lstrip("-").isdigit() for v in values.split(",")):
            bad_input(f"--set {text}: write NAME=VALUE with an integer value, e.g. --set index=1")
        found[name] = numbers(values, f"--set {name}")
    return found
