"""Graphs as text: DOT (graphviz) and mermaid."""

from __future__ import annotations

from collections.abc import Iterable

from monoc.graph.model import LayerGraph, Operation

__all__ = ["dot", "mermaid"]


def dot(graphs: Iterable[LayerGraph]) -> str:
    """One cluster a launch; edges are labelled with the value and its type."""
    lines = ["digraph layer {", "  rankdir=TB;", '  node [shape=box, fontname="monospace"];']
    for graph in graphs:
        lines += [f'  subgraph "cluster_{graph.launch}" {{', f'    label="{graph.launch}";']
        lines += [f'    "{graph.launch}/{op.name}" [label="{_label(op)}"];' for op in graph.operations]
        lines += [
            f'    "{graph.launch}/{a.name}" -> "{graph.launch}/{b.name}" [label="{_value(graph, value)}"];'
            for a, b, value in graph.edges()
        ]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(graphs: Iterable[LayerGraph]) -> str:
    """The same as a mermaid flowchart."""
    lines = ["flowchart TB"]
    number = 0
    for graph in graphs:
        lines.append(f"  subgraph {graph.launch}")
        ids = {}
        for op in graph.operations:
            ids[op.name] = f"n{number}"
            number += 1
            lines.append(f'    {ids[op.name]}["{_label(op)}"]')
        lines += [f'    {ids[a.name]} -->|"{_value(graph, v)}"| {ids[b.name]}' for a, b, v in graph.edges()]
        lines.append("  end")
    return "\n".join(lines) + "\n"


def _label(op: Operation) -> str:
    guard = "" if str(op.guard) in ("1", "True") else f" when {op.guard}"
    return f"{op.name}: {op.kind}{guard}".replace('"', "'")


def _value(graph: LayerGraph, value: str) -> str:
    kind = graph.types.get(value)
    if kind is None:
        return value
    return f"{value}: {kind.dtype.value} [{', '.join(str(x) for x in kind.shape)}] {kind.sharding}".replace('"', "'")
