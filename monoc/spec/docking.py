"""The `docking:` section: how a serving framework's decoder layer finds the launches (docs/docking.md).

The section says what the framework's objects must be for a deployment, a layer and a step to take the launches, with
the message for each that does not, and where the launches' tensors come from. It is data: trees of
:mod:`monoc.spec.docking_ast`, resolved against the spec and printed by :mod:`monoc.emit.docking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from monoc.expr.ir import Span
from monoc.spec.ast import Node
from monoc.spec.docking_ast import Line

__all__ = [
    "Argument", "Binding", "DockedEntry", "Docking", "HostProgram", "Import", "Message", "NamedValue", "Rule",
    "VariantChoice", "WeightSource",
]  # fmt: skip


@dataclass(frozen=True)
class Message:
    """Plain text with values in it, in order."""

    parts: tuple[str | Node, ...]


@dataclass(frozen=True)
class Rule:
    """Where ``when`` holds the launches are not taken, because of ``why``."""

    when: Node
    why: Message
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Import:
    """``name`` stands for ``module.member`` of the framework, imported where it is used."""

    name: str
    module: str
    member: str


@dataclass(frozen=True)
class NamedValue:
    """A value the section names; ``bases``: what it is made of in the end (``layer``, ``vllm_config``, arguments)."""

    name: str
    value: Node
    bases: frozenset[str]


@dataclass(frozen=True)
class VariantChoice:
    """The layers that are built as ``variant``; the one without a condition is for all others."""

    variant: str
    when: Node | None


@dataclass(frozen=True)
class Argument:
    """An argument of a docked method; ``optional``: may be None."""

    name: str
    optional: bool


@dataclass(frozen=True)
class Binding:
    """What an argument of a runner's method is given; with ``when``, only where that holds."""

    name: str
    value: Node
    when: Node | None = None


@dataclass(frozen=True)
class HostProgram:
    """What runs between an entry's launches, given ``arguments``; passed where ``when`` holds."""

    name: str
    arguments: tuple[str, ...]
    lines: tuple[Line, ...]
    when: Node | None


@dataclass(frozen=True)
class DockedEntry:
    """The method of the docked layer that runs ``entry`` of the program.

    ``layers``: why a layer does not take it; ``steps``: why a step does not; ``before``: lines run ahead of the call;
    ``results``: which of the entry's outputs the framework gets."""

    entry: str
    method: str
    arguments: tuple[Argument, ...]
    layers: tuple[Rule, ...]
    steps: tuple[Rule, ...]
    before: tuple[Line, ...]
    call: tuple[Binding, ...]
    hosts: tuple[HostProgram, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class WeightSource:
    """Where a field of a weight class comes from."""

    field: str
    value: Node


@dataclass(frozen=True)
class Docking:
    """A resolved section; ``entries`` in order of preference."""

    class_name: str
    title: str  # how log messages begin
    option: str  # the framework's option that asks for the launches, as its errors name it
    enabled: Node
    imports: tuple[Import, ...]
    names: tuple[NamedValue, ...]
    deployment: tuple[Rule, ...]  # a deployment that asks for the launches and cannot have them: an error
    variants: tuple[VariantChoice, ...]
    layers: tuple[Rule, ...]  # why a layer takes no entry
    entries: tuple[DockedEntry, ...]
    weights: tuple[tuple[str, tuple[WeightSource, ...]], ...]  # by weight class
    options: tuple[Binding, ...] = ()  # constructor keywords of the runner beside those the variant fixes
    attributes: tuple[Binding, ...] = ()  # what the framework reads off a docked layer
    constants: tuple[tuple[str, float], ...] = ()  # of the spec, as far as the section compares with them

    @cached_property
    def named(self) -> Mapping[str, NamedValue]:
        return {n.name: n for n in self.names}

    @cached_property
    def imported(self) -> Mapping[str, Import]:
        return {i.name: i for i in self.imports}
