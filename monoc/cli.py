"""The command line. Each command lives with the code it runs, in a module with ``register(app)``.

Exit codes: 0 good, 1 the command found something (:class:`~monoc.diagnostics.ExitCode`), 2 bad usage or spec.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer

from monoc import __version__
from monoc.diagnostics import CompileErrors, ExitCode

__all__ = ["COMMANDS", "Command", "main", "make_app", "run"]


@dataclass(frozen=True)
class Command:
    """``module``: the one that registers it. ``summary``: the first line of its help, for the list of commands."""

    module: str
    summary: str


# In the order of `monoc --help`.
COMMANDS: Mapping[str, Command] = {
    "check": Command("monoc.spec.command", "Read a spec and report every error in it."),
    "compile": Command("monoc.emit.command", "Compile a spec into a package of launches, their plan and their runner."),
    "graph": Command("monoc.graph.command", "Draw the layer: one box an operation, one arrow a value."),
    "explain": Command("monoc.explain.command", "Say what a name of a spec is, where it lives and who reads it."),
    "plan": Command(
        "monoc.schedule.command",
        "Show how a build runs: stages, placement, hand-offs and why, memory, critical chain.",
    ),
    "build": Command(
        "monoc.build.command",
        "Compile the emitted launches to gfx950 assembly (no GPU, no ROCm) and show what each build needs.",
    ),
    "sim": Command("monoc.sim.command", "Run one launch of an assembly file on the simulator."),
    "verify": Command(
        "monoc.verify.command",
        "Run an emitted package on the simulator through its own runner and hold it against the spec's reference.",
    ),
    "mutate": Command(
        "monoc.verify.mutants.command",
        "Seed faults into emitted packages, one at a time, and count those that `monoc verify` finds.",
    ),
}


_SHORT = frozenset({"check", "compile", "graph", "explain", "plan"})


def make_app(argv: Sequence[str] | None = None) -> typer.Typer:
    """The application. For ``argv`` only the module of the command it names is imported, for help and errors none:
    torch and FlyDSL load slowly. None: all of them."""
    app = typer.Typer(
        name="monoc",
        help="A compiler for mono kernels: one LLM decode layer as a few persistent FlyDSL launches.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    named = next((a for a in argv or () if not a.startswith("-")), None)
    for name, command in COMMANDS.items():
        if argv is None or name == named:
            import_module(command.module).register(app)
        elif named not in COMMANDS:
            app.command(name, help=command.summary)(_listed)
    return app


def _listed() -> None:
    """Stands for a command in the list of commands."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"monoc {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A compiler for mono kernels: one LLM decode layer as a few persistent FlyDSL launches."""


def run() -> None:
    """Run the command of ``sys.argv``; errors become messages and exit codes."""
    try:
        make_app(sys.argv[1:])()
    except CompileErrors as e:
        if "--json" in sys.argv:
            print(json.dumps({"good": False, "errors": [d.as_json() for d in e.diagnostics]}, indent=2))
        else:
            print(e.render(), file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)
    except OSError as e:
        if e.filename is None:
            raise
        print(f"cannot use {e.filename}: {e.strerror}; give another path", file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)


def main() -> None:
    """Entry point of the console script: :func:`run`, as the only thing its process does.

    Reading and printing a spec makes a million small objects and hardly a cycle: the collector would take a fifth of a
    compilation's time, and as much again at the end. Commands that run launches or hold tensors keep it.
    """
    if not _SHORT & set(sys.argv[1:]):
        run()
        return
    gc.disable()
    try:
        run()
    finally:
        gc.freeze()
