"""``monoc graph SPEC``: the layer's operations and values as a picture."""

from __future__ import annotations

import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from monoc.diagnostics import ExitCode
from monoc.graph import build_graphs
from monoc.graph.draw import dot, mermaid
from monoc.options import Spec, bad_input
from monoc.spec.load import load_program

__all__ = ["register"]


class GraphFormat(StrEnum):
    """What ``monoc graph`` writes."""

    DOT = "dot"
    MERMAID = "mermaid"
    SVG = "svg"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("graph")
    def graph(
        spec: Spec,
        form: Annotated[
            GraphFormat, typer.Option("--format", help="dot, mermaid, or svg (needs graphviz).")
        ] = GraphFormat.DOT,
        launch: Annotated[str, typer.Option(help="Only this launch.")] = "",
        out: Annotated[Path | None, typer.Option(help="Write here instead of printing.")] = None,
    ) -> None:
        """Draw the layer: one box an operation, one arrow a value."""
        graphs = build_graphs(load_program(spec))
        chosen = [g for g in graphs if launch in ("", g.launch)]
        if not chosen:
            bad_input(f"{spec}: no launch {launch!r}; there are {', '.join(g.launch for g in graphs)}")
        text = mermaid(chosen) if form is GraphFormat.MERMAID else dot(chosen)
        if form is GraphFormat.SVG:
            text = _svg(text)
        if out is None:
            typer.echo(text, nl=False)
        else:
            out.write_text(text)


def _svg(text: str) -> str:
    tool = shutil.which("dot")
    if tool is None:
        bad_input("svg needs graphviz's dot on the path; take --format dot or mermaid")
    drawn = subprocess.run([tool, "-Tsvg"], input=text, capture_output=True, text=True, check=False)
    if drawn.returncode:
        typer.echo(f"dot failed: {drawn.stderr.strip()}", err=True)
        raise typer.Exit(ExitCode.FOUND)
    return drawn.stdout
