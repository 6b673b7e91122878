"""What the passes work on: a program's graphs and, from the fuse pass on, the stages of its launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from monoc.expr.ir import Span
from monoc.graph.model import LayerGraph
from monoc.schedule.formula import Formula
from monoc.schedule.model import Carried, StageShape
from monoc.skeletons.base import SkeletonParams
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.program import Program

__all__ = ["FusedStage", "Layer", "Pass", "PassError", "run_passes"]


class PassError(ValueError):
    """The layer cannot be compiled: the message names the pass, the statement and what would help; ``span``: where the
    spec says it; ``remedy``: what to change, where the message does not say it."""

    def __init__(self, message: str, span: Span | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.span, self.remedy = span, remedy

    def __str__(self) -> str:
        at = "" if self.span is None else f"{self.span.file}:{self.span.line}:{self.span.column}: "
        return f"{at}{self.args[0]}"


@dataclass(frozen=True)
class FusedStage:
    """Operations that became one skeleton's stage. ``operations``: their names; ``reach``: for a region whose units are
    column slices, how many columns a unit of it is (a formula), so that readers of other widths wait for the right
    ones.
    """

    name: str
    skeleton: str
    params: SkeletonParams
    shape: StageShape
    operations: tuple[str, ...]
    guard: BuildExpr
    statements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """``stages`` and ``carried`` by launch name; empty before the fuse pass. ``properties``: numbers of the stages that
    get a name in the plan."""

    program: Program
    graphs: tuple[LayerGraph, ...]
    stages: Mapping[str, tuple[FusedStage, ...]] = field(default_factory=dict)
    carried: Mapping[str, tuple[Carried, ...]] = field(default_factory=dict)
    properties: tuple[tuple[str, Formula], ...] = ()

    def with_graphs(self, graphs: Iterable[LayerGraph]) -> Layer:
        """The same layer with other graphs."""
        return replace(self, graphs=tuple(graphs))


class Pass(Protocol):
    """A rewrite of a layer: a frozen dataclass with a kebab-case ``name``."""

    @property
    def name(self) -> str:
        """The pass's name, as messages and ``docs/schedule.md`` have it."""

    def run(self, layer: Layer) -> Layer:
        """The layer rewritten. Raises :class:`PassError`."""


def run_passes(layer: Layer, passes: Iterable[Pass]) -> Layer:
    """``layer`` through ``passes``, verified after each. Raises :class:`PassError`."""
    for step in passes:
        layer = step.run(layer)
        _verify(layer, step.name)
    return layer


def _verify(layer: Layer, after: str) -> None:
    """Graphs are acyclic and closed; every operation is in one stage at most."""
    for graph in layer.graphs:
        graph.topological()
        made = {v for op in graph.operations for v in op.writes}
        for value, view in graph.views.items():
            if graph.base(value) not in made and graph.base(value) not in graph.inputs():
                raise PassError(f"{after}: {value} is a part of {view.base}, which launch {graph.launch} lost")
        owner: dict[str, str] = {}
        for stage in layer.stages.get(graph.launch, ()):
            for name in stage.operations:
                if name in owner:
                    raise PassError(f"{after}: {name} went into stage {owner[name]} and into stage {stage.name}")
                owner[name] = stage.name
        if layer.stages:
            for op in graph.operations:
                if op.name not in owner:
                    raise PassError(f"{after}: launch {graph.launch}: no stage computes {op.name} ({op.kind})", op.span)
