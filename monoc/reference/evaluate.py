"""Index notation in torch: an expression of monoc/expr/ir.py for every element of its result at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from monoc.expr.ir import (
    Access,
    Binary,
    Compare,
    Const,
    Expr,
    Fma,
    IndexConst,
    IndexTerm,
    IndexVar,
    Local,
    Reduce,
    ReduceOp,
    Round,
    Select,
    Unary,
)
from monoc.reference.arithmetic import Arithmetic

__all__ = ["evaluate_map", "evaluate_scalar", "pairwise_sum"]

Tensor = torch.Tensor
_AT_ONCE = 1 << 20  # elements of an expression: few enough for malloc to use the same pages again


def evaluate_map(
    expr: Expr,
    index: tuple[str, ...],
    extents: Mapping[str, int],
    values: Mapping[str, Tensor],
    arithmetic: Arithmetic,
    token: str | None = None,
) -> Tensor:
    """``result[index] = expr`` of shape ``[extents[i] for i in index]``.

    ``extents``: the range of every index variable, those of reductions included; ``values``: the tensors read, by name;
    ``token``: the variable that counts tokens.
    """
    if not index or math.prod(extents.values()) <= _AT_ONCE or arithmetic.rounded is not None:
        return _part(expr, index, extents, {}, values, arithmetic, token)
    over, count = index[0], extents[index[0]]
    step = max(1, count * _AT_ONCE // math.prod(extents.values()))
    parts = [
        _part(expr, index, {**extents, over: min(step, count - k)}, {over: k}, values, arithmetic, token)
        for k in range(0, count, step)
    ]
    return torch.cat(parts)


def _part(
    expr: Expr,
    index: tuple[str, ...],
    extents: Mapping[str, int],
    starts: Mapping[str, int],
    values: Mapping[str, Tensor],
    arithmetic: Arithmetic,
    token: str | None,
) -> Tensor:
    axes = {name: k for k, name in enumerate(extents)}
    found = _Evaluation(extents, axes, values, {}, arithmetic, starts, token).value(expr)
    whole = found.expand([extents[n] if n in index else 1 for n in extents])
    kept = [axes[n] for n in index]
    rest = [k for k in range(len(axes)) if k not in kept]
    return whole.permute([*kept, *rest]).reshape([extents[n] for n in index])


def evaluate_scalar(body: Expr, arguments: Mapping[str, Tensor], arithmetic: Arithmetic) -> Tensor:
    """A ``fn`` of the spec, elementwise: ``arguments`` are its parameters."""
    return _Evaluation({}, {}, {}, arguments, arithmetic).value(body)


@dataclass(frozen=True)
class _Evaluation:
    """Every value has one axis an index variable, in the order of ``extents``; of extent 1 where it does not vary.
    Index variables count from ``starts``, from zero where none is given."""

    extents: Mapping[str, int]
    axes: Mapping[str, int]
    values: Mapping[str, Tensor]
    locals: Mapping[str, Tensor]
    arithmetic: Arithmetic
    starts: Mapping[str, int] = field(default_factory=dict)
    token: str | None = None

    def value(self, expr: Expr) -> Tensor:
        a = self.arithmetic
        match expr:
            case Const(value=value):
                return a.constant(value).reshape([1] * len(self.axes))
            case Access(tensor=tensor, index=index):
                return self._access(self.values[tensor], index)
            case Local(name=name):
                return self.locals[name]
            case Unary(op=op, x=x):
                return a.unary(op, self.value(x))
            case Binary(op=op, a=left, b=right):
                return a.binary(op, self.value(left), self.value(right))
            case Fma():
                return a.fma(self.value(expr.a), self.value(expr.b), self.value(expr.c))
            case Round(dtype=dtype, x=x):
                return a.round(dtype, self.value(x))
            case Compare(op=op):
                return a.compare(op, self.value(expr.a), self.value(expr.b))
            case Select(condition=condition):
                return torch.where(self.value(condition), self.value(expr.a), self.value(expr.b))
            case Reduce():
                return self._reduce(expr)
        raise TypeError(f"not an expression: {expr!r}")

    def _access(self, tensor: Tensor, index: tuple[IndexTerm, ...]) -> Tensor:
        if not index:
            return self.arithmetic.of(tensor).reshape([1] * len(self.axes))
        return self.arithmetic.of(tensor[tuple(self._positions(term) for term in index)])

    def _positions(self, term: IndexTerm) -> Tensor:
        """The term's value for every element, on the axes of its variables."""
        if isinstance(term, IndexConst):
            return torch.tensor(term.value).reshape([1] * len(self.axes))
        terms, offset = ((((term.name, 1),), 0)) if isinstance(term, IndexVar) else (term.terms, term.offset)
        total = torch.tensor(offset).reshape([1] * len(self.axes))
        for name, factor in terms:
            total = total + factor * self._counted(name)
        return total

    def _counted(self, name: str) -> Tensor:
        """An index variable's values, on its axis."""
        shape = [1] * len(self.axes)
        shape[self.axes[name]] = self.extents[name]
        start = self.starts.get(name, 0)
        return torch.arange(start, start + self.extents[name]).reshape(shape)

    def _reduce(self, expr: Reduce) -> Tensor:
        body = self.value(expr.body)
        axes = tuple(self.axes[n] for n in expr.over)
        body = body.expand([self.extents[n] if n in expr.over else body.shape[k] for n, k in self.axes.items()])
        if expr.op is ReduceOp.SUM:
            reordered = self.arithmetic.reordered
            other = None if reordered is None or self.token is None else self._counted(self.token) >= reordered.first
            return self.arithmetic.sum(body, axes, other)
        if expr.op is ReduceOp.MAX:
            return body.amax(dim=axes, keepdim=True)
        terms = list(body.movedim(axes, tuple(range(len(axes)))).flatten(0, len(axes) - 1))
        total = self._ordered(terms, expr) if expr.op is ReduceOp.ORDERED_SUM else pairwise_sum(terms)
        shape = [1 if k in axes else n for k, n in enumerate(body.shape)]
        return total.reshape(shape)

    def _ordered(self, terms: list[Tensor], expr: Reduce) -> Tensor:
        total = terms[0]
        for term in terms[1:]:
            total = total + term
            if expr.rounding is not None:
                total = self.arithmetic.round(expr.rounding, total)
        return total


def pairwise_sum(terms: list[Tensor]) -> Tensor:
    """A balanced tree: neighbours are added, then the neighbouring sums; a last odd one moves up as it is."""
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]
