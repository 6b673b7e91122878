"""Program to graphs: every statement of a launch one operation."""

from __future__ import annotations

from monoc.graph.model import LayerGraph, Operation
from monoc.spec.program import Launch, MapStatement, Program, Statement

__all__ = ["build_graphs"]


def build_graphs(program: Program) -> tuple[LayerGraph, ...]:
    """One graph a launch, in the order the entries name them; a launch of two entries once."""
    return tuple(_graph(program, launch) for launch in program.launch.values())


def _graph(program: Program, launch: Launch) -> LayerGraph:
    taken: dict[str, int] = {}
    operations = []
    for statement in launch.statements:
        name = statement.results[0] if statement.results else f"{statement.scope or launch.name}.{_kind(statement)}"
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name}#{taken[name]}"
        written = tuple(statement.results) or tuple(statement.operands[:1])
        operations.append(
            Operation(unique, _kind(statement), statement, statement.guard, tuple(statement.operands), written)
        )
    made = {v for op in operations for v in op.writes}
    return LayerGraph(launch.name, tuple(operations), program.type_of, tuple(_leaving(program, launch, made)))


def _kind(statement: Statement) -> str:
    if isinstance(statement, MapStatement):
        return "reduce" if statement.reductions else "map"
    return statement.op


def _leaving(program: Program, launch: Launch, made: set[str]) -> list[str]:
    """Values of ``launch`` somebody else reads: entry outputs, host arguments, other launches."""
    wanted: dict[str, None] = {}
    for entry in program.entries:
        if launch not in entry.launches:
            continue
        elsewhere = [
            op for other in entry.launches if other is not launch for s in other.statements for op in s.operands
        ]
        for value in (*entry.outputs, *entry.carried, *(a for h in entry.host_calls for a in h.arguments), *elsewhere):
            if value in made:
                wanted[value] = None
    return list(wanted)
