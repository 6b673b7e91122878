"""``monoc build SPEC``."""

from __future__ import annotations

import json
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
from monoc.build.package import EmittedPackage, PackageError
from monoc.diagnostics import ExitCode
from monoc.spec.load import load_program
from monoc.target import target

__all__ = ["Row", "compile_row", "register"]


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


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers, like 1,8,48") from None


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("build")
    def build(
        spec: Annotated[str, typer.Argument(metavar="SPEC", help="The spec file.")],
        out: Annotated[
            Path | None, typer.Option("--out", help="The package's folder (default: generated/<layer>).")
        ] = None,
        tokens: Annotated[str, typer.Option(help="Step widths, like 1,8,48.")] = "1,6,8,16,17,24,48",
        tp: Annotated[str | None, typer.Option(help="TP sizes (default: all).")] = None,
        launch: Annotated[str | None, typer.Option(help="Only this launch.")] = None,
        stages: Annotated[bool, typer.Option("--stages", help="Compile each stage alone.")] = False,
        barriers: Annotated[bool, typer.Option("--barriers", help="The all-barrier form.")] = False,
        jobs: Annotated[int, typer.Option(min=1, help="Processes to compile in.")] = 2,
        as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    ) -> None:
        """Compile the emitted launches to gfx950 assembly (no GPU, no ROCm) and show what each build needs."""
        program = load_program(spec)
        folder = out if out is not None else Path("generated") / program.name
        try:
            package = EmittedPackage.load(folder)
        except PackageError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(ExitCode.BAD_INPUT) from None
        if package.spec_hash != program.digest[:16]:
            typer.echo(
                f"{folder} was not compiled from {spec} as it is now; run `monoc compile {spec}` first", err=True
            )
            raise typer.Exit(ExitCode.BAD_INPUT)
        fixed = {"tokens": _numbers(tokens) or ()}
        if tp is not None:
            fixed["tp"] = _numbers(tp) or ()
        work = [
            (folder, name, tuple(asdict(package.plan.with_flags(b, barriers=barriers)).items()), stage)
            for name, b in package.kernels(**fixed)
            if launch in (None, name)
            for stage in (package.plan.LAUNCHES[name].stages(b) if stages else ("",))
        ]
        if not work:
            known = ", ".join(package.plan.LAUNCHES)
            what = (
                f"launch {launch!r}; there are {known}"
                if launch and launch not in package.plan.LAUNCHES
                else (f"build with tokens {tokens}{f' and tp {tp}' if tp else ''}")
            )
            typer.echo(f"{folder} has no {what}", err=True)
            raise typer.Exit(ExitCode.BAD_INPUT)
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
