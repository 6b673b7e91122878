"""``monoc explain SPEC NAME``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from monoc.diagnostics import suggestion
from monoc.explain.facts import explain, known_names
from monoc.explain.model import Explanation, Subject, place_text
from monoc.options import Json, Spec, bad_input
from monoc.spec.load import load_program

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("explain")
    def explain_(
        spec: Spec,
        name: Annotated[str, typer.Argument(metavar="NAME", help="A value, tensor, size, parameter, stage or region.")],
        as_json: Json = False,
    ) -> None:
        """Say what a name of a spec is, where it lives and who reads it."""
        subject = Subject.of(load_program(spec))
        found = explain(subject, name)
        if not found:
            known = known_names(subject)
            short = [n.rpartition(".")[2] for n in known]
            bad_input(f"{spec} has nothing named {name!r}; {suggestion(name, [*known, *short], 'see `monoc plan`')}")
        if as_json:
            typer.echo(json.dumps([e.as_json() for e in found], indent=2))
            return
        typer.echo("\n\n".join(_text(e) for e in found))


def _text(e: Explanation) -> str:
    lines = [f"{e.name}: {e.kind}"]
    facts = [*e.facts] if e.span is None else [("written", (place_text(e.span),)), *e.facts]
    for title, texts in facts:
        for i, text in enumerate(texts):
            lines.append(f"  {title if i == 0 else '':<19} {text}")
    return "\n".join(lines)
