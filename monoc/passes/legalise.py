"""legalise: sizes the stages can take, in every build.

Skeletons work in tiles: 16 weight rows, groups of 32 values, blocks of 64 record columns. A size that does not fit is
refused here, with the statement it belongs to, before anything is fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monoc.expr.ir import Binary, Expr
from monoc.graph.model import LayerGraph, Operation
from monoc.passes.knobs import SLICE_COLUMNS, SPLIT_K
from monoc.passes.layer import Layer, PassError
from monoc.passes.patterns import two_bf16_parts
from monoc.spec.buildexpr import BinOp, BuildBinary, BuildExpr
from monoc.spec.program import OpStatement, Program

__all__ = ["LEGAL", "Legalise", "Requirement"]


@dataclass(frozen=True)
class Requirement:
    """Axis ``axis`` of operand or result ``of`` of operations ``kind`` is a multiple of ``multiple``, because
    ``why``."""

    kind: str
    of: str
    axis: int
    multiple: int
    why: str


_COLUMNS = int(SLICE_COLUMNS)
_WIDEST_HEAD = 512

LEGAL: tuple[Requirement, ...] = (
    Requirement("linear", "w", 0, 16, "a task takes 16 weight rows"),
    Requirement("linear", "w", 1, 32, "a scale covers 32 columns"),
    Requirement("grouped_linear", "x", 2, 32, "a scale covers 32 columns"),
    Requirement("grouped_linear", "result", 2, 32, "a task takes the 32 rows of one group of its result"),
    Requirement("expert_linear", "x", -1, 32, "a scale covers 32 columns"),
    Requirement("mxfp8", "x", -1, 32, "a code covers 32 columns"),
    Requirement("rope", "table", 1, 2, "columns turn in pairs"),
    Requirement("kv_insert", "x", 1, 64, "a record has a code for 64 columns"),
    Requirement("attend", "q", 2, 64, "a record has a code for 64 columns"),
    Requirement("push", "x", -1, _COLUMNS, f"a slice is {_COLUMNS} columns"),
    Requirement("rank_sum", "result", -1, _COLUMNS, f"a slice is {_COLUMNS} columns"),
)


@dataclass(frozen=True)
class Legalise:
    """Refuses sizes the skeletons' tiles cannot take in some build."""

    name: str = "legalise"

    def run(self, layer: Layer) -> Layer:
        program = layer.program
        sizes = _Sizes(program)
        for graph in layer.graphs:
            for op in graph.operations:
                for size, multiple, what, why in (*_required(program, graph, op), *_owned(program, graph, op)):
                    wrong = sizes.not_multiple(size, multiple)
                    if wrong is not None:
                        raise PassError(
                            f"{op.name} ({op.kind}): {what}, {size} = {wrong}, has to be a multiple of {multiple}: "
                            f"{why}",
                            op.span,
                        )
                if op.kind == "attend":
                    head = graph.types[op.reads[0]].shape[2]
                    wrong = sizes.no_head(head)
                    if wrong is not None:
                        raise PassError(
                            f"{op.name} ({op.kind}): a head of {head} = {wrong} values has to be a power of two up to "
                            f"{_WIDEST_HEAD}: lanes hold equal parts of one, which lie together in registers",
                            op.span,
                        )
        return layer


class _Sizes:
    """Values of sizes over all builds, at one step width: no size of a stage's tiles depends on it."""

    def __init__(self, program: Program) -> None:
        tokens = next(p.values[0] for p in program.space.params if p.name == "tokens")
        self._environments = [program.environment(b) for b in program.space.builds(tokens=tokens)]

    def not_multiple(self, size: BuildExpr, multiple: int) -> int | None:
        """A value of ``size`` that is no multiple, None if all are."""
        return next((v for v in self._values(size) if v % multiple), None)

    def no_head(self, size: BuildExpr) -> int | None:
        """A value of ``size`` that attention's heads cannot have, None if they can have all."""
        return next((v for v in self._values(size) if v & (v - 1) or v > _WIDEST_HEAD), None)

    def _values(self, size: BuildExpr) -> Iterator[int]:
        return (size.evaluate(environment) for environment in self._environments)


def _required(program: Program, graph: LayerGraph, op: Operation) -> Iterator[tuple[BuildExpr, int, str, str]]:
    for rule in LEGAL:
        if rule.kind != op.kind:
            continue
        value = _value(op, rule.of)
        # Rows of a plain bf16 weight (a router's) are masked, not tiled.
        tiled = rule.of != "w" or rule.axis != 0 or (value is not None and graph.types[value].block is not None)
        if value is not None and value in graph.types and tiled:
            size = graph.types[value].shape[rule.axis]
            yield size, rule.multiple, f"axis {rule.axis % len(graph.types[value].shape)} of {value}", rule.why
    if op.kind == "linear" and _is_split(graph, op):
        k = graph.types[op.reads[1]].shape[1]
        yield k, 32 * SPLIT_K, f"the depth of {op.reads[1]}", f"K is split into {SPLIT_K} parts of whole groups of 32"
    if op.kind == "reduce" and len(op.map.reductions) == 1 and len(op.map.reductions[0].over) == 2:
        mixed = [v for v in op.reads if len(graph.types[v].shape) == 3]
        if mixed and any(two_bf16_parts(x) for x in _factors(op)):
            yield (
                graph.types[mixed[0]].shape[2],
                _COLUMNS,
                f"the columns of {mixed[0]}",
                f"a slice is {_COLUMNS} columns",
            )
    if op.kind == "expert_linear" and isinstance(op.statement, OpStatement):
        weight = op.statement.operand("w")
        if weight is not None and program.tensor[weight].interleave is not None:
            k = graph.types[weight].shape[-1]
            yield k, 256, f"the depth of {weight}", "gate and up are multiplied in pairs of 128 columns"
    if op.kind == "kv_insert" and isinstance(op.statement, OpStatement):
        rope = op.statement.attribute("rope")
        if isinstance(rope, BuildExpr):
            nope = BuildBinary(BinOp.SUB, graph.types[op.reads[1]].shape[1], rope)
            yield nope, 64, f"the columns of {op.reads[1]} that are not turned", "a record has a code for 64 of them"


def _owned(program: Program, graph: LayerGraph, op: Operation) -> Iterator[tuple[BuildExpr, int, str, str]]:
    """On two hops a rank owns whole slices of a sum."""
    if op.kind == "rank_sum" and program.schedule.two_hop is not None:
        value = op.writes[0]
        for tp in next(p.values for p in program.space.params if p.name == "tp"):
            why = f"on two hops each of {tp} ranks owns whole slices of {_COLUMNS} columns"
            yield graph.types[value].shape[-1], _COLUMNS * tp, f"the columns of {value}", why


def _factors(op: Operation) -> tuple[Expr, ...]:
    body = op.map.reductions[0].body
    return (body.a, body.b) if isinstance(body, Binary) else ()


def _is_split(graph: LayerGraph, op: Operation) -> bool:
    """Whether norms of parts of the result follow, so that K is split (monoc/passes/rules/linear.py)."""
    rounded = graph.consumers(op.writes[0])
    return any(len(graph.consumers(v)) > 1 for r in rounded for v in r.writes)


def _value(op: Operation, of: str) -> str | None:
    if of == "result":
        return op.writes[0]
    if isinstance(op.statement, OpStatement) and op.kind == op.statement.op:
        return op.statement.operand(of)
    return op.reads[0]
