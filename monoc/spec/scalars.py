"""Index notation: expression syntax -> the expression IR, with index ranges, bounds and element types checked."""

from __future__ import annotations

from collections.abc import Mapping
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
    IndexTerm,
    Local,
    Reduce,
    ReduceOp,
    Round,
    Select,
    Span,
    Unary,
    UnaryOp,
)
from monoc.spec.ast import Call, FnDef, Index, Name, Node, Number, Op, ReduceNode
from monoc.spec.buildexpr import BuildName
from monoc.spec.builds import Samples
from monoc.spec.constants import FoldError, fold, round_f32
from monoc.spec.indices import IndexScope, Indices, Lookup, UnloweredError
from monoc.spec.names import NameKind, Names
from monoc.spec.program import ScalarFunction, ValueType

__all__ = ["SCALAR_FUNCTIONS", "Scalars"]

_UNARY = {op.value: op for op in UnaryOp if op is not UnaryOp.NEG}
_COMPARE = {"<": CompareOp.LT, "<=": CompareOp.LE, ">": CompareOp.GT, ">=": CompareOp.GE, "==": CompareOp.EQ,
            "!=": CompareOp.NE}  # fmt: skip
_BINARY = {"+": BinaryOp.ADD, "-": BinaryOp.SUB, "*": BinaryOp.MUL, "/": BinaryOp.DIV}
_ARITY = {"fma": 3, "select": 3, "clamp": 3, "bf16": 1, "extent": 1, "min": 2, "max": 2} | dict.fromkeys(_UNARY, 1)
SCALAR_FUNCTIONS = frozenset(_ARITY)


@dataclass
class Scalars:
    """Lowers the expressions of one run. ``value(ident span name)`` resolves a name to a value and its type."""

    names: Names
    fns: Mapping[str, FnDef]
    samples: Samples
    diagnostics: Diagnostics
    indices: Indices = field(init=False)
    _expanding: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.indices = Indices(self.names, self.samples, self.diagnostics)

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
            return Fraction(self.indices.fixed(BuildName(node.name), node.span))
        if node.name in scope.extents:
            self._fail(Code.EXPRESSION, f"index `{node.name}` is no value", node.span, "use it inside `[...]`")
        if declared is not None and declared.kind in (NameKind.TENSOR, NameKind.SCALE):
            self._fail(Code.INDEX, f"`{node.name}` is a tensor", node.span, f"index it: `{node.name}[...]`")
        known = [*self.names.of(NameKind.CONSTANT, NameKind.DIM), *(params or {})]
        self.names.unknown(node.name, node.span, "name", known)
        raise UnloweredError

    def _access(self, node: Index, scope: IndexScope, value: Lookup) -> Expr:
        name, t = value(node.name.name, node.name.span)
        if t.dtype not in (DType.F32, DType.BF16) or t.block is not None:
            kind = "MXFP8" if t.block is not None else t.dtype.value
            self._fail(Code.DTYPE, f"`{node.name.name}` is {kind}", node.span, "arithmetic reads f32 and bf16 elements")
        index: list[IndexTerm] = []
        for axis, term in enumerate(node.terms):
            lowered = self.indices.term(term, scope)
            self.indices.bounds(lowered, t.shape[axis], node, term.span, scope)
            index.append(lowered)
        return Access(name, tuple(index), span=node.span)

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
                return Binary(BinaryOp.MAX, Binary(BinaryOp.MIN, args[0], args[2], span=at), args[1], span=at)
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
        return Fraction(self.indices.fixed(size, node.span))

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
                Code.ARGUMENTS,
                f"`{name}` takes {counted(len(fn.params), 'argument')}, {len(node.args)} given",
                node.span,
                None,
                Note("it is defined", fn.name.span),
            )
        args = {p.name: self.lower(a, scope, value, params) for p, a in zip(fn.params, node.args, strict=True)}
        self._expanding.append(name)
        try:
            return self.lower(fn.body, scope, value, args)
        finally:
            self._expanding.pop()

    def _fail(self, code: Code, message: str, span: Span, remedy: str | None, note: Note | None = None) -> NoReturn:
        self.diagnostics.error(code, message, span, remedy, note)
        raise UnloweredError
