"""``monoc mutate SPEC ...``."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from monoc.build.package import PackageError, open_package
from monoc.diagnostics import ExitCode
from monoc.options import Json, bad_input, chosen, writable
from monoc.verify.mutants.bench import Bundle
from monoc.verify.mutants.campaign import Campaign, FaultlessError
from monoc.verify.mutants.operators import OPERATORS
from monoc.verify.mutants.outcome import Outcome, Verdict, as_json, kill_rate, table
from monoc.verify.saved import write_report

__all__ = ["register"]

_ENOUGH = 0.95  # of the mutants killed


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("mutate")
    def mutate(
        specs: Annotated[list[str], typer.Argument(metavar="SPEC...", help="Spec files, of small layers.")],
        out: Annotated[
            Path | None, typer.Option("--out", help="The package's folder, for one spec (default: generated/<layer>).")
        ] = None,
        seed: Annotated[int, typer.Option(min=0, help="Of the draw, of weights and of inputs.")] = 0,
        each: Annotated[int, typer.Option(min=1, help="Mutants an operator that count.")] = 10,
        orders: Annotated[int, typer.Option(min=1, help="Schedules of the CTAs every mutant runs under.")] = 5,
        operator: Annotated[
            str | None, typer.Option(help='Operators, like "wrong rounding,swapped scale" (default: all).')
        ] = None,
        save: Annotated[Path | None, typer.Option(help="Where to save the report (JSON).")] = None,
        json_: Json = False,
    ) -> None:
        """Seed faults into emitted packages, one at a time, and count those that `monoc verify` finds."""
        operators = chosen(operator, {name: name for name in OPERATORS}, "--operator")
        writable(save, "--save", "mutants")
        if out is not None and len(specs) > 1:
            bad_input("--out names the package of one spec; give one")
        torch.set_num_threads(1)  # the reference's operations are small: threads would only meet each other
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="monoc-mutants-") as folder:
            campaign = Campaign([_bundle(spec, out, Path(folder)) for spec in specs], seed, orders)
            outcomes = _run(campaign, each, operators, quiet=json_)
            sites = {name: len(campaign.all_sites(name)) for name in operators}
        rate = kill_rate(outcomes)
        report = {
            "good": rate >= _ENOUGH,
            "specs": specs,
            "seed": seed,
            "orders": orders,
            "kill_rate": rate,
            "seconds": round(time.monotonic() - start),
            "sites": sites,
            "mutants": as_json(outcomes),
        }
        if save is not None:
            write_report(save, report)
        if json_:
            typer.echo(json.dumps(report, indent=2))
        else:
            Console(width=160).print(table(outcomes, sites))
            for outcome in outcomes:
                if outcome.verdict is Verdict.SURVIVED:
                    ran = f"in {len(outcome.ran)} cells"
                    typer.echo(f"survived {ran}: {outcome.site.operator}, {outcome.spec}/{outcome.site.name}")
            counted = sum(o.counts for o in outcomes)
            typer.echo(f"{counted} mutants: {rate:.1%} killed ({report['seconds']} s)")
        if not report["good"]:
            raise typer.Exit(ExitCode.FOUND)


def _bundle(spec: str, out: Path | None, folder: Path) -> Bundle:
    try:
        program, package = open_package(spec, out)
    except PackageError as error:
        bad_input(str(error))
    own = folder / program.name
    own.mkdir()
    return Bundle(program, package.folder, own)


def _run(campaign: Campaign, each: int, operators: list[str], quiet: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("mutants", total=each * len(operators))

        def report(outcome: Outcome) -> None:
            outcomes.append(outcome)
            bar.update(task, description=f"{outcome.site.operator}: {outcome.verdict}", advance=float(outcome.counts))

        try:
            campaign.run(each, report, operators)
        except FaultlessError as error:
            bad_input(str(error))
    return outcomes
