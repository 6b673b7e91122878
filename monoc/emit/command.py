"""``monoc compile SPEC``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from monoc.compiler import Package, compile_spec
from monoc.diagnostics import ExitCode
from monoc.emit.files import HandEditedError, check_package, write_package
from monoc.options import Json, Out, Spec

__all__ = ["register"]


def _compile(spec: str, quiet: bool) -> Package:
    if quiet or not sys.stderr.isatty():
        return compile_spec(spec)
    from rich.console import Console  # loads slowly, and only a terminal shows it
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None)
        return compile_spec(
            spec, lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
        )


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("compile")
    def compile_(
        spec: Spec,
        out: Out = None,
        check: Annotated[
            bool, typer.Option("--check", help="Write nothing; print how the folder differs and fail if it does.")
        ] = False,
        as_json: Json = False,
    ) -> None:
        """Compile a spec into a package of launches, their plan and their runner."""
        start = time.monotonic()
        package = _compile(spec, as_json)
        folder = out if out is not None else Path("generated") / package.program.name
        if package.proof.failures:
            _fail("\n".join(str(f) for f in package.proof.failures), as_json, ExitCode.FOUND)
        facts: dict[str, Any] = {
            "package": folder.as_posix(),
            "files": len(package.files),
            "lines": sum(text.count("\n") for text in package.files.values()),
            "builds": package.proof.builds,
            "proofs_cached": package.proof.cached,
            "seconds": round(time.monotonic() - start, 2),
        }
        if check:
            found = check_package(folder, package.files)
            facts |= {"stale": found.stale, "missing": found.missing, "orphaned": found.orphaned}
            typer.echo(json.dumps(facts, indent=2) if as_json else found.diff or _sentence(facts, "up to date"))
            if not found.clean:
                typer.echo(f"{folder} is not what {spec} compiles to: run `monoc compile {spec}`", err=True)
                raise typer.Exit(ExitCode.FOUND)
            return
        try:
            facts["changed"] = write_package(folder, package.files)
        except HandEditedError as error:
            names = "\n".join(f"  {p}" for p in error.paths)
            _fail(
                f"not overwritten, because these files are not as monoc wrote them:\n{names}\n"
                "move your changes into the spec or the compiler, delete (or restore) the files, and compile again",
                as_json,
                ExitCode.BAD_INPUT,
            )
        typer.echo(
            json.dumps(facts, indent=2) if as_json else _sentence(facts, f"{len(facts['changed'])} files changed")
        )


def _sentence(facts: dict[str, Any], state: str) -> str:
    proofs = "proofs cached" if facts["proofs_cached"] else "proofs run"
    return (
        f"{facts['package']}: {facts['files']} files, {facts['lines']} lines, {facts['builds']} builds proved "
        f"({proofs}), {state}, {facts['seconds']} s"
    )


def _fail(message: str, as_json: bool, code: ExitCode) -> NoReturn:
    typer.echo(
        json.dumps({"good": False, "errors": message.splitlines()}, indent=2) if as_json else message, err=not as_json
    )
    raise typer.Exit(code)
