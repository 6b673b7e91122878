"""`monoc sim FILE.s`: one launch of an assembly file, from the command line."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from monoc.build.resources import MetadataError, parse_resources
from monoc.diagnostics import ExitCode
from monoc.sim.errors import HangError, SimulationError, SimulatorError, UsageError
from monoc.sim.handoff import Manifest
from monoc.sim.host.arguments import ArgumentText, bind, parse_argument
from monoc.sim.host.engine import SimulatorEngine
from monoc.sim.host.memory import DeviceMemory
from monoc.sim.observe import Report
from monoc.sim.simulator import Checks, Launch, Simulator

__all__ = ["register", "sim"]


def _extent(text: str, option: str) -> tuple[int, int, int]:
    parts = text.split(",")
    try:
        values = [int(part, 0) for part in parts]
    except ValueError:
        values = []
    if not 1 <= len(values) <= 3 or any(value < 1 for value in values):
        raise UsageError(f"{option} {text}: give one to three positive numbers, e.g. 256 or 16,8,1")
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _saves(texts: list[str], ranks: int) -> list[tuple[int, int, Path]]:
    """(argument, rank, file) of `INDEX=FILE` or `RANK.INDEX=FILE`."""
    out = []
    for text in texts:
        where, equals, file = text.partition("=")
        rank, dot, index = where.rpartition(".")
        if not equals or not file or not index.isdigit() or (dot and not rank.isdigit()):
            raise UsageError(f"--save {text}: give INDEX=FILE.npy or RANK.INDEX=FILE.npy")
        if dot and int(rank) >= ranks:
            raise UsageError(f"--save {text}: there is no rank {rank}")
        out.append((int(index), int(rank) if dot else 0, Path(file)))
    return out


def _save(tensor: torch.Tensor, argument: ArgumentText, file: Path) -> None:
    array = tensor.numpy()
    if argument.array is not None:
        array = array.view(argument.array.dtype).reshape(argument.array.shape)
    np.save(file, array)


def _report(report: Report) -> dict[str, Any]:
    document: dict[str, Any] = {
        "instructions": report.instructions,
        "seconds": round(report.seconds, 6),
        "rate": round(report.rate),
    }
    if report.observations is not None:
        seen = report.observations
        document["classes"] = dict(seen.classes)
        document["polls"] = seen.polls
        document["mfma_macs"] = seen.mfma_macs
        document["traffic"] = [asdict(t) for t in seen.traffic]
        document["lines"] = dict(sorted(seen.lines.items(), key=lambda item: -item[1])[:20])
    return document


def _print(console: Console, document: dict[str, Any]) -> None:
    rate = document["rate"] / 1e6
    console.print(f"{document['instructions']:,} wave-instructions in {document['seconds']:.3f} s ({rate:.1f} M/s)")
    if "classes" not in document:
        return
    console.print(f"{document['mfma_macs']:,} MFMA multiply-adds, {document['polls']:,} instructions of poll loops")
    for title, head, rows in (
        ("instructions by class", ("class", "executed"), document["classes"].items()),
        ("hottest lines", ("line", "executed"), document["lines"].items()),
    ):
        table = Table(*head, title=title)
        for name, count in rows:
            table.add_row(name, f"{count:,}")
        console.print(table)
    table = Table("buffer", "policy", "bytes loaded", "bytes stored", title="memory traffic")
    for row in document["traffic"]:
        table.add_row(row["buffer"], row["policy"] or "plain", f"{row['loaded']:,}", f"{row['stored']:,}")
    console.print(table)


def _failure(error: SimulatorError | MetadataError | OSError) -> tuple[int, dict[str, Any]]:
    found: dict[str, Any] = {"error": str(error)}
    if isinstance(error, SimulationError):
        found["findings"] = [{**asdict(f), "details": dict(f.details)} for f in error.findings]
    if isinstance(error, HangError):
        found["waiting"] = [asdict(group) for group in error.groups]
    return ExitCode.FOUND if isinstance(error, (SimulationError, HangError)) else ExitCode.BAD_INPUT, found


def sim(
    file: Annotated[Path, typer.Argument(help="assembly text, as FlyDSL's LLVM writes it")],
    arg: Annotated[
        list[str] | None,
        typer.Option(
            help="a kernel argument, in order: an integer, f32:VALUE, zeros:BYTES, empty:BYTES, "
            "random:BYTES[:SEED], FILE.npy, rank, or peer:INDEX (table of all ranks' addresses of a buffer argument)"
        ),
    ] = None,
    grid: Annotated[str, typer.Option(help="CTAs: x[,y[,z]]")] = "1",
    block: Annotated[str, typer.Option(help="threads: x[,y[,z]]; the kernel's required size when absent")] = "",
    kernel: Annotated[str, typer.Option(help="symbol, when the file has several kernels")] = "",
    ranks: Annotated[int, typer.Option(min=1, help="GPUs that run the launch together, each with its own buffers")] = 1,
    lds: Annotated[int, typer.Option(min=0, help="bytes of dynamic LDS")] = 0,
    arch: Annotated[str, typer.Option(help="the GPU's architecture")] = "gfx950",
    seed: Annotated[int, typer.Option(min=0, help="order of the CTAs and of their waves; 0: as numbered")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="host threads; 0: one a core")] = 0,
    repeat: Annotated[int, typer.Option(min=1, help="launches in a row, on the same buffers")] = 1,
    manifest: Annotated[Path | None, typer.Option(help="hand-off regions to check (JSON)")] = None,
    observe: Annotated[bool, typer.Option(help="count instructions and bytes")] = False,
    vgpr_poison: Annotated[bool, typer.Option(help="report registers used before they were written")] = False,
    lds_races: Annotated[bool, typer.Option(help="report races in LDS between the waves of a CTA")] = False,
    save: Annotated[
        list[str] | None, typer.Option(help="write a buffer argument afterwards: [RANK.]INDEX=FILE.npy")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Run one launch of an assembly file on the simulator.

    Exit code 1 when a check found something or the launch hangs, 2 for bad input.
    """
    console = Console()
    try:
        simulator = Simulator(
            arch,
            ranks,
            seed=seed,
            threads=threads or None,
            checks=Checks(vgprs=vgpr_poison, lds_races=lds_races),
            observe=observe,
        )
        if not file.is_file():
            raise UsageError(f"no file {file}")
        program = simulator.load(file, kernel or None)
        layout = parse_resources(file.read_text(), program.name).arguments
        arguments = [parse_argument(text) for text in arg or []]
        targets = _saves(save or [], ranks)
        for index, _, path in targets:
            if index >= len(arguments) or arguments[index].kind not in ("npy", "zeros", "empty", "random"):
                raise UsageError(f"--save {index}={path}: argument {index} is no buffer")
        memory = DeviceMemory()
        values, buffers = bind(arguments, layout, ranks, memory)
        SimulatorEngine(simulator).sync(memory)
        if manifest is not None:
            simulator.set_manifest(Manifest.from_json(manifest.read_text()))
        shape = _extent(block, "--block") if block else None
        launches = {
            rank: Launch(program, values[rank], grid=_extent(grid, "--grid"), block=shape, lds=lds)
            for rank in range(ranks)
        }
        for _ in range(repeat):
            report = simulator.launch(launches)
        for index, rank, path in targets:
            _save(buffers[rank][index], arguments[index], path)
    except (SimulatorError, MetadataError, OSError) as error:
        code, found = _failure(error)
        if as_json:
            print(json.dumps(found))
        else:
            Console(stderr=True).print(found["error"], markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(code) from None
    document = {"kernel": program.name, **_report(report)}
    if as_json:
        print(json.dumps(document))
    else:
        _print(console, document)


def register(app: typer.Typer) -> None:
    """Adds `sim` to the application."""
    app.command("sim")(sim)
