"""``monoc check SPEC``."""

from __future__ import annotations

import json
from typing import Any

import typer

from monoc.compiler import fit_program
from monoc.diagnostics import CompileErrors, ExitCode
from monoc.options import Json, Spec
from monoc.spec.load import load_program
from monoc.spec.program import MapStatement, Program

__all__ = ["register", "summary"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("check")
    def check(
        spec: Spec,
        as_json: Json = False,
    ) -> None:
        """Read a spec and report every error in it."""
        try:
            program = load_program(spec)
            fit_program(program)
        except CompileErrors as e:
            if not as_json:
                raise
            typer.echo(json.dumps({"good": False, "errors": [d.as_json() for d in e.diagnostics]}, indent=2))
            raise typer.Exit(ExitCode.BAD_INPUT) from None
        facts = summary(program)
        if as_json:
            typer.echo(json.dumps({"good": True, **facts}, indent=2))
            return
        launches = ", ".join(f"{name} ({n['statements']} statements)" for name, n in facts["launches"].items())
        typer.echo(f"{spec}: good")
        typer.echo(f"  layer {facts['layer']}: {facts['builds']} builds of {len(facts['variants'])} variants")
        typer.echo(f"  launches: {launches}")
        typer.echo(f"  {facts['weights']} weights, {facts['inputs']} inputs and caches, {facts['values']} values")


def summary(program: Program) -> dict[str, Any]:
    """What ``check --json`` prints of a good spec."""
    return {
        "layer": program.name,
        "digest": program.digest,
        "variants": [v.name for v in program.space.variants],
        "builds": sum(1 for _ in program.space.builds()),
        "weights": sum(t.role == "weight" for t in program.tensors),
        "inputs": sum(t.role in ("input", "cache") for t in program.tensors),
        "values": len(program.types) - len(program.tensors),
        "launches": {
            name: {
                "statements": len(launch.statements),
                "maps": sum(isinstance(s, MapStatement) for s in launch.statements),
            }
            for name, launch in program.launch.items()
        },
    }
