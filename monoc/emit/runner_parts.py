"""What the runner's template is given: classes, methods and calls of ``runner.py``, every expression as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monoc.spec.program import HostCall

__all__ = ["Bound", "Call", "Class", "Field", "Guarded", "Method", "Option", "Parameter", "Want"]


@dataclass(frozen=True)
class Field:
    """A field of a weight class."""

    name: str
    annotation: str
    comment: str


@dataclass(frozen=True)
class Want:
    """A tensor's check: expressions of its value, dtype, axes and strides ("None": contiguous)."""

    name: str
    dtype: str
    axes: str
    strides: str
    guard: str


@dataclass(frozen=True)
class Class:
    """A weight class and its check; ``root``: the one the methods take."""

    name: str
    fields: tuple[Field, ...]
    wants: tuple[Want, ...]
    root: bool
    options: tuple[Option, ...]  # the runner options its tensors' shapes depend on


@dataclass(frozen=True)
class Option:
    """A constructor keyword: ``sets`` the build parameter, by default as in the first variant."""

    name: str
    sets: str
    default: int


@dataclass(frozen=True)
class Parameter:
    """A tensor a method takes, with what its comment says."""

    name: str
    comment: str
    optional: bool
    absent: str  # what stands for it where it is not given


@dataclass(frozen=True)
class Guarded:
    """A weight not every layer has: how a method reaches it, in which builds it must be there, what stands for it."""

    name: str
    path: str
    guard: str
    absent: str


@dataclass(frozen=True)
class Bound:
    """A build parameter a method finds by size: at least ``keyword`` and the widths of ``tensors``."""

    param: str
    keyword: str
    limit: str
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A launch of an entry (``arguments``: one expression each), or a host call between two."""

    name: str
    arguments: tuple[str, ...]
    host: bool
    guard: str


@dataclass(frozen=True)
class Method:
    """One entry of the spec as a method of the runner."""

    name: str
    parameters: tuple[Parameter, ...]
    wants: tuple[Want, ...]
    outputs: tuple[tuple[str, str, str], ...]  # name, dtype, shape
    calls: tuple[Call, ...]
    known: tuple[tuple[str, str], ...]  # build parameter, its expression
    own: tuple[str, ...]  # those of them the runner's options fix
    flags: tuple[tuple[str, str], ...]  # keyword, default
    hosts: tuple[HostCall, ...]
    launches: tuple[str, ...]
    needs: str  # the optional weight class field it cannot do without
    always: tuple[str, ...]  # host calls every layer makes
    weights: tuple[Guarded, ...]
    bounds: tuple[Bound, ...]
    tables: tuple[str, ...]  # tensors whose width is the host's

    @property
    def switches(self) -> Mapping[str, str]:
        """Boolean keywords and their defaults."""
        return {name: default for name, default in self.flags if default in ("True", "False")}
