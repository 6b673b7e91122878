"""Expressions and lines of a docking section as trees with positions (syntax: ``grammar/docking.lark``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from monoc.expr.ir import Span

__all__ = [
    "Attribute", "Choice", "Constant", "Group", "Invoke", "Item", "Line", "Node", "Operation", "Range", "Variable",
]  # fmt: skip


@dataclass(frozen=True)
class Node:
    span: Span = field(compare=False, repr=False)

    def children(self) -> tuple[Node, ...]:
        return ()

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children():
            yield from child.walk()

    def names(self) -> frozenset[str]:
        """Every name mentioned."""
        return frozenset(n.name for n in self.walk() if isinstance(n, Variable))


@dataclass(frozen=True)
class Constant(Node):
    """None, a truth value, an integer, a real number, or plain text (to compare with)."""

    value: bool | int | float | str | None


@dataclass(frozen=True)
class Variable(Node):
    name: str


@dataclass(frozen=True)
class Attribute(Node):
    """``value.name``; ``optional``: None where the value or its attribute is missing."""

    value: Node
    name: str
    optional: bool

    def children(self) -> tuple[Node, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Range(Node):
    """``first:end`` inside brackets."""

    first: Node | None
    end: Node | None

    def children(self) -> tuple[Node, ...]:
        return tuple(n for n in (self.first, self.end) if n is not None)


@dataclass(frozen=True)
class Item(Node):
    """``value[keys]``; ``optional``: None where the value is no map or has no such key."""

    value: Node
    keys: tuple[Node, ...]
    optional: bool

    def children(self) -> tuple[Node, ...]:
        return (self.value, *self.keys)


@dataclass(frozen=True)
class Invoke(Node):
    function: Node
    arguments: tuple[Node, ...]
    keywords: tuple[tuple[str, Node], ...]

    def children(self) -> tuple[Node, ...]:
        return (self.function, *self.arguments, *(v for _, v in self.keywords))


@dataclass(frozen=True)
class Group(Node):
    items: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.items


@dataclass(frozen=True)
class Operation(Node):
    """``or and not``, comparisons, ``in``, ``not in``, ``is None``, ``is not None``, ``+ - * //``, ``neg``."""

    op: str
    operands: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.operands


@dataclass(frozen=True)
class Choice(Node):
    """``value when condition else other``."""

    value: Node
    condition: Node
    other: Node

    def children(self) -> tuple[Node, ...]:
        return (self.value, self.condition, self.other)


@dataclass(frozen=True)
class Line:
    """``targets = value``, a call alone (no targets), or ``return`` (no value), where ``when`` holds."""

    targets: tuple[str, ...]
    value: Node | None
    when: Node | None
    span: Span = field(compare=False)
