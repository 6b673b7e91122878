"""``monoc verify SPEC``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from monoc.build.package import PackageError, open_package
from monoc.diagnostics import ExitCode
from monoc.options import Barriers, Json, Kinds, Out, Spec, bad_input, chosen, numbers, writable
from monoc.spec.program import Program
from monoc.verify.cells import Cell, Kind, kinds, mixes, step_widths
from monoc.verify.inputs.cases import CASES
from monoc.verify.pool import run_cells
from monoc.verify.report import as_json as records
from monoc.verify.report import explain, summary_table, traffic_table
from monoc.verify.saved import Key, SavedReport, key_of, package_digest
from monoc.verify.verify import CellResult

__all__ = ["register"]


def _cells(
    program: Program,
    taking: list[tuple[Kind, ...]],
    widths: tuple[int, ...],
    ranks: tuple[int, ...],
    steps: int,
    **options: Any,
) -> list[Cell]:
    found = []
    for tp in ranks:
        for tokens in widths:
            for kind, *turns in taking:
                if kind.build(program, tokens, tp) is not None:
                    each = step_widths(program, tokens, max(steps, 1 + len(turns)))
                    found.append(Cell(kind, each, tp, turns=tuple(turns), **options))
    return found


def _served(program: Program, name: str, given: str | None) -> tuple[int, ...]:
    """The values of build parameter ``name``, of option ``--name`` if given, each once; leaves at one no build has."""
    known = next(p.values for p in program.space.params if p.name == name)
    if given is None:
        return known
    wanted = tuple(dict.fromkeys(numbers(given, f"--{name}")))
    for value in wanted:
        if value not in known:
            bad_input(f"--{name} {value}: no build has that; there is {_ranges(known)}")
    return wanted


def _ranges(values: Iterable[int]) -> str:
    """``1..20, 24, 28`` for sorted numbers."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(f"{r[0]}..{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("verify")
    def verify(
        spec: Spec,
        out: Out = None,
        tokens: Annotated[str, typer.Option(help="Step widths, like 1,6,17.")] = "1,17",
        tp: Annotated[str | None, typer.Option(help="Numbers of ranks (default: all of the spec's).")] = None,
        kind: Kinds = None,
        case: Annotated[str, typer.Option(help=f"Inputs: {', '.join(CASES)}, or all.")] = "usual",
        steps: Annotated[int, typer.Option(min=1, help="Steps a cell, of alternating widths.")] = 2,
        seed: Annotated[int, typer.Option(min=0, help="Of weights and inputs.")] = 0,
        orders: Annotated[int, typer.Option(min=1, help="Schedules of the CTAs that must leave the same bits.")] = 1,
        mix: Annotated[bool, typer.Option("--mix", help="Kinds take turns in the steps of one cell.")] = False,
        traffic: Annotated[bool, typer.Option("--traffic", help="Count the bytes of weights asked for.")] = False,
        barriers: Barriers = False,
        jobs: Annotated[int, typer.Option(min=1, help="Processes that share the cells.")] = 1,
        save: Annotated[Path | None, typer.Option(help="Where to save the report (JSON), after every cell.")] = None,
        resume: Annotated[bool, typer.Option("--resume", help="Leave out what the saved report has as good.")] = False,
        as_json: Json = False,
    ) -> None:
        """Run an emitted package on the simulator through its own runner and hold it against the spec's reference."""
        writable(save, "--save", "cells")
        try:
            program, package = open_package(spec, out)
        except PackageError as error:
            bad_input(str(error))
        known = {k.name: k for k in kinds(program, getattr(package.part("runner"), program.runner.class_name))}
        taken = chosen(kind, known, "--kind")
        widths = _served(program, "tokens", tokens)
        ranks = _served(program, "tp", tp)
        cells = [
            c
            for name in ([*CASES] if case == "all" else chosen(case, {n: n for n in CASES}, "--case"))
            for c in _cells(
                program,
                mixes(program, taken) if mix else [(k,) for k in taken],
                widths,
                ranks,
                steps,
                seed=seed,
                barriers=barriers,
                case=name,
                traffic=traffic,
            )
        ]
        if not cells:
            bad_input(f"{spec}: no build has tokens {tokens}{f' and tp {tp}' if tp else ''}")
        report = SavedReport(spec, package_digest(package.folder), save)
        try:
            saved = report.resume() if resume else {}
        except ValueError as error:
            bad_input(str(error))
        results = _run(spec, package.folder, cells, orders, jobs, report, saved, quiet=as_json)
        if as_json:
            typer.echo(json.dumps(report.whole(), indent=2))
        else:
            entries = {c.kind.entry for c in cells}
            outputs = dict.fromkeys(o for e in program.entries if e.name in entries for o in e.outputs)
            console = Console(width=160)
            console.print(summary_table(report.cells, outputs))
            if traffic:
                console.print(traffic_table(report.cells))
            for result in results:
                for line in explain(result):
                    typer.echo(line)
            bad = sum(not c["good"] for c in report.cells)
            typer.echo(f"{len(report.cells)} cells: {bad or 'none'} bad")
            if len(report.cells) > len(results):
                typer.echo(f"{len(report.cells) - len(results)} of them were good in {save} already")
        if not report.whole()["good"]:
            raise typer.Exit(ExitCode.FOUND)


def _run(
    spec: str,
    folder: Path,
    cells: list[Cell],
    orders: int,
    jobs: int,
    report: SavedReport,
    saved: dict[Key, dict[str, Any]],
    quiet: bool,
) -> list[CellResult]:
    """Runs what ``saved`` does not have, and puts all into the report."""
    left = [c for c in cells if key_of(c, orders) not in saved]
    report.cells = list(saved.values())  # those of other runs stay there
    results = []
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("verifying", total=len(cells), completed=len(cells) - len(left))
        for result in run_cells(spec, folder, left, orders, jobs, lambda c: bar.update(task, description=c.name)):
            results.append(result)
            report.add(records([result])[0])
            bar.advance(task)
    return results
