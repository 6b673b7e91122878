"""shard-tp: an all-reduce becomes a push to every rank and a sum over ranks.

before:  attn = all_reduce(part)
after:   attn@ranks = push(part)       every rank's copy, by (source rank, token, column)
         attn = rank_sum(attn@ranks)   ranks added in order in fp32, rounded once

Every other value stays on its rank: the types have checked that a partial sum reaches nothing but an all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from monoc.graph.model import LayerGraph, Operation
from monoc.passes.layer import Layer, PassError
from monoc.spec.program import ShardingKind

__all__ = ["ShardTp", "ranks_of"]


def ranks_of(value: str) -> str:
    """The value every rank pushes its part of ``value`` into."""
    return f"{value}@ranks"


@dataclass(frozen=True)
class ShardTp:
    """``all_reduce`` into a push to every rank and a sum over the ranks."""

    name: str = "shard-tp"

    def run(self, layer: Layer) -> Layer:
        return layer.with_graphs(_sharded(graph) for graph in layer.graphs)


def _sharded(graph: LayerGraph) -> LayerGraph:
    operations: list[Operation] = []
    types = dict(graph.types)
    for op in graph.operations:
        if op.kind != "all_reduce":
            operations.append(op)
            continue
        (part,), (whole,) = op.reads, op.writes
        if types[part].sharding.kind is not ShardingKind.PARTIAL:
            raise PassError(f"shard-tp: {whole} adds up {part}, which is {types[part].sharding}, not a partial sum")
        between = ranks_of(whole)
        types[between] = types[part]
        operations.append(replace(op, name=between, kind="push", writes=(between,)))
        operations.append(replace(op, name=whole, kind="rank_sum", reads=(between,)))
    return replace(graph, operations=tuple(operations), types=types)
