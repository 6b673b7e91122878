"""What the grammar's lines are read into: expressions and statements with positions, nothing resolved yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from monoc.expr.ir import Span

__all__ = [
    "AssignStatement",
    "Axis",
    "Call",
    "Def",
    "EffectStatement",
    "EntryBlock",
    "Extent",
    "FaultyStatement",
    "FnDef",
    "HostStep",
    "Ident",
    "Index",
    "IndexStatement",
    "LaunchBlock",
    "ListNode",
    "Name",
    "Node",
    "Number",
    "Op",
    "Param",
    "ProgramText",
    "ReduceNode",
    "Return",
    "StatementNode",
]


@dataclass(frozen=True)
class Ident:
    name: str
    span: Span = field(compare=False)


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
        return frozenset(n.name for n in self.walk() if isinstance(n, Name))


@dataclass(frozen=True)
class Number(Node):
    value: Fraction
    text: str


@dataclass(frozen=True)
class Name(Node):
    name: str


@dataclass(frozen=True)
class Index(Node):
    """``name[terms]``"""

    name: Ident
    terms: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.terms


@dataclass(frozen=True)
class Call(Node):
    function: Ident
    args: tuple[Node, ...]
    keywords: tuple[tuple[Ident, Node], ...]

    def children(self) -> tuple[Node, ...]:
        return self.args + tuple(v for _, v in self.keywords)


@dataclass(frozen=True)
class Op(Node):
    """An operator by its text: ``+ - * / @ **``, comparisons, ``and or not``, ``neg``."""

    op: str
    args: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.args


@dataclass(frozen=True)
class ListNode(Node):
    items: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.items


@dataclass(frozen=True)
class Axis:
    """An index variable, with its extent where written (``s: streams``)."""

    name: Ident
    size: Node | None


@dataclass(frozen=True)
class ReduceNode(Node):
    op: str
    rounding: Ident | None
    axes: tuple[Axis, ...]
    body: Node

    def children(self) -> tuple[Node, ...]:
        return (self.body,)


@dataclass(frozen=True)
class Extent(Node):
    """A tensor axis in YAML: ``n``, ``>= n``, ``<= n`` or ``*`` (``size`` None)."""

    size: Node | None
    bound: str  # ">=", "<=" or ""


# ------------------------------------------------------------------ statements


@dataclass(frozen=True)
class StatementNode:
    span: Span


@dataclass(frozen=True)
class IndexStatement(StatementNode):
    target: Ident
    axes: tuple[Axis, ...]
    value: Node
    guard: Node | None
    otherwise: Node | None


@dataclass(frozen=True)
class AssignStatement(StatementNode):
    targets: tuple[Ident, ...]
    value: Node
    label: Ident | None
    guard: Node | None
    otherwise: Node | None


@dataclass(frozen=True)
class EffectStatement(StatementNode):
    call: Node
    guard: Node | None


@dataclass(frozen=True)
class Return(StatementNode):
    values: tuple[Node, ...]


@dataclass(frozen=True)
class FaultyStatement(StatementNode):
    """A line that could not be parsed (reported); ``targets`` are the names it seems to assign."""

    targets: tuple[Ident, ...]


@dataclass(frozen=True)
class FnDef:
    """``fn name(params) = body``: a scalar function, expanded where it is called."""

    name: Ident
    params: tuple[Ident, ...]
    body: Node


@dataclass(frozen=True)
class Param:
    name: Ident
    axes: tuple[Axis, ...] | None


@dataclass(frozen=True)
class Def:
    """``def name(params): statements``: expanded at every call, its values named after the call."""

    name: Ident
    params: tuple[Param, ...]
    body: tuple[StatementNode, ...]


@dataclass(frozen=True)
class LaunchBlock:
    name: Ident
    body: tuple[StatementNode, ...]


@dataclass(frozen=True)
class HostStep:
    name: Ident
    args: tuple[Ident, ...]
    writes: tuple[Ident, ...]
    guard: Node | None


@dataclass(frozen=True)
class EntryBlock:
    name: Ident
    args: tuple[Ident, ...]
    outputs: tuple[Ident, ...]
    steps: tuple[LaunchBlock | HostStep, ...]


@dataclass(frozen=True)
class ProgramText:
    fns: tuple[FnDef, ...]
    defs: tuple[Def, ...]
    entries: tuple[EntryBlock, ...]
    faulty: frozenset[str]  # names of functions and definitions whose line could not be parsed
