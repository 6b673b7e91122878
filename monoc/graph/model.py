"""Typed operations of one launch and the values they hand each other; networkx does the graph, behind these types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import networkx as nx

from monoc.expr.ir import Span
from monoc.spec.buildexpr import BuildExpr, BuildInt
from monoc.spec.program import MapStatement, Statement, ValueType

__all__ = ["GraphError", "LayerGraph", "Operation", "View"]


class GraphError(ValueError):
    """The statements of a launch do not form a graph of values; the message names the value and both statements."""


ZERO = BuildInt(0)


@dataclass(frozen=True)
class Operation:
    """One statement as a node.

    ``name``: unique in the launch; ``kind``: ``map`` (one value an element), ``reduce`` (a map whose expression sums
    over an axis), or the structured operation's name; ``reads`` and ``writes``: values, in writing order. An operation
    that updates a tensor in place (a KV record) both reads and writes it.
    """

    name: str
    kind: str
    statement: Statement = field(compare=False)
    guard: BuildExpr
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def span(self) -> Span | None:
        return self.statement.span

    @property
    def map(self) -> MapStatement:
        """The statement of a map or a reduction. Raises :class:`TypeError` for another kind."""
        if not isinstance(self.statement, MapStatement):
            raise TypeError(f"{self.name} is a {self.kind}, not a map")
        return self.statement


@dataclass(frozen=True)
class View:
    """Columns ``offset`` .. of value ``base``, or its axes grouped otherwise: no operation, the same bits."""

    base: str
    offset: BuildExpr = ZERO


@dataclass(frozen=True)
class LayerGraph:
    """The operations of launch ``launch`` in writing order; ``types``: the type of every value they touch;
    ``outputs``: the values that leave the launch (outputs, what a later launch or the host reads);
    ``views``: values that are parts of others, by name."""

    launch: str
    operations: tuple[Operation, ...]
    types: Mapping[str, ValueType] = field(compare=False)
    outputs: tuple[str, ...] = ()
    views: Mapping[str, View] = field(default_factory=dict, compare=False)

    def base(self, value: str) -> str:
        """The value ``value`` is a part of, through all views."""
        while value in self.views:
            value = self.views[value].base
        return value

    @cached_property
    def _graph(self) -> Any:
        graph: Any = nx.DiGraph()
        graph.add_nodes_from(op.name for op in self.operations)
        for op in self.operations:
            for value in op.reads:
                for producer in self.producers(value):
                    if producer.name != op.name:
                        graph.add_edge(producer.name, op.name, value=value)
        return graph

    @cached_property
    def by_name(self) -> Mapping[str, Operation]:
        return {op.name: op for op in self.operations}

    @cached_property
    def _producers(self) -> Mapping[str, tuple[Operation, ...]]:
        found: dict[str, tuple[Operation, ...]] = {}
        for op in self.operations:
            for value in op.writes:
                found[value] = (*found.get(value, ()), op)
        return found

    @cached_property
    def _consumers(self) -> Mapping[str, tuple[Operation, ...]]:
        found: dict[str, tuple[Operation, ...]] = {}
        for op in self.operations:
            for whole in dict.fromkeys(self.base(value) for value in op.reads):
                found[whole] = (*found.get(whole, ()), op)
        return found

    def producers(self, value: str) -> tuple[Operation, ...]:
        """The operations that write ``value``: several only where their guards exclude each other."""
        return self._producers.get(self.base(value), ())

    def consumers(self, value: str) -> tuple[Operation, ...]:
        """The operations that read ``value`` or a part of it."""
        return self._consumers.get(self.base(value), ())

    def inputs(self) -> tuple[str, ...]:
        """Values no operation of the launch writes, in first-use order."""
        return tuple(dict.fromkeys(v for op in self.operations for v in op.reads if not self.producers(v)))

    def edges(self) -> Iterator[tuple[Operation, Operation, str]]:
        """(producer, consumer, value), in program order of the consumers."""
        for op in self.operations:
            for value in op.reads:
                for producer in self.producers(value):
                    if producer.name != op.name:
                        yield producer, op, value

    def topological(self) -> tuple[Operation, ...]:
        """Producers before consumers, otherwise in writing order. Raises :class:`GraphError` on a cycle."""
        order = {op.name: k for k, op in enumerate(self.operations)}
        try:
            names = list(nx.lexicographical_topological_sort(self._graph, key=order.__getitem__))
        except nx.NetworkXUnfeasible:
            a, b = nx.find_cycle(self._graph)[0]
            raise GraphError(f"launch {self.launch}: {a} and {b} each need the other's value") from None
        return tuple(self.by_name[n] for n in names)
