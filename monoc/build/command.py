"""``monoc build SPEC``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from monoc.build.isa import CompileError
from monoc.build.package import EmittedPackage, PackageError, open_package
from monoc.diagnostics import ExitCode
from monoc.options import Barriers, Json, Kinds, Out, Settings, Spec, bad_input, chosen, numbers, settings
from monoc.spec.program import Program
from monoc.target import target

__all__ = ["Row", "compile_row", "register"]

Wanted = dict[str, tuple[int, ...]]  # build parameter -> values


@dataclass(frozen=True)
class Row:
    """One compiled kernel, or one stage of it: registers a lane or wave, sizes in bytes, or ``error``."""

    launch: str
    build: str
    stage: str = ""
    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    vgpr_spills: int = 0
    sgpr_spills: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    code_bytes: int = 0
    error: str = ""

    def problems(self, vgprs: int, lds: int) -> list[str]:
        """Why this kernel must not be used."""
        found = [self.error] if self.error else []
        if self.scratch_bytes:
            found.append(f"{self.scratch_bytes} bytes of scratch memory a lane")
        if self.vgpr_spills:
            found.append(f"{self.vgpr_spills} VGPRs spilled")
        if self.vgprs > vgprs:
            found.append(f"{self.vgprs} VGPRs, the target has {vgprs}")
        if self.lds_bytes > lds:
            found.append(f"{self.lds_bytes} bytes of LDS, the target has {lds}")
        return found


@cache
def _load(folder: Path) -> EmittedPackage:
    return EmittedPackage.load(folder)


def compile_row(folder: Path, launch: str, build: tuple[tuple[str, Any], ...], stage: str) -> Row:
    """Compile one launch of the package in ``folder`` (``stage``: that stage alone) in this process."""
    package = _load(folder)
    b = package.plan.Plan(**dict(build))
    text = package.label(launch, b)
    try:
        r = package.compile(launch, b, (stage,) if stage else None).resources
    except CompileError as error:
        return Row(launch, text, stage, error=str(error).splitlines()[0])
    return Row(
        launch,
        text,
        stage,
        r.vgprs,
        r.agprs,
        r.sgprs,
        r.vgpr_spills,
        r.sgpr_spills,
        r.lds_bytes,
        r.scratch_bytes,
        r.code_bytes,
    )


def _selected(program: Program, package: EmittedPackage, kind: str | None, wanted: Wanted) -> Iterator[tuple[str, Any]]:
    """Every distinct (launch, build) of the kinds ``kind`` names (None: all) with parameters in ``wanted``."""
    if kind is None:
        yield from package.kernels(**wanted)
        return
    from monoc.verify.cells import kinds  # needs torch, with the runner

    known = {k.name: k for k in kinds(program, getattr(package.part("runner"), program.runner.class_name))}
    seen: set[str] = set()
    for k in chosen(kind, known, "--kind"):
        fixed: dict[str, tuple[Any, ...]] = {"variant": (k.variant,), **{name: (value,) for name, value in k.fixed}}
        for name, values in wanted.items():
            fixed[name] = tuple(v for v in fixed.get(name, values) if v in values)
        launches = next(e.launches for e in program.entries if e.name == k.entry)
        for name, b in package.kernels(**fixed):
            if name in {launch.name for launch in launches} and (symbol := package.plan.symbol(b, name)) not in seen:
                seen.add(symbol)
                yield name, b


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("build")
    def build(
        spec: Spec,
        out: Out = None,
        tokens: Annotated[str, typer.Option(help="Step widths, like 1,8,48.")] = "1,6,8,16,17,24,48",
        tp: Annotated[str | None, typer.Option(help="TP sizes (default: all).")] = None,
        kind: Kinds = None,
        choose: Settings = None,
        launch: Annotated[str | None, typer.Option(help="Only this launch.")] = None,
        stages: Annotated[bool, typer.Option("--stages", help="Compile each stage alone.")] = False,
        barriers: Barriers = False,
        wait_limit: Annotated[int, typer.Option(min=0, help="Microseconds a wait may take; 0: no limit.")] = 0,
        jobs: Annotated[int, typer.Option(min=1, help="Processes to compile in.")] = 2,
        as_json: Json = False,
    ) -> None:
        """Compile the emitted launches to gfx950 assembly (no GPU, no ROCm) and show what each build needs."""
        try:
            program, package = open_package(spec, out)
        except PackageError as error:
            bad_input(str(error))
        plan, folder = package.plan, package.folder
        wanted: Wanted = {"tokens": numbers(tokens, "--tokens"), **settings(choose)}
        if tp is not None:
            wanted["tp"] = numbers(tp, "--tp")
        parameters = list(dict.fromkeys(name for fields in plan.VARIANTS.values() for name in fields))
        for name in wanted:
            if name not in parameters:
                bad_input(f"--set {name}: no build parameter; there are {', '.join(parameters)}")
        if launch not in (None, *plan.LAUNCHES):
            bad_input(f"{folder} has no launch {launch!r}; there are {', '.join(plan.LAUNCHES)}")
        if wait_limit > plan.LONGEST_WAIT:
            bad_input(f"--wait-limit {wait_limit}: at most {plan.LONGEST_WAIT} microseconds")
        options = {"barriers": barriers, "wait_limit": wait_limit}
        work = [
            (folder, name, tuple(asdict(plan.with_flags(b, **options)).items()), stage)
            for name, b in _selected(program, package, kind, wanted)
            if launch in (None, name)
            for stage in (plan.LAUNCHES[name].stages(b) if stages else ("",))
        ]
        if not work:
            named = [f"{name} {','.join(map(str, values))}" for name, values in wanted.items()]
            bad_input(f"{folder} has no build with {' and '.join(named)}{f' of kind {kind}' if kind else ''}")
        rows = _compile_all(work, jobs, quiet=as_json)
        gpu = target(program.target.arch)
        bad = [
            (row, problem)
            for row in rows
            for problem in row.problems(gpu.vgpr_budget(program.target.threads), gpu.lds_bytes)
        ]
        if as_json:
            typer.echo(json.dumps({"good": not bad, "kernels": [asdict(r) for r in rows]}, indent=2))
        else:
            console = Console()
            console.width = max(console.width, 130)  # piped output is not cut
            console.print(_table(rows, stages))
            typer.echo(f"{len(rows)} {'stages' if stages else 'kernels'}: {len(bad) or 'no'} problems")
            for row, problem in bad:
                typer.echo(f"{row.launch} {row.build} {row.stage}: {problem}", err=True)
        if bad:
            raise typer.Exit(ExitCode.FOUND)


def _compile_all(work: list[tuple[Path, str, tuple[tuple[str, Any], ...], str]], jobs: int, quiet: bool) -> list[Row]:
    with (
        Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar,
        ProcessPoolExecutor(min(jobs, len(work)), mp_context=get_context("spawn")) as pool,
    ):
        task = bar.add_task("compiling", total=len(work))
        futures = [pool.submit(compile_row, *item) for item in work]
        for future in futures:
            future.add_done_callback(lambda _: bar.advance(task))
        return [future.result() for future in futures]


def _table(rows: list[Row], stages: bool) -> Table:
    table = Table(box=None)
    columns = ["launch", "build", *(["stage"] if stages else [])]
    numbers = ["vgprs", "vgpr_spills", "sgprs", "sgpr_spills", "lds_bytes", "scratch_bytes", "code_bytes"]
    for name in columns:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(str(getattr(row, name)) for name in (*columns, *numbers)))
    return table
