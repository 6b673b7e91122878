"""Index notation: expression syntax -> the expression IR, with index ranges, bounds and element types checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NoReturn

from monoc.diagnostics import Code, Diagnostics, Note, counted, quoted, suggestion
from monoc.expr.ir import (
    Access,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    DType,
    Expr,
    Fma,
    IndexConst,
    IndexSum,
    IndexTerm,
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
from monoc.spec.ast import Axis, Call, FnDef, Index, Name, Node, Number, Op, ReduceNode
from monoc.spec.buildexpr import BuildAny, BuildExpr, BuildName
from monoc.spec.builds import Samples
from monoc.spec.constants import FoldError, fold, round_f32
from monoc.spec.names import NameKind, Names
from monoc.spec.program import ScalarFunction, ValueType

__all__ = ["SCALAR_FUNCTIONS", "IndexScope", "Lookup", "Scalars", "UnloweredError"]

_UNARY = {op.value: op for op in UnaryOp if op is not UnaryOp.NEG}
_COMPARE = {"<": CompareOp.LT, "<=": CompareOp.LE, ">": CompareOp.GT, ">=": CompareOp.GE, "==": CompareOp.EQ,
            "!=": CompareOp.NE}  # fmt: skip
_BINARY = {"+": BinaryOp.ADD, "-": BinaryOp.SUB, "*": BinaryOp.MUL, "/": BinaryOp.DIV}
_ARITY = {"fma": 3, "select": 3, "clamp": 3, "bf16": 1, "extent": 1, "min": 2, "max": 2} | dict.fromkeys(_UNARY, 1)
SCALAR_FUNCTIONS = frozenset(_ARITY)


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
class Scalars:
    """Lowers the expressions of one run. ``value(ident span name)`` resolves a name to a value and its type."""

    names: Names
    fns: Mapping[str, FnDef]
    samples: Samples
    diagnostics: Diagnostics
    _expanding: list[str] = field(default_factory=list)

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

    # ---- expressions

    def lower(
        self,
        node: Node,
        scope: IndexScope,
        value: Lookup,
        params: Mapping[str, Fraction | Expr] | None = None,
    ) -> Fraction | Expr:
        """``node`` as IR, or as an exact constant. ``params``: a scalar function's arguments (it sees no tensors)."""

        def go(n: Node) -> Fraction | Expr:
            return self.lower(n, scope, value, params)

        match node:
            case Number():
                return node.value
            case Name():
                return self._name(node, scope, params)
            case Index():
                if params is not None:
                    self._fail(Code.EXPRESSION, "a scalar function reads no tensors", node.span, "pass the element in")
                return self._access(node, scope, value)
            case Op(op="neg"):
                x = go(node.args[0])
                return -x if isinstance(x, Fraction) else Unary(UnaryOp.NEG, x, span=node.span)
            case Op() if node.op in _BINARY or node.op == "**":
                return self._arithmetic(node, go(node.args[0]), go(node.args[1]))
            case Op(op="@"):
                self._fail(
                    Code.EXPRESSION, "`@` multiplies whole tensors, not elements", node.span, "write `y = x @ w`"
                )
            case Op():
                self._fail(Code.EXPRESSION, f"`{node.op}` is no value", node.span, "choose with `select(a < b, x, y)`")
            case ReduceNode():
                body = self.expr(go(node.body), node.body.span)
                rounding = self._rounding(node)
                return Reduce(ReduceOp(node.op), tuple(a.name.name for a in node.axes), body, rounding, span=node.span)
            case Call():
                return self._call(node, scope, value, params)
            case _:
                self._fail(Code.EXPRESSION, "a list is no value", node.span, None)

    def expr(self, x: Fraction | Expr, span: Span) -> Expr:
        """``x`` as IR: constants are rounded here, once."""
        if not isinstance(x, Fraction):
            return x
        try:
            return Const(round_f32(x), span=span)
        except FoldError as e:
            self._fail(Code.EXPRESSION, str(e), span, "fp32 goes from 1e-45 to 3.4e38")

    def constant(self, node: Node, what: str) -> float | None:
        """``node`` as a constant rounded to fp32; None (reported) if it is none."""

        def no_value(name: str, span: Span) -> tuple[str, ValueType]:
            self._fail(Code.ATTRIBUTE, f"{what} is no constant", span, "constants, dimensions and numbers only")

        try:
            got = self.lower(node, IndexScope(), no_value)
            if not isinstance(got, Fraction):
                self._fail(
                    Code.ATTRIBUTE, f"{what} is no constant", node.span, "constants, dimensions and numbers only"
                )
            folded = self.expr(got, node.span)
        except UnloweredError:
            return None
        assert isinstance(folded, Const)
        return folded.value

    def function(self, fn: FnDef) -> ScalarFunction | None:
        """``fn`` over locals of its parameters' names; None (reported) where it is faulty."""

        def no_value(name: str, span: Span) -> tuple[str, ValueType]:
            self._fail(Code.EXPRESSION, "a scalar function reads no tensors", span, "pass the element in")

        params = {p.name: Local(p.name, span=p.span) for p in fn.params}
        self._expanding.append(fn.name.name)
        try:
            body = self.expr(self.lower(fn.body, IndexScope(), no_value, params), fn.body.span)
        except UnloweredError:
            return None
        finally:
            self._expanding.pop()
        return ScalarFunction(fn.name.name, tuple(params), body)

    def _name(self, node: Name, scope: IndexScope, params: Mapping[str, Fraction | Expr] | None) -> Fraction | Expr:
        if params is not None and node.name in params:
            return params[node.name]
        declared = self.names.use(node.name)
        if declared is not None and declared.kind is NameKind.CONSTANT and declared.value is not None:
            return declared.value
        if declared is not None and declared.kind in (NameKind.DIM, NameKind.PARAM):
            return Fraction(self._fixed(BuildName(node.name), node.span))
        if node.name in scope.extents:
            self._fail(Code.EXPRESSION, f"index `{node.name}` is no value", node.span, "use it inside `[...]`")
        if declared is not None and declared.kind in (NameKind.TENSOR, NameKind.SCALE):
            self._fail(Code.INDEX, f"`{node.name}` is a tensor", node.span, f"index it: `{node.name}[...]`")
        known = [*self.names.of(NameKind.CONSTANT, NameKind.DIM), *(params or {})]
        self.names.unknown(node.name, node.span, "name", known)
        raise UnloweredError

    def _fixed(self, size: BuildExpr, span: Span) -> int:
        """``size``, which must be one number in all builds."""
        if not self.samples.known(size):
            raise UnloweredError
        values = set(self.samples.values(size))
        if len(values) != 1:
            listed = ", ".join(map(str, sorted(values)))
            self._fail(Code.EXPRESSION, f"`{size}` differs between builds ({listed})", span, "use a fixed dimension")
        return values.pop()

    def _access(self, node: Index, scope: IndexScope, value: Lookup) -> Expr:
        name, t = value(node.name.name, node.name.span)
        if t.dtype not in (DType.F32, DType.BF16) or t.block is not None:
            kind = "MXFP8" if t.block is not None else t.dtype.value
            self._fail(Code.DTYPE, f"`{node.name.name}` is {kind}", node.span, "arithmetic reads f32 and bf16 elements")
        index: list[IndexTerm] = []
        for axis, term in enumerate(node.terms):
            lowered = self._index(term, scope)
            self._bounds(lowered, t.shape[axis], node, term.span, scope)
            index.append(lowered)
        return Access(name, tuple(index), span=node.span)

    def _index(self, node: Node, scope: IndexScope) -> IndexTerm:
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
                return {}, self._fixed(BuildName(node.name), node.span)
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

    def _bounds(self, term: IndexTerm, size: BuildExpr, node: Index, span: Span, scope: IndexScope) -> None:
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

    def _arithmetic(self, node: Op, a: Fraction | Expr, b: Fraction | Expr) -> Fraction | Expr:
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            try:
                return fold(node.op, (a, b))
            except FoldError as e:
                self._fail(Code.EXPRESSION, str(e), node.span, None)
        if node.op == "**":
            self._fail(Code.EXPRESSION, "`**` is for constants", node.span, "write the product, or exp2 and log2")
        return Binary(
            _BINARY[node.op], self.expr(a, node.args[0].span), self.expr(b, node.args[1].span), span=node.span
        )

    def _rounding(self, node: ReduceNode) -> DType | None:
        if node.rounding is None:
            return None
        if node.rounding.name != "bf16" or node.op != "ordered_sum":
            self._fail(
                Code.EXPRESSION, "only `ordered_sum<bf16>` rounds after every addition", node.rounding.span, None
            )
        return DType.BF16

    def _call(
        self,
        node: Call,
        scope: IndexScope,
        value: Lookup,
        params: Mapping[str, Fraction | Expr] | None,
    ) -> Fraction | Expr:
        name = node.function.name
        if node.keywords:
            self._fail(Code.ARGUMENTS, f"`{name}` takes no keywords", node.keywords[0][0].span, None)
        if name in self.fns:
            return self._expand(self.fns[name], node, scope, value, params)
        if name not in _ARITY:
            self._unknown_function(node)
        variadic = name in ("min", "max")
        if len(node.args) != _ARITY[name] and not (variadic and len(node.args) > 2):
            wants = "2 or more arguments" if variadic else counted(_ARITY[name], "argument")
            self._fail(Code.ARGUMENTS, f"`{name}` takes {wants}, {len(node.args)} given", node.span, None)
        if name == "extent":
            return self._extent(node.args[0], scope)
        if name == "select":
            return self._select(node, scope, value, params)
        args = [self.expr(self.lower(a, scope, value, params), a.span) for a in node.args]
        at = node.span
        match name:
            case "fma":
                return Fma(args[0], args[1], args[2], span=at)
            case "clamp":
                return Binary(BinaryOp.MIN, Binary(BinaryOp.MAX, args[0], args[1], span=at), args[2], span=at)
            case "bf16":
                return Round(DType.BF16, args[0], span=at)
            case "min" | "max":
                out = args[0]
                for x in args[1:]:
                    out = Binary(BinaryOp(name), out, x, span=at)
                return out
        return Unary(_UNARY[name], args[0], span=at)

    def _unknown_function(self, node: Call) -> NoReturn:
        from monoc.spec.optable import OPS

        name = node.function.name
        if name in self.names.faulty:
            raise UnloweredError
        if name in OPS:
            self._fail(
                Code.UNKNOWN_FUNCTION, f"`{name}` is an operation on whole tensors", node.function.span,
                f"give its result a name first: `y = {name}(...)`",
            )  # fmt: skip
        known = ", ".join(sorted(SCALAR_FUNCTIONS))
        near = [*SCALAR_FUNCTIONS, *OPS, *self.names.of(NameKind.FN, NameKind.DEF)]
        self._fail(
            Code.UNKNOWN_FUNCTION, f"unknown function {quoted(name)}", node.function.span,
            suggestion(name, near, f"there are {known} and the spec's `fn`s"),
        )  # fmt: skip

    def _extent(self, node: Node, scope: IndexScope) -> Fraction:
        if not isinstance(node, Name) or node.name not in scope.extents:
            self._fail(Code.ARGUMENTS, "`extent` takes an index variable", node.span, None)
        size = scope.extents[node.name]
        if size is None:
            self._fail(Code.INDEX, f"nothing tells the range of index `{node.name}`", node.span, None)
        return Fraction(self._fixed(size, node.span))

    def _select(
        self,
        node: Call,
        scope: IndexScope,
        value: Lookup,
        params: Mapping[str, Fraction | Expr] | None,
    ) -> Expr:
        condition = node.args[0]
        if not isinstance(condition, Op) or condition.op not in _COMPARE:
            self._fail(
                Code.ARGUMENTS, "`select` begins with a comparison", condition.span, "e.g. `select(x > 0, x, 0)`"
            )
        sides = [*condition.args, *node.args[1:]]
        a, b, x, y = (self.expr(self.lower(n, scope, value, params), n.span) for n in sides)
        test = Compare(_COMPARE[condition.op], a, b, span=condition.span)
        return Select(test, x, y, span=node.span)

    def _expand(
        self,
        fn: FnDef,
        node: Call,
        scope: IndexScope,
        value: Lookup,
        params: Mapping[str, Fraction | Expr] | None,
    ) -> Fraction | Expr:
        name = fn.name.name
        self.names.use(name)
        if name in self._expanding:
            self._fail(
                Code.RECURSION,
                f"function `{name}` calls itself",
                node.span,
                "write it out",
                Note("it is defined", fn.name.span),
            )
        if len(node.args) != len(fn.params):
            self._fail(
                Code.ARGUMENTS, f"`{name}` takes {counted(len(fn.params), 'argument')}, {len(node.args)} given", node.span, None,
                Note("it is defined", fn.name.span),
            )  # fmt: skip
        args = {p.name: self.lower(a, scope, value, params) for p, a in zip(fn.params, node.args, strict=True)}
        self._expanding.append(name)
        try:
            return self.lower(fn.body, scope, value, args)
        finally:
            self._expanding.pop()

    def _fail(self, code: Code, message: str, span: Span, remedy: str | None, note: Note | None = None) -> NoReturn:
        self.diagnostics.error(code, message, span, remedy, note)
        raise UnloweredError
