"""resolve-views: operations that only re-group axes become views of their operand.

before:  q_raw, kv_raw = split(qkv, [q_rank, head])      after:  q_raw = qkv[:, 0 ..],  kv_raw = qkv[:, q_rank ..]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from monoc.graph.model import LayerGraph, Operation, View
from monoc.passes.layer import Layer, PassError
from monoc.spec.buildexpr import BinOp, BuildBinary, BuildExpr, BuildInt
from monoc.spec.program import OpStatement, ValueType

__all__ = ["ResolveViews"]

_VIEWS = ("split", "group", "flatten")


@dataclass(frozen=True)
class ResolveViews:
    """Splits, groups and flattenings into views: parts of values, no operations."""

    name: str = "resolve-views"

    def run(self, layer: Layer) -> Layer:
        return layer.with_graphs(_resolved(graph) for graph in layer.graphs)


def _resolved(graph: LayerGraph) -> LayerGraph:
    views = dict(graph.views)
    for op in graph.operations:
        if op.kind in _VIEWS:
            views |= _views(graph.types, op)
    kept = tuple(op for op in graph.operations if op.kind not in _VIEWS)
    for value in graph.outputs:
        if value in views:
            raise PassError(f"resolve-views: {value} leaves launch {graph.launch} as a part of {views[value].base}")
    return replace(graph, operations=kept, views=views)


def _views(types: Mapping[str, ValueType], op: Operation) -> dict[str, View]:
    statement = op.statement
    assert isinstance(statement, OpStatement)
    base = statement.operands[0]
    if op.kind != "split":
        return {op.writes[0]: View(base)}
    found: dict[str, View] = {}
    offset: BuildExpr = BuildInt(0)
    for value in op.writes:
        found[value] = View(base, offset)
        width = types[value].shape[-1]
        offset = width if offset == BuildInt(0) else BuildBinary(BinOp.ADD, offset, width)
    return found
