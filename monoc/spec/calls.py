"""Calls of structured operations: operands and attributes matched to the table, the typing rule applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from monoc.diagnostics import Code, Diagnostics, counted, suggestion
from monoc.expr.ir import Span
from monoc.spec.ast import Call, ListNode, Name, Node
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.builds import Samples
from monoc.spec.names import Names
from monoc.spec.opcheck import OpCheck, UntypedError
from monoc.spec.optable import OPS, AttributeKind, AttributeSpec, OpSpec
from monoc.spec.program import Attribute, AttributeValue, Operand, OpStatement, ScalarFunction, ValueType
from monoc.spec.scalars import Scalars
from monoc.spec.scope import Scope, Values

__all__ = ["OpCaller"]

# Resolves an operand: node, hint for a name, scope, guard, optional -> full name and type
Argument = Callable[[Node, str, Scope, BuildExpr, bool], tuple[str, ValueType]]


@dataclass
class OpCaller:
    """Calls of structured operations: their operands and attributes checked, their results defined."""

    names: Names
    scalars: Scalars
    samples: Samples
    diagnostics: Diagnostics
    values: Values

    def call(
        self, node: Call, targets: list[str], hint: str, scope: Scope, guard: BuildExpr, argument: Argument
    ) -> tuple[OpStatement | None, tuple[ValueType | None, ...]]:
        """The statement and its results' types (None, reported, where the call is faulty)."""
        spec = OPS[node.function.name]
        untyped: tuple[ValueType | None, ...] = (None,) * len(targets)
        try:
            if spec.results is not None and spec.results != len(targets):
                self._fail(
                    Code.RESULTS,
                    f"{spec.name} gives {counted(spec.results, 'result')}, {counted(len(targets), 'name')} given",
                    node.span,
                    None,
                )
            given = self._match(node, spec)
            attributes = self._attributes(node, spec)
            operands, types, spans = self._operands(given, spec, hint, scope, guard, argument)
            spans |= {k.name: v.span for k, v in node.keywords}
            check = OpCheck(
                spec.name,
                types,
                spans,
                {o.param: self.values.tensors[o.value] for o in operands if o.value in self.values.tensors},
                attributes,
                len(targets),
                node.span,
                self.samples,
                self.diagnostics,
            )
            result = spec.rule(check)
        except UntypedError:
            return None, untyped
        origin = f"{scope.origin}.{hint}" if scope.origin else hint
        listed = tuple(Attribute(n, v) for n, v in attributes.items())
        return OpStatement(spec.name, tuple(targets), operands, listed, guard, scope.path, origin, node.span), result

    def _match(self, node: Call, spec: OpSpec) -> dict[str, Node]:
        """Arguments by operand name; keywords may name operands too."""
        names = [o.name for o in spec.operands]
        if len(node.args) > len(names):
            self._fail(
                Code.ARGUMENTS,
                f"{spec.name} takes {counted(len(names), 'operand')}, {len(node.args)} given",
                node.span,
                f"operands: {', '.join(names)}",
            )
        given = dict(zip(names, node.args, strict=False))
        for key, value in node.keywords:
            if key.name in given:
                self._fail(
                    Code.ARGUMENTS, f"operand `{key.name}` of {spec.name} is given twice", key.span, "remove one"
                )
            if key.name in names:
                given[key.name] = value
        missing = [o.name for o in spec.operands if not o.optional and o.name not in given]
        if missing:
            self._fail(
                Code.ARGUMENTS,
                f"{spec.name} lacks its operand `{missing[0]}`",
                node.span,
                f"operands: {', '.join(names)}",
            )
        return given

    def _operands(
        self, given: dict[str, Node], spec: OpSpec, hint: str, scope: Scope, guard: BuildExpr, argument: Argument
    ) -> tuple[tuple[Operand, ...], dict[str, ValueType], dict[str, Span]]:
        operands: list[Operand] = []
        types: dict[str, ValueType] = {}
        failed = False
        for o in spec.operands:
            if o.name not in given:
                continue
            try:
                value, types[o.name] = argument(given[o.name], hint, scope, guard, o.optional)
                operands.append(Operand(o.name, value, o.optional))
            except UntypedError:
                failed = True
        if failed:
            raise UntypedError
        return tuple(operands), types, {n: v.span for n, v in given.items()}

    def _attributes(self, node: Call, spec: OpSpec) -> dict[str, AttributeValue]:
        table = {a.name: a for a in spec.attributes}
        operands = {o.name for o in spec.operands}
        found: dict[str, AttributeValue] = {}
        for key, value in node.keywords:
            if key.name in operands:
                continue
            if key.name not in table:
                known = ", ".join(f"`{a}`" for a in table) or "none"
                self._fail(
                    Code.ATTRIBUTE, f"{spec.name} has no attribute `{key.name}`", key.span,
                    suggestion(key.name, table, f"its attributes: {known}"),
                )  # fmt: skip
            if key.name in found:
                self._fail(Code.ATTRIBUTE, f"attribute `{key.name}` is given twice", key.span, "remove one")
            found[key.name] = self._attribute(table[key.name], value, spec)
        for a in spec.attributes:
            if a.name in found:
                continue
            if a.default is not None:
                found[a.name] = a.default
            elif a.kind is not AttributeKind.SIZES:
                self._fail(
                    Code.ATTRIBUTE, f"{spec.name} lacks its attribute `{a.name}`", node.span, f"add `{a.name}=...`"
                )
        return {a.name: found[a.name] for a in spec.attributes if a.name in found}

    def _attribute(self, a: AttributeSpec, node: Node, spec: OpSpec) -> AttributeValue:
        what = f"`{a.name}` of {spec.name}"
        got: AttributeValue | None
        match a.kind:
            case AttributeKind.SIZE:
                got = self.names.build_expr(node, what)
            case AttributeKind.SIZES:
                if not isinstance(node, ListNode):
                    self._fail(Code.ATTRIBUTE, f"{what} is no list", node.span, "write `[a, b]`")
                sizes = tuple(self.names.build_expr(item, what) for item in node.items)
                got = None if None in sizes else tuple(s for s in sizes if s is not None)
            case AttributeKind.REAL:
                got = self.scalars.constant(node, what)
            case AttributeKind.CHOICE:
                if not isinstance(node, Name) or node.name not in a.choices:
                    listed = " or ".join(f"`{c}`" for c in a.choices)
                    self._fail(Code.ATTRIBUTE, f"{what} is not known", node.span, f"write {listed}")
                got = node.name
            case AttributeKind.FUNCTION:
                got = self._function(a, node, what)
        if got is None:
            raise UntypedError
        return got

    def _function(self, a: AttributeSpec, node: Node, what: str) -> ScalarFunction | None:
        fn = self.scalars.fns.get(node.name) if isinstance(node, Name) else None
        if fn is None:
            known = ", ".join(f"`{n}`" for n in self.scalars.fns)
            remedy = (
                suggestion(node.name, self.scalars.fns, f"the spec has {known}") if isinstance(node, Name) else None
            )
            self._fail(Code.ATTRIBUTE, f"{what} is no `fn` of the spec", node.span, remedy)
        self.names.use(fn.name.name)
        if len(fn.params) not in a.arities:
            takes = " or ".join(map(str, a.arities))
            self._fail(
                Code.ATTRIBUTE, f"{what} takes {takes} arguments, `{fn.name.name}` {len(fn.params)}", node.span, None
            )
        return self.scalars.function(fn)

    def _fail(self, code: Code, message: str, span: Span, remedy: str | None) -> NoReturn:
        self.diagnostics.error(code, message, span, remedy)
        raise UntypedError
