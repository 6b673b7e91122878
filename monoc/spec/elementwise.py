"""Rewriting of expressions before they are lowered: indices filled in, constants put in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from monoc.spec.ast import Call, Index, Name, Node, Number, Op, ReduceNode

__all__ = ["bind_constants", "fill"]


def fill(node: Node, terms: tuple[Name, ...]) -> Node:
    """``node`` with every access given the indices ``terms``."""
    match node:
        case Index():
            return replace(node, terms=terms)
        case Op():
            return replace(node, args=tuple(fill(a, terms) for a in node.args))
        case Call():
            return replace(node, args=tuple(fill(a, terms) for a in node.args))
    return node


def bind_constants(node: Node, constants: Mapping[str, Fraction]) -> Node:
    """``node`` with the names of ``constants`` (a definition's constant parameters) replaced by numbers."""
    if not constants:
        return node
    match node:
        case Name() if node.name in constants:
            return Number(node.span, constants[node.name], str(constants[node.name]))
        case Op():
            return replace(node, args=tuple(bind_constants(a, constants) for a in node.args))
        case Call():
            return replace(node, args=tuple(bind_constants(a, constants) for a in node.args))
        case ReduceNode():
            return replace(node, body=bind_constants(node.body, constants))
    return node
