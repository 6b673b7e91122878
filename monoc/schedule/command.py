"""``monoc plan SPEC``: one build's stages, placements, hand-offs with their reasons, scratch map and critical chain."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from monoc.compiler import schedule_program
from monoc.diagnostics import ExitCode
from monoc.options import Barriers, Json, Settings, Spec, bad_input, settings
from monoc.schedule.model import Schedule
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs import prove_cached
from monoc.schedule.report import LaunchReport, PlanReport, plan_report
from monoc.spec.load import load_program
from monoc.target import UnknownTargetError, target

__all__ = ["build_fields", "register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("plan")
    def plan(
        spec: Spec,
        tokens: Annotated[int, typer.Option(help="Rows of the step.")] = 8,
        tp: Annotated[int | None, typer.Option(help="Tensor-parallel ranks (default: the most served).")] = None,
        variant: Annotated[str, typer.Option(help="Layer variant (default: the first).")] = "",
        choose: Settings = None,
        barriers: Barriers = False,
        as_json: Json = False,
    ) -> None:
        """Show how a build runs: stages, placement, hand-offs and why, memory, critical chain."""
        try:
            program = load_program(spec)
            gpu = target(program.target.arch)
            schedule = schedule_program(program)
            wanted = {"tokens": tokens, **({} if tp is None else {"tp": tp}), **_single(settings(choose))}
            report = plan_report(schedule, {**build_fields(schedule, variant, wanted), "barriers": barriers})
        except (UnknownTargetError, ValueError) as error:
            bad_input(f"{spec}: {error}")
        proof = prove_cached(print_plan(schedule), gpu)
        failures = [str(f) for f in proof.failures]
        if as_json:
            typer.echo(json.dumps({**report.as_json(), "failures": failures}, indent=2))
        else:
            console = Console()
            console.width = max(console.width, 150)  # piped output is not cut
            _show(report, console)
            typer.echo(f"proofs: {proof.builds} builds, " + (f"{len(failures)} failures" if failures else "all hold"))
            for failure in failures:
                typer.echo(f"  {failure}")
        if failures:
            raise typer.Exit(ExitCode.FOUND)


def _single(wanted: dict[str, tuple[int, ...]]) -> dict[str, int]:
    for name, values in wanted.items():
        if len(values) > 1:
            raise ValueError(f"--set {name}: one value; a plan is one build's")
    return {name: value for name, (value,) in wanted.items()}


def build_fields(schedule: Schedule, variant: str, wanted: dict[str, int]) -> dict[str, Any]:
    """The fields of a ``Plan``: what is ``wanted``, else the variant's first value (for tp the largest).

    Raises ``ValueError`` for a name or variant the schedule does not have."""
    served = {v.name: v for v in schedule.variants}
    chosen = served.get(variant or schedule.variants[0].name)
    if chosen is None:
        raise ValueError(f"variant {variant!r} is not one of {', '.join(served)}")
    known = {f.name: f for f in chosen.fields}
    for name in wanted:
        if name not in known:
            raise ValueError(f"{name!r} is no build parameter; there are {', '.join(known)}")
    fields: dict[str, Any] = {"variant": chosen.name}
    for name, field in known.items():
        value = wanted.get(name, max(field.values) if name == "tp" else _usual(field.values))
        fields[name] = bool(value) if isinstance(field.values[0], bool) else value
    return fields


def _usual(values: tuple[int | bool | str, ...]) -> int | bool | str:
    """False of a flag, the first value of a parameter."""
    return False if isinstance(values[0], bool) else values[0]


def _show(report: PlanReport, console: Console) -> None:
    build = ", ".join(f"{n} {v}" for n, v in report.build.items())
    console.print(f"[bold]{build}[/bold]")
    for launch in report.launches:
        _show_launch(launch, console)
    for name, lengths in report.chains.items():
        console.print(f"critical chain of {name} by rows: {_ranges(lengths)}")
    console.print(
        f"scratch {report.scratch_bytes:,} bytes, peer buffer {report.peer_bytes:,} bytes, "
        f"epoch buffer {report.epoch_bytes:,} bytes"
    )


def _ranges(lengths: dict[int, int]) -> str:
    """``1..3: 4, 4..48: 6``."""
    runs: list[tuple[int, int, int]] = []
    for tokens, length in lengths.items():
        if runs and runs[-1][2] == length:
            runs[-1] = (runs[-1][0], tokens, length)
        else:
            runs.append((tokens, tokens, length))
    return ", ".join(f"{a}..{b}: {n}" if a != b else f"{a}: {n}" for a, b, n in runs)


def _show_launch(launch: LaunchReport, console: Console) -> None:
    ends = ", ends the epoch" if launch.ends_epoch else ""
    console.print(f"\n[bold]launch {launch.name}[/bold] (tag 2 e + {launch.tag}{ends}; LDS {launch.lds_bytes:,} bytes)")
    console.print(f"critical chain {launch.chain_length}: {launch.chain}")
    _table(
        console,
        "stages",
        ("stage", "skeleton", "tasks", "first CTA", "placed", "weight bytes", "LDS", "computes"),
        [
            (
                ("| " if s.barrier_before else "") + s.name,
                s.skeleton,
                f"{s.tasks}",
                f"{s.first_cta}",
                s.placement + ("" if s.take == "placed" else f", {s.take}"),
                f"{s.weight_bytes:,}",
                f"{s.lds_bytes:,}",
                ", ".join(s.statements),
            )
            for s in launch.stages
        ],
    )
    _table(
        console,
        "hand-offs",
        ("region", "from", "to", "form", "why"),
        [(h.region, h.producer, h.consumer, h.form, h.why) for h in launch.hand_offs],
    )
    _table(
        console,
        "regions",
        ("region", "space", "offset", "bytes", "form", "scope", "from", "until", "bytes of"),
        [
            (r.region, r.space, f"{r.offset:,}", f"{r.bytes:,}", r.form, r.scope, r.first, r.last, r.shares)
            for r in launch.regions
        ],
    )


def _table(console: Console, title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        right = column in ("tasks", "first CTA", "weight bytes", "LDS", "offset", "bytes")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
