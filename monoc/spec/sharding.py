"""Sharding of index notation: which index is split over the ranks, and whether the value is a partial sum.

A partial sum may be rounded, negated, scaled and added to another: what is linear in it. Anything else would
compute on one rank's share as if it were the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from monoc.diagnostics import Code, Diagnostics
from monoc.expr.ir import (
    Access,
    Binary,
    BinaryOp,
    Compare,
    Const,
    Expr,
    Fma,
    IndexVar,
    Local,
    Reduce,
    ReduceOp,
    Round,
    Select,
    Span,
    Unary,
    UnaryOp,
)
from monoc.spec.program import REPLICATED, Sharding, ShardingKind, ValueType

__all__ = ["map_sharding"]

_HELP = "add up the ranks first: `all_reduce(...)`"


@dataclass
class _Walk:
    types: Callable[[str], ValueType]
    names: Mapping[str, str]  # value -> the name it is written as
    diagnostics: Diagnostics
    span: Span
    split: dict[str, tuple[bool, str]] = field(default_factory=dict)  # index -> split?, first seen in
    failed: bool = False

    def error(self, code: Code, message: str, span: Span | None, remedy: str | None) -> None:
        if not self.failed:  # the first one says it
            self.diagnostics.error(code, message, span or self.span, remedy)
        self.failed = True

    def partial(self, e: Expr) -> bool:
        """Whether ``e`` is a partial sum; reports uses that are not linear in one."""
        match e:
            case Const() | Local():
                return False
            case Access():
                return self._access(e)
            case Round():
                return self.partial(e.x)
            case Unary():
                partial = self.partial(e.x)
                return self._linear(partial, e, f"{e.op} of") if e.op is not UnaryOp.NEG else partial
            case Binary():
                return self._binary(e)
            case Fma():
                a, b, c = self.partial(e.a), self.partial(e.b), self.partial(e.c)
                if a and b:
                    return self._linear(True, e, "a product of")
                return self._sum(a or b, c, e)
            case Compare():
                return self._linear(self.partial(e.a) | self.partial(e.b), e, "a comparison of")
            case Select():
                chosen = self.partial(e.condition), self.partial(e.a) | self.partial(e.b)
                return self._linear(any(chosen), e, "a choice between")
            case Reduce():
                return self._reduce(e)

    def _access(self, e: Access) -> bool:
        t = self.types(e.tensor)
        shown = self.names.get(e.tensor, e.tensor)
        for axis, term in enumerate(e.index):
            on_axis = t.sharding.kind is ShardingKind.SPLIT and t.sharding.axis == axis
            if isinstance(term, IndexVar):
                before = self.split.setdefault(term.name, (on_axis, shown))
                if before[0] is not on_axis:
                    self.error(
                        Code.SHARDING,
                        f"index `{term.name}` runs over a rank's share in `{shown if on_axis else before[1]}` "
                        f"but over the whole in `{before[1] if on_axis else shown}`",
                        e.span,
                        "shard both tensors alike",
                    )
            elif on_axis:
                self.error(
                    Code.SHARDING,
                    f"axis {axis + 1} of `{shown}` is split over the ranks",
                    e.span,
                    "index it with a plain index variable",
                )
        return t.sharding.kind is ShardingKind.PARTIAL

    def _binary(self, e: Binary) -> bool:
        a, b = self.partial(e.a), self.partial(e.b)
        match e.op:
            case BinaryOp.ADD | BinaryOp.SUB:
                return self._sum(a, b, e)
            case BinaryOp.MUL if not (a and b):
                return a or b
            case BinaryOp.DIV if not b:
                return a
            case _:
                return self._linear(a or b, e, f"{e.op} of")

    def _sum(self, a: bool, b: bool, e: Expr) -> bool:
        if a is not b:
            self.error(
                Code.PARTIAL, "a partial sum plus a whole value: the ranks' sum would count it tp times", e.span, _HELP
            )
        return a

    def _linear(self, partial: bool, e: Expr, what: str) -> bool:
        if partial:
            self.error(Code.PARTIAL, f"{what} a partial sum over the ranks, as if it were whole", e.span, _HELP)
        return False

    def _reduce(self, e: Reduce) -> bool:
        partial = self.partial(e.body)
        split = [v for v in e.over if self.split.get(v, (False, ""))[0]]
        if not split:
            return partial if e.op is not ReduceOp.MAX else self._linear(partial, e, "the maximum of")
        if e.op is not ReduceOp.SUM:
            self.error(
                Code.SHARDING,
                f"{e.op} over `{split[0]}`, of which each rank holds its share only",
                e.span,
                "only `sum` goes over a split index; its result is a partial sum",
            )
        if partial:
            self.error(Code.PARTIAL, "a sum over a split index of a partial sum", e.span, _HELP)
        return True


def map_sharding(
    expr: Expr,
    index: tuple[str, ...],
    types: Callable[[str], ValueType],
    names: Mapping[str, str],
    diagnostics: Diagnostics,
    span: Span,
) -> Sharding | None:
    """Sharding of ``result[index] = expr``; None where it has none (reported)."""
    walk = _Walk(types, names, diagnostics, span)
    partial = walk.partial(expr)
    split = [axis for axis, v in enumerate(index) if walk.split.get(v, (False, ""))[0]]
    if len(split) > 1 or (split and partial):
        walk.error(Code.SHARDING, "the result would be split over the ranks twice", span, _HELP)
    if walk.failed:
        return None
    if partial:
        return Sharding(ShardingKind.PARTIAL)
    return Sharding(ShardingKind.SPLIT, split[0]) if split else REPLICATED
