"""Run FlyDSL's own examples for CDNA GPUs, unchanged, on the simulator.

    git clone https://github.com/ROCm/FlyDSL && python benchmarks/flydsl_examples.py FlyDSL

Each example checks its result and prints what it found; this script shows the last line of that, the launches made and
their wave-instructions. Exit code 1 when an example fails. Examples for other GPUs (gfx1250, gfx120x) or frameworks are
left out.
"""

import contextlib
import io
import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from monoc.sim import Simulator
from monoc.sim.host import simulate

_OTHER = ("gfx12", "cdna5", "jax", "ktrace", "flytrace", "cuda/", "utils/", "graph_capture", "asan", "__init__")
_BAD_WORDS = ("FAIL", "False", "mismatch")


def _run(path: Path, root: Path) -> tuple[bool, str, list[int]]:
    """(passed, last line printed, wave-instructions of each launch) of one example run as a script."""
    printed = io.StringIO()
    before = list(sys.path)
    sys.path[:0] = [str(path.parent), str(root)]
    with simulate(Simulator("gfx950")) as host, contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(path), run_name="__main__")
            failure = ""
        except SystemExit as stop:
            failure = "" if not stop.code else f"exit code {stop.code}"
        except Exception as error:  # whatever an example raises is its result
            failure = traceback.format_exception_only(error)[-1].strip()
        finally:
            sys.path[:] = before
    lines = [line for line in printed.getvalue().splitlines() if line.strip()]
    last = failure or (lines[-1].strip() if lines else "")
    good = not failure and not any(word in last for word in _BAD_WORDS) and bool(host.reports)
    return good, last, [report.instructions for report in host.reports]


def main(
    checkout: Annotated[Path, typer.Argument(help="a checkout of FlyDSL that fits the installed version")],
) -> None:
    """Runs every example under `checkout`/examples that is for the architecture the simulator models."""
    examples = checkout / "examples"
    if not examples.is_dir():
        raise typer.BadParameter(f"{checkout} has no examples folder")
    console = Console()
    failed = 0
    for path in sorted(examples.rglob("*.py")):
        name = path.relative_to(examples).as_posix()
        if any(word in name for word in _OTHER):
            continue
        good, last, instructions = _run(path, checkout.resolve())
        failed += not good
        console.print(
            f"{'pass' if good else 'FAIL'}  {name}: {len(instructions)} launches, {sum(instructions):,} "
            f"wave-instructions; {last}",
            markup=False,
            soft_wrap=True,
        )
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
