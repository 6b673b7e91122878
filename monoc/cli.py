"""The command line. Each command lives with the code it runs, in a module with ``register(app)``.

Exit codes: 0 good, 1 the command found something (:class:`~monoc.diagnostics.ExitCode`), 2 bad usage or spec.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from monoc import __version__
from monoc.diagnostics import CompileErrors, ExitCode

__all__ = ["app", "main"]

# In the order `monoc --help` lists them
_COMMANDS = (
    "monoc.spec.command",
    "monoc.emit.command",
    "monoc.graph.command",
    "monoc.schedule.command",
    "monoc.build.command",
    "monoc.sim.command",
    "monoc.verify.command",
)

app = typer.Typer(
    name="monoc",
    help="A compiler for mono kernels: one LLM decode layer as a few persistent FlyDSL launches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"monoc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of monoc itself."""


for _module in _COMMANDS:
    if find_spec(_module.rpartition(".")[0]) and find_spec(_module):
        import_module(_module).register(app)


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except CompileErrors as e:
        print(e.render(), file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)
