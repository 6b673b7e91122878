"""Resolution of a program text: definitions inlined, tensor expressions flattened, every statement typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

from monoc.diagnostics import Code, Diagnostics, Note, quoted, suggestion
from monoc.expr.ir import Access, DType, Expr, Reduce, Round, Span
from monoc.spec.ast import (
    AssignStatement,
    Axis,
    Call,
    Def,
    EffectStatement,
    FaultyStatement,
    FnDef,
    Ident,
    Index,
    IndexStatement,
    Name,
    Node,
    Number,
    Op,
    Return,
    StatementNode,
)
from monoc.spec.buildexpr import BuildExpr, conjunction, negation
from monoc.spec.builds import Samples
from monoc.spec.calls import OpCaller
from monoc.spec.elementwise import bind_constants, fill
from monoc.spec.indices import IndexScope, UnloweredError
from monoc.spec.inline import inline
from monoc.spec.names import NameKind, Names
from monoc.spec.opcheck import UntypedError
from monoc.spec.optable import OPS
from monoc.spec.program import MapStatement, Statement, ValueType
from monoc.spec.scalars import SCALAR_FUNCTIONS, Scalars
from monoc.spec.scope import Scope, Value, Values, tensor_type
from monoc.spec.sharding import map_sharding
from monoc.spec.syntax import name_problem

__all__ = ["Resolver"]

_AXES = {1: ("t",), 2: ("t", "c"), 3: ("t", "j", "c")}  # index variables of a tensor expression, by rank


_S = TypeVar("_S", IndexStatement, AssignStatement)


@dataclass
class Resolver:
    """Resolves the statements of one entry's launches into ``statements``."""

    names: Names
    fns: Mapping[str, FnDef]
    defs: Mapping[str, Def]
    samples: Samples
    diagnostics: Diagnostics
    values: Values
    statements: list[Statement] = field(default_factory=list)
    calling: list[str] = field(default_factory=list)
    instances: set[str] = field(default_factory=set)
    _reserved: dict[str, int] = field(default_factory=dict)  # names of hoisted values: builds

    def __post_init__(self) -> None:
        self.scalars = Scalars(self.names, self.fns, self.samples, self.diagnostics)
        self.caller = OpCaller(self.names, self.scalars, self.samples, self.diagnostics, self.values)

    # ---- statements

    def run(self, body: tuple[StatementNode, ...], scope: Scope) -> None:
        """Resolve the statements of a launch or definition; faulty ones are reported, their results untyped."""
        for node in body:
            match node:
                case IndexStatement():
                    self._alternatives(node, scope, self._index_statement)
                case AssignStatement():
                    self._alternatives(node, scope, self._assign)
                case EffectStatement():
                    self._effect(node, scope)
                case FaultyStatement():
                    for t in node.targets:
                        scope.bindings[t.name] = full = scope.full(t.name)
                        self.values.table.setdefault(full, Value(full, None, self.samples.everywhere, node.span))
                case Return() if not scope.path:
                    self.error(
                        Code.SYNTAX, "`return` outside a definition", node.span, "entries name their outputs after `->`"
                    )

    def _alternatives(self, node: _S, scope: Scope, resolve: Callable[[_S, Node, Scope, BuildExpr], None]) -> None:
        """``x = a when g else b`` is two statements under ``g`` and ``not g``."""
        guard = scope.guard
        if node.guard is not None:
            own = self.names.build_expr(node.guard, "a guard")
            if own is None:
                return
            guard = conjunction(scope.guard, own)
            self._check_guard(guard, node.guard.span)
            if node.otherwise is not None:
                other = conjunction(scope.guard, negation(own))
                self._check_guard(other, node.guard.span)
                resolve(node, node.value, scope, guard)
                resolve(node, node.otherwise, scope, other)
                return
        resolve(node, node.value, scope, guard)

    def _check_guard(self, guard: BuildExpr, span: Span) -> None:
        if not self.samples.mask(guard):
            self.error(Code.GUARD, f"`{guard}` holds in no build", span, "correct the guard or remove the statement")

    def _target(self, ident: Ident, scope: Scope) -> str:
        """The full name a statement assigns; reports a name that is taken by something else."""
        declared = self.names.table.get(ident.name)
        if ident.name in scope.outputs:
            pass
        elif declared is not None and not (declared.kind is NameKind.TENSOR and self._is_output(ident.name)):
            self.error(
                Code.DUPLICATE_NAME, f"`{ident.name}` is a {declared.kind}; it cannot be assigned", ident.span,
                "choose another name", Note(f"the {declared.kind} is declared", declared.span),
            )  # fmt: skip
        elif ident.name in SCALAR_FUNCTIONS or ident.name in OPS:
            self.error(Code.DUPLICATE_NAME, f"`{ident.name}` is an operation", ident.span, "choose another name")
        else:
            self.valid(ident)
        self.names.use(ident.name)
        full = scope.full(ident.name)
        scope.bindings[ident.name] = full
        return full

    def _is_output(self, name: str) -> bool:
        return self.values.tensors[name].role == "output" if name in self.values.tensors else False

    def valid(self, ident: Ident) -> None:
        problem = name_problem(ident.name)
        if problem is not None:
            self.error(Code.BAD_NAME, f"{quoted(ident.name)} cannot name a value", ident.span, problem)

    def _index_statement(self, node: IndexStatement, value: Node, scope: Scope, guard: BuildExpr) -> None:
        full = self._target(node.target, replace(scope, bindings=dict(scope.bindings)))
        self._map(full, node.target.name, node.axes, value, scope, guard, node.span)
        scope.bindings[node.target.name] = full

    def _map(
        self, full: str, local: str, axes: tuple[Axis, ...], value: Node, scope: Scope, guard: BuildExpr, span: Span
    ) -> ValueType | None:
        """Emit ``full[axes] = value``; its type, None if it is faulty."""

        def lookup(name: str, at: Span) -> tuple[str, ValueType]:
            got = self.values.resolve(name, at, scope)
            if isinstance(got, Fraction):
                self.error(Code.INDEX, f"`{name}` is a constant here", at, "use it without an index")
                raise UnloweredError
            return got, self.values.read(got, name, guard, at)

        type_: ValueType | None = None
        indices = IndexScope()
        try:
            index = self.scalars.indices.declare(axes, indices)
            self.scalars.indices.learn(value, indices, lookup)
            params = {n: v for n, v in scope.bindings.items() if isinstance(v, Fraction)}
            lowered = self.scalars.lower(bind_constants(value, params), indices, lookup)
            expr = self.scalars.expr(lowered, value.span)
            extents: list[tuple[str, BuildExpr]] = []
            for name, size in indices.extents.items():
                if size is None:
                    self.error(
                        Code.INDEX,
                        f"nothing tells the range of index `{name}`",
                        span,
                        f"give it where it is declared: `{name}: n`",
                    )
                    raise UnloweredError
                extents.append((name, size))
            shape = tuple(dict(extents)[v] for v in index)
            shown = {v: n for n, v in scope.bindings.items() if isinstance(v, str)}
            sharding = map_sharding(expr, index, self.type_of, shown, self.diagnostics, span)
            if sharding is not None:
                type_ = ValueType(self._dtype(expr), shape, sharding)
            origin = f"{scope.origin}.{local}" if scope.origin else local
            self.statements.append(MapStatement(full, index, expr, tuple(extents), guard, scope.path, origin, span))
        except (UnloweredError, UntypedError):
            pass
        self.values.define(full, type_, guard, span)
        return type_

    def type_of(self, full: str) -> ValueType:
        value = self.values.table.get(full)
        got = value.type if value is not None else tensor_type(self.values.tensors[full])
        if got is None:
            raise UntypedError
        return got

    def _dtype(self, expr: Expr) -> DType:
        match expr:
            case Round():
                return expr.dtype
            case Access():
                return self.type_of(expr.tensor).dtype
            case Reduce(rounding=DType.BF16, body=Round(dtype=DType.BF16)):
                return DType.BF16
        return DType.F32

    # ---- tensor expressions

    def _assign(self, node: AssignStatement, value: Node, scope: Scope, guard: BuildExpr) -> None:
        reads = replace(scope, bindings=dict(scope.bindings))  # right-hand sides see the names before
        targets = [self._target(t, scope) for t in node.targets]
        if isinstance(value, Call) and (value.function.name in self.defs or value.function.name in OPS):
            self._call(value, targets, node.targets[0].name, reads, guard, node.label)
            return
        if node.label is not None:
            self.error(Code.ARGUMENTS, "`as` names a call of a definition", node.label.span, "remove it")
        if len(targets) != 1:
            self.error(
                Code.RESULTS, f"{len(targets)} names for one value", node.span, "only calls have several results"
            )
            for t, ident in zip(targets, node.targets, strict=True):
                self.values.define(t, None, guard, ident.span)
            return
        self.tensor(value, targets[0], node.targets[0].name, reads, guard)

    def _effect(self, node: EffectStatement, scope: Scope) -> None:
        guard = scope.guard
        if node.guard is not None:
            own = self.names.build_expr(node.guard, "a guard")
            if own is None:
                return
            guard = conjunction(guard, own)
            self._check_guard(guard, node.guard.span)
        assert isinstance(node.call, Call)
        self._call(node.call, [], node.call.function.name, scope, guard, None)

    def tensor(self, node: Node, full: str, hint: str, scope: Scope, guard: BuildExpr) -> None:
        """Emit statements that give ``full`` the value of the tensor expression ``node``."""
        if isinstance(node, Op) and node.op == "@":
            call = Call(node.span, Ident("linear", node.span), node.args, ())
            self._call(call, [full], hint, scope, guard, None)
            return
        if isinstance(node, Call) and (node.function.name in OPS or node.function.name in self.defs):
            self._call(node, [full], hint, scope, guard, None)
            return
        inner = replace(scope, bindings=dict(scope.bindings))
        leaves: list[tuple[str, Span]] = []
        try:
            element = self._elementwise(node, hint, inner, guard, leaves)
            if not leaves:
                self.error(
                    Code.EXPRESSION, "this is a constant, not a tensor", node.span, "give it an index: `x[t] = ...`"
                )
                raise UntypedError
            ranks = {len(self.type_of(f).shape) for f, _ in leaves}
        except (UntypedError, UnloweredError):
            self.values.define(full, None, guard, node.span)
            return
        rank = ranks.pop()
        if ranks or rank not in _AXES:
            self.error(
                Code.RANK, "tensors of different numbers of axes in one expression", node.span, "write it with indices"
            )
            self.values.define(full, None, guard, node.span)
            return
        axes = tuple(Axis(Ident(v, node.span), None) for v in _AXES[rank])
        terms = tuple(Name(node.span, v) for v in _AXES[rank])
        self._map(full, hint, axes, fill(element, terms), inner, guard, node.span)

    def _elementwise(
        self, node: Node, hint: str, scope: Scope, guard: BuildExpr, leaves: list[tuple[str, Span]]
    ) -> Node:
        """``node`` with its tensors as accesses without indices; operations inside get a value of their own."""
        match node:
            case Number():
                return node
            case Name():
                bound = scope.bindings.get(node.name)
                declared = self.names.table.get(node.name)
                if bound is None and node.name in self.names.faulty:
                    raise UntypedError
                number = (
                    bound is None and declared is not None and declared.kind not in (NameKind.TENSOR, NameKind.SCALE)
                )
                if isinstance(bound, Fraction) or number:
                    return node
                full = self.values.resolve(node.name, node.span, scope)
                assert isinstance(full, str)
                leaves.append((full, node.span))
                self.values.read(full, node.name, guard, node.span)
                return Index(node.span, Ident(node.name, node.span), ())
            case Op() if node.op != "@":
                return replace(node, args=tuple(self._elementwise(a, hint, scope, guard, leaves) for a in node.args))
            case Call() if node.function.name not in OPS and node.function.name not in self.defs:
                args = tuple(self._elementwise(a, hint, scope, guard, leaves) for a in node.args)
                return replace(node, args=args)
            case Op() | Call():
                name = self._hoist(node, hint, scope, guard)
                full = str(scope.bindings[name])
                leaves.append((full, node.span))
                self.type_of(full)
                return Index(node.span, Ident(name, node.span), ())
            case _:
                self.error(Code.EXPRESSION, "not part of a tensor expression", node.span, "write it with indices")
                raise UntypedError

    def _hoist(self, node: Node, hint: str, scope: Scope, guard: BuildExpr) -> str:
        """Give the operation ``node`` a value of its own; its local name, bound in ``scope``."""
        what = node.function.name if isinstance(node, Call) else "linear"
        name = self._free(f"{hint}_{what}", scope, guard)
        full = scope.full(name)
        self.tensor(node, full, hint, scope, guard)
        scope.bindings[name] = full
        return name

    # ---- calls

    def _call(
        self, node: Call, targets: list[str], hint: str, scope: Scope, guard: BuildExpr, label: Ident | None
    ) -> None:
        name = node.function.name
        if name in self.defs:
            inline(self, node, self.defs[name], targets, hint, scope, guard, label)
            return
        if name not in OPS:
            if name not in self.names.faulty:
                known = suggestion(name, [*OPS, *self.defs])
                self.error(Code.UNKNOWN_FUNCTION, f"unknown operation {quoted(name)}", node.function.span, known)
            types: tuple[ValueType | None, ...] = (None,) * len(targets)
        else:
            inner = replace(scope, bindings=dict(scope.bindings))
            statement, types = self.caller.call(node, targets, hint, inner, guard, self.argument)
            if statement is not None:
                self.statements.append(statement)
        for target, type_ in zip(targets, types, strict=True):
            self.values.define(target, type_, guard, node.span)

    def argument(self, node: Node, hint: str, scope: Scope, guard: BuildExpr, optional: bool) -> tuple[str, ValueType]:
        """The value passed for an operand. Raises :class:`UntypedError`."""
        if isinstance(node, Name):
            full = self.values.resolve(node.name, node.span, scope)
            if isinstance(full, Fraction):
                self.error(Code.ARGUMENTS, f"`{node.name}` is a constant, not a tensor", node.span, None)
                raise UntypedError
            return full, self.values.read(full, node.name, guard, node.span, optional=optional)
        if isinstance(node, Number):
            self.error(Code.ARGUMENTS, "a number, where a tensor goes", node.span, None)
            raise UntypedError
        if not isinstance(node, Call) and not (isinstance(node, Op) and node.op == "@"):
            name = self._free(f"{hint}_map", scope, guard)
            self.tensor(node, scope.full(name), hint, scope, guard)
            scope.bindings[name] = scope.full(name)
        else:
            name = self._hoist(node, hint, scope, guard)
        full = str(scope.bindings[name])
        return full, self.values.read(full, name, guard, node.span)

    def _free(self, base: str, scope: Scope, guard: BuildExpr) -> str:
        name, n, mask = base, 2, self.samples.mask(guard)
        while self._reserved.get(scope.full(name), 0) & mask:
            name, n = f"{base}_{n}", n + 1
        self._reserved[scope.full(name)] = self._reserved.get(scope.full(name), 0) | mask
        return name

    def error(self, code: Code, message: str, span: Span, remedy: str | None, note: Note | None = None) -> None:
        self.diagnostics.error(code, message, span, remedy, note)
