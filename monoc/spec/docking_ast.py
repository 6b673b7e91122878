"""Expressions and lines of a docking section as trees with positions (syntax: ``grammar/docking.lark``).

Names, operators and lists are those of the language (:mod:`monoc.spec.ast`); an operator here may also be ``in``,
``not in``, ``is None``, ``is not None`` and ``//``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monoc.expr.ir import Span
from monoc.spec.ast import Node

__all__ = ["Attribute", "Choice", "Constant", "Invoke", "Item", "Line", "Range"]


@dataclass(frozen=True)
class Constant(Node):
    """None, a truth value, an integer, a real number, or plain text (to compare with)."""

    value: bool | int | float | str | None


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
    """``function(arguments, keywords)``."""

    function: Node
    arguments: tuple[Node, ...]
    keywords: tuple[tuple[str, Node], ...]

    def children(self) -> tuple[Node, ...]:
        return (self.function, *self.arguments, *(v for _, v in self.keywords))


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
