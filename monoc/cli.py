"""The command line. Each command lives with the code it runs, in a module with ``register(app)``.

Exit codes: 0 good, 1 the command found something (:class:`~monoc.diagnostics.ExitCode`), 2 bad usage or spec.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from monoc import __version__
from monoc.diagnostics import CompileErrors, ExitCode

__all__ = ["COMMANDS", "main", "make_app", "run"]

# Command -> the module that registers it, in the order of `monoc --help`
COMMANDS: Mapping[str, str] = {
    "check": "monoc.spec.command",
    "compile": "monoc.emit.command",
    "graph": "monoc.graph.command",
    "plan": "monoc.schedule.command",
    "build": "monoc.build.command",
    "sim": "monoc.sim.command",
    "verify": "monoc.verify.command",
}


_SHORT = frozenset({"check", "compile", "graph", "plan"})


def make_app(argv: Sequence[str] = ()) -> typer.Typer:
    """The application. With a command named in ``argv`` only its module is imported: torch and FlyDSL load slowly."""
    app = typer.Typer(
        name="monoc",
        help="A compiler for mono kernels: one LLM decode layer as a few persistent FlyDSL launches.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    named = next((a for a in argv if not a.startswith("-")), None)
    wanted = COMMANDS.values() if named is None or named not in COMMANDS else (COMMANDS[named],)
    for module in dict.fromkeys(wanted):
        if _exists(module):
            import_module(module).register(app)
    return app


def _exists(module: str) -> bool:
    return (Path(__file__).parent.parent / module.replace(".", "/")).with_suffix(".py").is_file()


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
