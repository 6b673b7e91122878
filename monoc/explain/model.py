"""An explanation as data, and everything it is made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from monoc.compiler import schedule_program
from monoc.expr.ir import Span
from monoc.graph.model import LayerGraph, Operation
from monoc.passes.layer import Layer
from monoc.passes.pipeline import compile_layer, regions_of
from monoc.schedule.model import Edge, Region, Schedule
from monoc.spec.program import Program, ValueType

__all__ = ["Explanation", "Subject", "place_text", "type_text"]


@dataclass(frozen=True)
class Explanation:
    """What one thing of that name is: ``kind``, where it is written (None: nowhere, the compiler made it), and what
    there is to say, as (title, lines)."""

    name: str
    kind: str
    span: Span | None
    facts: tuple[tuple[str, tuple[str, ...]], ...]

    def as_json(self) -> dict[str, object]:
        at = self.span
        place = None if at is None else {"file": at.file, "line": at.line, "column": at.column}
        return {"name": self.name, "kind": self.kind, "place": place, **dict(self.facts)}


@dataclass(frozen=True)
class Subject:
    """A program with its layer (stages) and its schedule (regions)."""

    program: Program
    layer: Layer
    schedule: Schedule

    @classmethod
    def of(cls, program: Program) -> Subject:
        """Raises :class:`~monoc.diagnostics.CompileErrors` for a spec no stages can be made of."""
        schedule = schedule_program(program)
        return cls(program, compile_layer(program), schedule)

    @cached_property
    def stage_of(self) -> dict[tuple[str, str], str]:
        """(launch, operation) -> the stage it went into."""
        return {(la, op): s.name for la, stages in self.layer.stages.items() for s in stages for op in s.operations}

    def writers(self, value: str) -> Iterator[tuple[LayerGraph, Operation]]:
        """The operations that write ``value``, launch by launch."""
        for graph in self.layer.graphs:
            yield from ((graph, op) for op in graph.producers(value))

    def readers(self, value: str) -> Iterator[tuple[LayerGraph, Operation]]:
        """The operations that read ``value`` or a part of it, launch by launch."""
        for graph in self.layer.graphs:
            yield from ((graph, op) for op in graph.consumers(value))

    def regions(self, value: str) -> Iterator[Region]:
        """The regions that hold ``value``, or what a stage made of it for its readers."""
        touched = {graph.launch for graph, _ in (*self.writers(value), *self.readers(value))}
        for launch, stages in self.layer.stages.items():
            if launch not in touched:
                continue
            named = regions_of(value, [w.region for s in stages for w in s.shape.writes])
            yield from (r for r in self.schedule.regions if r.launch == launch and r.name in named)

    def edges(self, region: Region) -> tuple[Edge, ...]:
        return tuple(e for e in self.schedule.edges if (e.launch, e.region) == (region.launch, region.name))

    def doing(self, graph: LayerGraph, op: Operation) -> str:
        """An operation and where it runs: ``y (map) in stage k1.attn_seam_norm``."""
        stage = self.stage_of.get((graph.launch, op.name))
        where = f"stage {graph.launch}.{stage}" if stage else f"launch {graph.launch}"
        return f"{op.name} ({op.kind}) in {where}"


def type_text(value: ValueType) -> str:
    """``bf16 [tokens, hidden], replicated``."""
    block = "" if value.block is None else f", a code a {value.block[0]} x {value.block[1]}"
    return f"{value.dtype} [{', '.join(str(s) for s in value.shape)}]{block}, {value.sharding}"


def place_text(span: Span) -> str:
    """``file:line:column`` and the line there."""
    at = f"{span.file}:{span.line}:{span.column}"
    try:
        line = Path(span.file).read_text(encoding="utf-8").splitlines()[span.line - 1]
    except (OSError, IndexError):
        return at
    return f"{at}  {line.strip()}"
