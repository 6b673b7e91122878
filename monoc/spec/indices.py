"""Index variables: their ranges, the affine terms they form, bounds of accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from monoc.diagnostics import Code, Diagnostics, Note, counted
from monoc.expr.ir import IndexConst, IndexSum, IndexTerm, IndexVar, Span
from monoc.spec.ast import Axis, Index, Name, Node, Number, Op, ReduceNode
from monoc.spec.buildexpr import BuildAny, BuildExpr, BuildName
from monoc.spec.builds import Samples
from monoc.spec.names import NameKind, Names
from monoc.spec.program import ValueType

__all__ = ["IndexScope", "Indices", "Lookup", "UnloweredError"]

Lookup = Callable[[str, Span], tuple[str, ValueType]]  # a name as written -> the value's full name and type


class UnloweredError(Exception):
    """The expression has no meaning; why is reported."""


@dataclass
class IndexScope:
    """Index variables of one statement: extent (None until an access tells), where it was learnt, how it is said."""

    extents: dict[str, BuildExpr | None] = field(default_factory=dict)
    learnt: dict[str, tuple[Span, str]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)  # extent given in the statement: accesses may be longer


@dataclass
class Indices:
    """Reads index notation's indices for :class:`monoc.spec.scalars.Scalars`."""

    names: Names
    samples: Samples
    diagnostics: Diagnostics

    # ---- index variables

    def declare(self, axes: tuple[Axis, ...], scope: IndexScope) -> tuple[str, ...]:
        """Enter the axes' variables. Raises :class:`UnloweredError` on a variable declared twice."""
        for axis in axes:
            name = axis.name.name
            if name in scope.extents or self.names.table.get(name) is not None:
                declared = self.names.table.get(name)
                what = f"a {declared.kind}" if declared else "already an index here"
                self._fail(Code.INDEX, f"`{name}` is {what}", axis.name.span, "choose another letter")
            scope.extents[name] = None
            if axis.size is not None:
                size = self.names.build_expr(axis.size, "an extent")
                if size is None:
                    raise UnloweredError
                scope.extents[name] = size
                scope.learnt[name] = (axis.name.span, f"{size} here")
                scope.written.add(name)
        return tuple(a.name.name for a in axes)

    def learn(self, node: Node, scope: IndexScope, value: Lookup) -> None:
        """Find the extents of ``scope``'s variables from the accesses in ``node`` (reductions declare theirs)."""
        if isinstance(node, ReduceNode):
            self.declare(node.axes, scope)
        if isinstance(node, Index):
            _, t = value(node.name.name, node.name.span)
            if len(node.terms) != len(t.shape):
                self._fail(
                    Code.RANK,
                    f"`{node.name.name}` has {counted(len(t.shape), 'axis', 'axes')}, "
                    f"{counted(len(node.terms), 'index', 'indices')} given",
                    node.span,
                    f"its shape is [{', '.join(map(str, t.shape))}]",
                )
            for axis, term in enumerate(node.terms):
                if isinstance(term, Name) and term.name in scope.extents:
                    self._learn_one(term.name, t.shape[axis], node.name.name, term.span, scope)
            return
        for child in node.children():
            self.learn(child, scope, value)

    def _learn_one(self, var: str, size: BuildExpr, tensor: str, span: Span, scope: IndexScope) -> None:
        known = scope.extents[var]
        if isinstance(size, BuildAny):
            self._fail(Code.INDEX, f"index `{var}` runs over an axis of `{tensor}` only the host knows", span, None)
        if known is None:
            scope.extents[var] = size
            scope.learnt[var] = (span, f"{size} in `{tensor}`")
            return
        if not self.samples.known(known, size):
            return
        if var in scope.written:
            longer = all(a <= b for a, b in zip(self.samples.values(known), self.samples.values(size), strict=True))
        else:
            longer = self.samples.equal(known, size)
        if not longer:
            first, said = scope.learnt[var]
            self._fail(
                Code.SHAPE,
                f"index `{var}` runs over {said} but {size} in `{tensor}`: {self.samples.differing(known, size)}",
                span,
                f"index another axis, or give the range: `[{var}: n]`",
                Note(f"`{var}` got its range", first),
            )

    def term(self, node: Node, scope: IndexScope) -> IndexTerm:
        terms, offset = self._affine(node, scope)
        kept = tuple((v, f) for v, f in terms.items() if f)
        if not kept:
            return IndexConst(offset)
        if kept[0][1] == 1 and len(kept) == 1 and offset == 0:
            return IndexVar(kept[0][0])
        return IndexSum(kept, offset)

    def _affine(self, node: Node, scope: IndexScope) -> tuple[dict[str, int], int]:
        match node:
            case Number() if node.value.denominator == 1:
                return {}, int(node.value)
            case Name() if node.name in scope.extents:
                return {node.name: 1}, 0
            case Name() if (d := self.names.use(node.name)) is not None and d.kind in (NameKind.DIM, NameKind.PARAM):
                return {}, self.fixed(BuildName(node.name), node.span)
            case Name():
                self.names.unknown(node.name, node.span, "index", [*scope.extents, *self.names.of(NameKind.DIM)])
                raise UnloweredError
            case Op(op="+" | "-"):
                (a, x), (b, y) = (self._affine(n, scope) for n in node.args)
                sign = 1 if node.op == "+" else -1
                return {v: a.get(v, 0) + sign * b.get(v, 0) for v in [*a, *b]}, x + sign * y
            case Op(op="*"):
                (a, x), (b, y) = (self._affine(n, scope) for n in node.args)
                if not a or not b:
                    factor, vars_ = (x, b) if not a else (y, a)
                    return {v: f * factor for v, f in vars_.items()}, x * y
        self._fail(Code.INDEX, "an index is a sum of index variables times integers", node.span, "e.g. `8 + 4*r + s`")

    def bounds(self, term: IndexTerm, size: BuildExpr, node: Index, span: Span, scope: IndexScope) -> None:
        if isinstance(size, BuildAny):
            self._fail(Code.INDEX, f"an axis of `{node.name.name}` has a size only the host knows", span, None)
        parts: tuple[tuple[str, int], ...]
        match term:
            case IndexVar():
                parts, offset = ((term.name, 1),), 0
            case IndexConst():
                parts, offset = (), term.value
            case IndexSum():
                parts, offset = term.terms, term.offset
        low = high = [offset] * len(self.samples.builds)
        for var, factor in parts:
            extent = scope.extents[var]
            if extent is None:
                self._fail(
                    Code.INDEX,
                    f"nothing tells the range of index `{var}`",
                    span,
                    f"give it where it is declared: `{var}: n`",
                )
            if not self.samples.known(extent, size):
                return
            ends = [factor * (v - 1) for v in self.samples.values(extent)]
            low = [a + min(0, e) for a, e in zip(low, ends, strict=True)]
            high = [a + max(0, e) for a, e in zip(high, ends, strict=True)]
        if not self.samples.known(size):
            return
        for lo, hi, n in zip(low, high, self.samples.values(size), strict=True):
            if lo < 0 or hi >= n:
                self._fail(
                    Code.BOUNDS,
                    f"index {lo if lo < 0 else hi} is outside 0..{n - 1}, the axis `{size}` of `{node.name.name}`",
                    span,
                    "mind that indices start at 0",
                )

    def fixed(self, size: BuildExpr, span: Span) -> int:
        """``size``, which must be one number in all builds."""
        if not self.samples.known(size):
            raise UnloweredError
        values = set(self.samples.values(size))
        if len(values) != 1:
            listed = ", ".join(map(str, sorted(values)))
            self._fail(Code.EXPRESSION, f"`{size}` differs between builds ({listed})", span, "use a fixed dimension")
        return values.pop()

    def _fail(self, code: Code, message: str, span: Span, remedy: str | None, note: Note | None = None) -> NoReturn:
        self.diagnostics.error(code, message, span, remedy, note)
        raise UnloweredError
