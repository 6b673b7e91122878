"""Calls of definitions: the body is resolved anew for every call, its values named after the call."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from monoc.diagnostics import Code, Note, counted
from monoc.spec.ast import (
    AssignStatement,
    Axis,
    Call,
    Def,
    FaultyStatement,
    Ident,
    IndexStatement,
    Name,
    Node,
    Number,
    Return,
    StatementNode,
)
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.names import NameKind
from monoc.spec.opcheck import UntypedError
from monoc.spec.scope import Scope

if TYPE_CHECKING:
    from monoc.spec.resolve import Resolver

__all__ = ["assigned_by", "inline"]


def inline(
    r: Resolver,
    node: Call,
    called: Def,
    targets: list[str],
    hint: str,
    scope: Scope,
    guard: BuildExpr,
    label: Ident | None,
) -> None:
    """Resolve the body of ``called`` for this call; its results are ``targets``."""
    name = called.name.name
    r.names.use(name)
    defined = Note("it is defined", called.name.span)

    def give_up() -> None:
        for t in targets:
            r.values.define(t, None, guard, node.span)

    if name in r.calling:
        r.error(Code.RECURSION, f"definition `{name}` calls itself", node.span, "write it out", defined)
        return give_up()
    if node.keywords or len(node.args) != len(called.params):
        r.error(
            Code.ARGUMENTS,
            f"`{name}` takes {counted(len(called.params), 'argument')}, {len(node.args) + len(node.keywords)} given",
            node.span,
            None,
            defined,
        )
        return give_up()
    returned = next((s.values for s in called.body if isinstance(s, Return)), ())
    if not returned and any(isinstance(s, FaultyStatement) for s in called.body):
        return give_up()
    if len(returned) != len(targets):
        r.error(
            Code.RESULTS,
            f"`{name}` returns {counted(len(returned), 'value')}, {counted(len(targets), 'name')} given",
            node.span,
            None,
            defined,
        )
        return give_up()
    path = _instance(r, label, f"{hint}_{name}", scope)
    inner = Scope(path, name, guard)
    reads = replace(scope, bindings=dict(scope.bindings))
    for param, arg in zip(called.params, node.args, strict=True):
        try:
            inner.bindings[param.name.name] = _bind(r, param.name.name, param.axes, arg, hint, reads, guard)
        except UntypedError:
            return give_up()
    assigned = {t.name for s in called.body for t in assigned_by(s)}
    for value, target in zip(returned, targets, strict=True):
        if isinstance(value, Name) and value.name in assigned and value.name not in inner.outputs:
            inner.outputs[value.name] = target
    r.calling.append(name)
    r.diagnostics.calls.append(node.span)
    try:
        r.run(called.body, inner)
    finally:
        r.calling.pop()
        r.diagnostics.calls.pop()
    for value, target in zip(returned, targets, strict=True):
        if not (isinstance(value, Name) and inner.outputs.get(value.name) == target):
            r.tensor(value, target, target.rsplit(".", 1)[-1], inner, guard)


def _bind(
    r: Resolver, param: str, axes: tuple[Axis, ...] | None, arg: Node, hint: str, scope: Scope, guard: BuildExpr
) -> str | Fraction:
    """What a definition's parameter stands for: a value's full name or a constant."""
    if isinstance(arg, Number):
        return arg.value
    if isinstance(arg, Name):
        declared = r.names.table.get(arg.name)
        if arg.name not in scope.bindings and declared is not None and declared.kind is NameKind.CONSTANT:
            declared.used = True
            assert declared.value is not None
            return declared.value
        full = r.values.resolve(arg.name, arg.span, scope)
        if isinstance(full, Fraction) or axes is None:
            return full
    else:
        full = r.argument(arg, f"{hint}_{param}", scope, guard, False)[0]
        if axes is None:
            return full
    rank = len(r.type_of(full).shape)
    if rank != len(axes):
        r.error(Code.RANK, f"parameter `{param}` has {len(axes)} axes, {rank} are given", arg.span, None)
        raise UntypedError
    return full


def _instance(r: Resolver, label: Ident | None, name: str, scope: Scope) -> str:
    """A fresh instance path of a definition."""
    if label is not None:
        r.valid(label)
        name = label.name
    path = base = f"{scope.path}.{name}" if scope.path else name
    n = 2
    while path in r.instances:
        path, n = f"{base}_{n}", n + 1
    if label is not None and path != base:
        r.error(Code.DUPLICATE_NAME, f"two calls are named `{label.name}`", label.span, "name them apart")
    r.instances.add(path)
    return path


def assigned_by(node: StatementNode) -> tuple[Ident, ...]:
    """The names a statement assigns."""
    match node:
        case IndexStatement():
            return (node.target,)
        case AssignStatement():
            return node.targets
        case FaultyStatement():
            return node.targets
    return ()
