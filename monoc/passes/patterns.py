"""Shapes of expressions the fuse rules look for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from monoc.expr.ir import Access, Binary, BinaryOp, DType, Expr, Reduce, ReduceOp, Round, walk
from monoc.graph.model import Operation

__all__ = ["is_copy", "largest", "only_reads", "rounds", "squared", "swap", "two_bf16_parts"]


def is_copy(op: Operation) -> bool:
    """Whether the operation passes a value on as it is."""
    return op.kind == "map" and isinstance(op.map.expr, Access)


def rounds(op: Operation, value: str) -> bool:
    """Whether the operation is ``bf16(value[...])`` and nothing else."""
    if op.kind != "map":
        return False
    expr = op.map.expr
    return (
        isinstance(expr, Round) and expr.dtype is DType.BF16 and isinstance(expr.x, Access) and expr.x.tensor == value
    )


def squared(op: Operation) -> tuple[str, int] | None:
    """(value, axes) if the operation is ``sum of value * value`` over so many axes."""
    expr = op.map.expr if op.kind == "reduce" else None
    if not (isinstance(expr, Reduce) and expr.op is ReduceOp.SUM):
        return None
    body = expr.body
    if isinstance(body, Binary) and body.op is BinaryOp.MUL and body.a == body.b and isinstance(body.a, Access):
        return body.a.tensor, len(expr.over)
    return None


def two_bf16_parts(expr: Expr) -> Access | None:
    """w of ``bf16(w) + bf16(w - bf16(w))``: an fp32 weight as two bf16 ones."""
    w = next((n for n in walk(expr) if isinstance(n, Access)), None)
    if w is None:
        return None
    high = Round(DType.BF16, w)
    low = Round(DType.BF16, Binary(BinaryOp.SUB, w, high))
    return w if expr == Binary(BinaryOp.ADD, high, low) else None


def only_reads(expr: Expr, tensor: str) -> bool:
    """Whether ``expr`` reads ``tensor`` and nothing else."""
    return {n.tensor for n in walk(expr) if isinstance(n, Access)} == {tensor}


def largest(expr: Expr, keep: Callable[[Expr], bool]) -> Expr | None:
    """The outermost subexpression ``keep`` accepts."""
    return next((n for n in walk(expr) if keep(n)), None)


def swap(expr: Expr, old: Expr, new: Expr) -> Expr:
    """``expr`` with every ``old`` in it replaced by ``new``."""
    if expr == old:
        return new
    changes: dict[str, Any] = {
        f.name: swap(getattr(expr, f.name), old, new) for f in fields(expr) if isinstance(getattr(expr, f.name), Expr)
    }
    return replace(expr, **changes) if changes else expr
