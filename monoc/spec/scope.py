"""Values and scopes while a program is resolved: who defined what in which builds, and who reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from monoc.diagnostics import Code, Diagnostics, Note, suggestion
from monoc.expr.ir import Span
from monoc.spec.buildexpr import BuildAny, BuildExpr
from monoc.spec.builds import Samples
from monoc.spec.names import NameKind, Names
from monoc.spec.opcheck import UntypedError, type_text
from monoc.spec.program import Role, TensorDecl, ValueType

__all__ = ["Difference", "Scope", "Value", "Values", "tensor_type"]


def tensor_type(t: TensorDecl) -> ValueType:
    """The type of a declared tensor as a value; sizes only the host knows are ``*``."""
    shape = tuple(BuildAny() if e.size is None else e.size for e in t.shape)
    block = t.scale.block if t.scale is not None else None
    return ValueType(t.dtype, shape, t.sharding, block)


@dataclass(frozen=True)
class Difference:
    """What two types are where they differ; ``build``, numbers and the build they are met in."""

    first: str
    second: str
    build: str = ""


@dataclass
class Value:
    """A value of one entry; ``type`` is None where its definition was faulty (reported)."""

    name: str
    type: ValueType | None
    defined: int  # mask of builds
    span: Span
    steps: set[int] = field(default_factory=set)  # which launches define it
    read: bool = False


@dataclass
class Scope:
    """Where names are looked up: the launch level, or one call of a definition."""

    path: str  # "" at launch level
    origin: str  # the definition's name
    guard: BuildExpr
    bindings: dict[str, str | Fraction] = field(default_factory=dict)  # local name -> full name or constant
    outputs: dict[str, str] = field(default_factory=dict)  # local name -> the caller's name for it

    def full(self, local: str) -> str:
        """The full name of a value assigned here."""
        return self.outputs.get(local) or (f"{self.path}.{local}" if self.path else local)


@dataclass
class Values:
    """The values of one entry as its steps are walked."""

    names: Names
    samples: Samples
    diagnostics: Diagnostics
    tensors: Mapping[str, TensorDecl]
    arguments: frozenset[str]  # of the entry
    faulty: frozenset[str]  # tensors that are not checked
    table: dict[str, Value] = field(default_factory=dict)
    stale: dict[str, tuple[int, Span]] = field(default_factory=dict)  # tensors a later host call writes: builds, where
    carried: dict[str, None] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)  # arguments that were read
    lacking: set[str] = field(default_factory=set)  # inputs that were read but are no arguments (reported)
    step: int = 0

    def define(self, full: str, type_: ValueType | None, guard: BuildExpr, span: Span) -> None:
        """Enter a definition; reports one that overlaps another or disagrees with it in type."""
        mask = self.samples.mask(guard)
        old = self.table.get(full)
        if old is None:
            self.table[full] = Value(full, type_, mask, span, {self.step})
            return
        if old.defined & mask:
            self.diagnostics.error(
                Code.REDEFINED,
                f"`{full}` is defined twice {self.samples.where(old.defined & mask)}",
                span,
                "choose another name, or guards that exclude each other",
                Note("first defined", old.span),
            )
        elif old.type is not None and type_ is not None and (why := self.difference(old.type, type_)):
            self.diagnostics.error(
                Code.GUARD,
                f"`{full}` is {why.second} here, {why.first} where it was first defined{why.build}",
                span,
                "give both definitions one type",
                Note("first defined", old.span),
            )
        old.defined |= mask
        old.steps.add(self.step)
        old.type = old.type or type_

    def difference(self, a: ValueType, b: ValueType) -> Difference | None:
        """How two types differ; None if they do not."""
        if (a.dtype, a.block) != (b.dtype, b.block):
            return Difference(type_text(a), type_text(b))
        if len(a.shape) == len(b.shape) and all(map(self.samples.equal, a.shape, b.shape)):
            return None if a.sharding == b.sharding else Difference(str(a.sharding), str(b.sharding))
        first, second = (f"[{', '.join(map(str, t.shape))}]" for t in (a, b))
        pairs = [(x, y) for x, y in zip(a.shape, b.shape, strict=False) if not self.samples.equal(x, y)]
        return Difference(first, second, f": {self.samples.differing(*pairs[0])}" if pairs else "")

    def resolve(self, local: str, span: Span, scope: Scope) -> str | Fraction:
        """The full name of the value or tensor ``local`` means in ``scope``, or a constant bound to it.

        Raises :class:`UntypedError` (reported) where there is none."""
        bound = scope.bindings.get(local)
        if bound is not None:
            return bound
        declared = self.names.use(local)
        if declared is not None and declared.kind is NameKind.TENSOR:
            return local
        if local in self.names.faulty:
            raise UntypedError
        if declared is not None:
            remedy = "scales come with their weight: pass the weight" if declared.kind is NameKind.SCALE else None
            self.diagnostics.error(
                Code.UNKNOWN_NAME, f"`{local}` is a {declared.kind}, not a value", span, remedy,
                Note(f"the {declared.kind} is declared", declared.span),
            )  # fmt: skip
            raise UntypedError
        known = [*scope.bindings, *self.names.of(NameKind.TENSOR)]
        self.diagnostics.error(
            Code.UNKNOWN_NAME, f"unknown value `{local}`", span, suggestion(local, known, "assign it before it is used")
        )
        raise UntypedError

    def read(self, full: str, shown: str, guard: BuildExpr, span: Span, *, optional: bool = False) -> ValueType:
        """The type of ``full``, which a statement under ``guard`` reads. Raises :class:`UntypedError`."""
        mask = self.samples.mask(guard)
        value = self.table.get(full)
        if value is not None:
            value.read = True
            if any(s != self.step for s in value.steps):
                self.carried[full] = None
            self._present(shown, value.defined, mask, span, value.span, "defined")
            if value.type is None:
                raise UntypedError
            return value.type
        tensor = self.tensors.get(full)
        if tensor is None:
            raise UntypedError
        if tensor.role is Role.OUTPUT:
            self.diagnostics.error(
                Code.UNDEFINED_IN_BUILD, f"the output `{shown}` is read before it is assigned", span, "assign it first",
                Note("it is declared", tensor.span or span),
            )  # fmt: skip
            raise UntypedError
        if tensor.role is not Role.WEIGHT:
            if full not in self.arguments:
                if full not in self.lacking:
                    self.diagnostics.error(
                        Code.NO_ARGUMENT, f"the {tensor.role} `{shown}` is no argument of this entry", span,
                        "add it to the entry's arguments", Note("it is declared", tensor.span or span),
                    )  # fmt: skip
                self.lacking.add(full)
                raise UntypedError
            self.given.add(full)
        if not optional:
            self._present(shown, self.samples.mask(tensor.guard), mask, span, tensor.span or span, "given")
        if full in self.stale and self.stale[full][0] & mask:
            late, where = self.stale[full]
            self.diagnostics.error(
                Code.NOT_YET_WRITTEN,
                f"`{shown}` is read before the host writes it {self.samples.where(late & mask)}",
                span,
                "read it after the host call, or guard this statement",
                Note("the host writes it", where),
            )
        if full in self.faulty:
            raise UntypedError
        return tensor_type(tensor)

    def _present(self, shown: str, present: int, mask: int, span: Span, at: Span, word: str) -> None:
        if mask & ~present:
            self.diagnostics.error(
                Code.UNDEFINED_IN_BUILD,
                f"`{shown}` is not {word} {self.samples.where(mask & ~present, 'any')}",
                span,
                f"guard this statement likewise, or {'define' if word == 'defined' else 'give'} it there too",
                Note(f"it is {word if word == 'defined' else 'declared'}", at),
            )

    def report_unread(self, outputs: frozenset[str]) -> None:
        """Report values nobody reads; to be called when all else is well."""
        for value in self.table.values():
            if not value.read and value.name not in outputs:
                self.diagnostics.error(
                    Code.UNUSED, f"`{value.name}` is never read", value.span, "use it, return it or remove it"
                )
