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
    """A name where it is written."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Node:
    """An expression as written, with its place."""

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
    """A number, exactly as written."""

    value: Fraction
    text: str


@dataclass(frozen=True)
class Name(Node):
    """A name read."""

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
    """``function(args, keywords)``."""

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
    """``[items]``, or several values in parentheses."""

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
    """``op<rounding>[axes] body``."""

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
    """A statement, with its place."""

    span: Span


@dataclass(frozen=True)
class IndexStatement(StatementNode):
    """``target[axes] = value when guard else otherwise``."""

    target: Ident
    axes: tuple[Axis, ...]
    value: Node
    guard: Node | None
    otherwise: Node | None


@dataclass(frozen=True)
class AssignStatement(StatementNode):
    """``targets = value as label when guard else otherwise``."""

    targets: tuple[Ident, ...]
    value: Node
    label: Ident | None
    guard: Node | None
    otherwise: Node | None


@dataclass(frozen=True)
class EffectStatement(StatementNode):
    """A call that writes one of its operands, without a result."""

    call: Node
    guard: Node | None


@dataclass(frozen=True)
class Return(StatementNode):
    """``return values``, the last line of a definition."""

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
    """A parameter of a definition, with its axes where they are named."""

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
    """``launch name:`` and its statements."""

    name: Ident
    body: tuple[StatementNode, ...]


@dataclass(frozen=True)
class HostStep:
    """``host name(args) -> writes when guard``."""

    name: Ident
    args: tuple[Ident, ...]
    writes: tuple[Ident, ...]
    guard: Node | None


@dataclass(frozen=True)
class EntryBlock:
    """``entry name(args) -> outputs:`` and its launches and host steps."""

    name: Ident
    args: tuple[Ident, ...]
    outputs: tuple[Ident, ...]
    steps: tuple[LaunchBlock | HostStep, ...]


@dataclass(frozen=True)
class ProgramText:
    """A whole program, parsed line by line."""

    fns: tuple[FnDef, ...]
    defs: tuple[Def, ...]
    entries: tuple[EntryBlock, ...]
    faulty: frozenset[str]  # names of functions and definitions whose line could not be parsed
