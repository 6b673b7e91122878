"""The resolved program: what the front end hands to the rest of the compiler.

Everything is resolved and checked: definitions are inlined, every value has one :class:`ValueType`, every
statement a guard over the build parameters. Shapes are one rank's (``heads`` is ``64 / tp``) and symbolic in
the dimensions of :attr:`Program.dims`; ``shape[i].evaluate(program.environment(build))`` is a number.

A value may be defined by several statements whose guards exclude each other (``... when fold else ...``); a
use holds in no build in which none of its definitions holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from monoc.expr.ir import DType, Expr, Reduce, Span, accesses, walk
from monoc.spec.buildexpr import TRUE, BuildExpr, BuildValue
from monoc.spec.buildspace import Build, BuildParam, BuildSpace, DimDecl, Variant
from monoc.spec.docking import Docking

__all__ = [
    "REPLICATED", "Attribute", "Build", "BuildParam", "BuildSpace", "DimDecl", "Entry", "Extent",
    "HandoffOverride", "HostCall", "Launch", "Layout", "MapStatement", "OpStatement", "Operand", "Program",
    "Role", "Runner", "RunnerBound", "RunnerOption", "ScalarFunction", "ScaleDecl", "Schedule", "Sharding",
    "ShardingKind", "Statement", "Step", "Target", "TensorDecl", "ValueType", "Variant", "WeightClass",
    "WeightField",
]  # fmt: skip


# ------------------------------------------------------------------ types


class ShardingKind(StrEnum):
    """How the ranks' parts make up a value."""

    REPLICATED = "replicated"  # every rank holds the same bits
    SPLIT = "split"  # each rank holds its share of axis `axis`
    PARTIAL = "partial"  # the value is the sum over ranks of what each holds


@dataclass(frozen=True)
class Sharding:
    """A value's sharding over tp."""

    kind: ShardingKind
    axis: int | None = None  # of SPLIT

    def __str__(self) -> str:
        return f"split over axis {self.axis}" if self.kind is ShardingKind.SPLIT else self.kind.value


REPLICATED = Sharding(ShardingKind.REPLICATED)


@dataclass(frozen=True)
class ValueType:
    """Type of a value: ``dtype`` of an element, one rank's ``shape``, sharding over tp.

    ``block`` is set for block-scaled formats (MXFP8: dtype e4m3, block ``(1, 32)``): the elements an E8M0
    code covers in the last two axes."""

    dtype: DType
    shape: tuple[BuildExpr, ...]
    sharding: Sharding = REPLICATED
    block: tuple[int, int] | None = None


# ------------------------------------------------------------------ tensors


class Role(StrEnum):
    """What a tensor is to the layer."""

    INPUT = "input"  # given to every step; some are also written by a host call
    WEIGHT = "weight"
    CACHE = "cache"  # read and written in place (KV records)
    OUTPUT = "output"


@dataclass(frozen=True)
class Extent:
    """One axis of a tensor: ``size`` elements; at least so many if ``at_least``, at most if ``at_most``; any number if
    ``size`` is None."""

    size: BuildExpr | None
    at_least: bool = False
    at_most: bool = False


class Layout(StrEnum):
    """How a tensor's bytes are arranged (facts of the formats: docs/language.md, "Layouts")."""

    ROWS = "rows"  # row-major
    SHUFFLE16 = "shuffle16"  # (16, 16) byte shuffle: per 16 rows [K bytes / 16][16 rows][16 bytes]
    ROWS_PAD256 = "rows_pad256"  # row-major, rows of a multiple of 512 bytes followed by 256 unused bytes
    SHUFFLE_SCALE = "shuffle_scale"  # E8M0 codes of a SHUFFLE16 weight: 32x8 tiles, columns padded to 8
    FP8_DS_MLA = "fp8_ds_mla"  # KV blocks: B x (448 e4m3 | 64 bf16), then B x 8 bytes (7 E8M0 and a pad)


@dataclass(frozen=True)
class ScaleDecl:
    """The E8M0 codes of a block-scaled weight: a tensor ``name`` of uint8 with ``shape`` as the host holds it."""

    name: str
    block: tuple[int, int]  # rows x columns one code covers
    layout: Layout
    shape: tuple[BuildExpr, ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class TensorDecl:
    """A tensor the host hands over: elements ``dtype`` in logical ``shape`` (packed e2m1 pairs count twice).

    ``stored`` is ``shape`` with what the loader pads (``padded:``, zero weights; of an interleaved tensor each half
    is padded). ``host_shape`` is the shape of the torch tensor: the stored one with the last axis halved for packed
    formats, or what the spec wrote as ``host_shape`` (same elements, e.g. a trailing 1)."""

    name: str
    role: Role
    dtype: DType
    shape: tuple[Extent, ...]
    stored: tuple[Extent, ...]
    host_shape: tuple[Extent, ...]
    sharding: Sharding = REPLICATED
    layout: Layout = Layout.ROWS
    interleave: int | None = None  # rows of gate and up alternate in tiles of so many
    scale: ScaleDecl | None = None
    guard: BuildExpr = TRUE  # builds in which the tensor is given
    span: Span | None = field(default=None, compare=False)


# ------------------------------------------------------------------ statements


@dataclass(frozen=True)
class MapStatement:
    """``result[index] = expr``: one scalar program an element, reductions inside ``expr``.

    ``index`` names the result's axes in order; ``extents`` gives the range ``0 .. extent-1`` of every index
    variable, those of the reductions included."""

    result: str
    index: tuple[str, ...]
    expr: Expr
    extents: tuple[tuple[str, BuildExpr], ...]
    guard: BuildExpr
    scope: str  # instance path of the enclosing definition ("attn_seam"), "" at launch level
    origin: str  # "definition.local name", or the name itself at launch level
    span: Span | None = field(default=None, compare=False)

    @property
    def results(self) -> tuple[str, ...]:
        return (self.result,)

    @property
    def operands(self) -> tuple[str, ...]:
        """The values read, each once, in writing order."""
        return tuple(dict.fromkeys(a.tensor for a in accesses(self.expr)))

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        return tuple(n for n in walk(self.expr) if isinstance(n, Reduce))


@dataclass(frozen=True)
class Operand:
    """An operand of a structured operation: parameter name (monoc/spec/optable.py) and the value given."""

    param: str
    value: str
    optional: bool = False  # may be guarded off in some builds: the operation does without it there


@dataclass(frozen=True)
class ScalarFunction:
    """A ``fn`` of the spec as an attribute: ``body`` over :class:`~monoc.expr.ir.Local` names ``params``."""

    name: str
    params: tuple[str, ...]
    body: Expr


AttributeValue = float | str | BuildExpr | tuple[BuildExpr, ...] | ScalarFunction


@dataclass(frozen=True)
class Attribute:
    """A keyword of a structured operation: a size (BuildExpr), sizes, a real number, a choice or a function."""

    name: str
    value: AttributeValue


@dataclass(frozen=True)
class OpStatement:
    """``results = op(operands, attributes)``; operations with no results write one of their operands in place."""

    op: str
    results: tuple[str, ...]
    arguments: tuple[Operand, ...]
    attributes: tuple[Attribute, ...]
    guard: BuildExpr
    scope: str
    origin: str
    span: Span | None = field(default=None, compare=False)

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(o.value for o in self.arguments))

    def operand(self, param: str) -> str | None:
        """The value given for ``param``, None where it was left out."""
        return next((o.value for o in self.arguments if o.param == param), None)

    def attribute(self, name: str) -> AttributeValue:
        """An attribute's value (defaults are filled in). Raises ``KeyError``."""
        return {a.name: a.value for a in self.attributes}[name]


Statement = MapStatement | OpStatement


@dataclass(frozen=True)
class Launch:
    """One persistent launch: its statements in writing order."""

    name: str
    statements: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class HostCall:
    """Host code between launches: called with ``arguments``, it writes the tensors ``writes``."""

    name: str
    arguments: tuple[str, ...]
    writes: tuple[str, ...]
    guard: BuildExpr
    span: Span | None = field(default=None, compare=False)


Step = Launch | HostCall


@dataclass(frozen=True)
class Entry:
    """One method of the runner: tensors in, launches and host calls in order, tensors out.

    ``carried`` are the values one launch leaves in memory for a later launch or host call."""

    name: str
    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    carried: tuple[str, ...]
    span: Span | None = field(default=None, compare=False)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(s for s in self.steps if isinstance(s, Launch))

    @property
    def host_calls(self) -> tuple[HostCall, ...]:
        return tuple(s for s in self.steps if isinstance(s, HostCall))


# ------------------------------------------------------------------ host side, target, schedule


@dataclass(frozen=True)
class WeightField:
    """A field of a weight class: a tensor (or a scale tensor), a build parameter, an integer or another class."""

    name: str
    kind: str  # "tensor" | "scale" | "param" | "int" | "class"
    refers: str  # the tensor, weight, build parameter or class it stands for
    optional: bool = False


@dataclass(frozen=True)
class WeightClass:
    """A class of the runner that holds weights."""

    name: str
    fields: tuple[WeightField, ...]


@dataclass(frozen=True)
class RunnerOption:
    """A constructor keyword of the runner: fixes the build parameter ``sets`` (default: the first variant's value)."""

    name: str
    sets: str


@dataclass(frozen=True)
class RunnerBound:
    """Build parameter ``param`` bounds a size only the host knows: a step takes the narrowest build that holds the
    tensors declared ``<= param`` and the method keyword ``keyword``; the constructor keyword ``limit`` is the widest
    any layer will ask for."""

    param: str
    keyword: str
    limit: str


@dataclass(frozen=True)
class Runner:
    """The emitted runner's class, its weight classes and keywords."""

    class_name: str
    weights: tuple[WeightClass, ...]  # the last one is what the methods take
    options: tuple[RunnerOption, ...]
    first: tuple[tuple[str, tuple[float, ...]], ...] = ()  # incoming values of the first layer: tensor, row
    aliases: tuple[tuple[str, str], ...] = ()  # value or tensor name -> the host's name for it
    bounds: tuple[RunnerBound, ...] = ()
    defaults: tuple[tuple[str, bool], ...] = ()  # boolean build parameter -> its keyword's default where not True


@dataclass(frozen=True)
class Target:
    """The GPU compiled for, and the launches' shape on it."""

    arch: str
    ctas: int
    threads: int


@dataclass(frozen=True)
class HandoffOverride:
    """``schedule: handoff:`` the form of the edge that carries ``value`` in ``launch``, with the reason."""

    launch: str
    value: str
    form: str
    reason: str
    span: Span | None = field(default=None, compare=False)  # of the value
    launch_span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Schedule:
    """What the spec says of the schedule: overrides, knobs, two hops."""

    handoffs: tuple[HandoffOverride, ...] = ()
    knobs: tuple[tuple[str, BuildExpr], ...] = ()
    two_hop: BuildExpr | None = None  # the builds whose all-reduces go through each column's owner rank


# ------------------------------------------------------------------ the program


@dataclass(frozen=True)
class Program:
    """A whole spec, resolved and checked."""

    name: str
    licence: str  # SPDX expression for the emitted files
    path: str  # of the spec, as given
    digest: str  # sha256 of the parsed content, comments and formatting apart
    target: Target
    space: BuildSpace
    dims: tuple[DimDecl, ...]
    tensors: tuple[TensorDecl, ...]
    types: tuple[tuple[str, ValueType], ...]  # every tensor and value
    entries: tuple[Entry, ...]
    runner: Runner
    schedule: Schedule
    docking: Docking | None = None

    @cached_property
    def type_of(self) -> Mapping[str, ValueType]:
        return dict(self.types)

    @cached_property
    def tensor(self) -> Mapping[str, TensorDecl]:
        return {t.name: t for t in self.tensors}

    @cached_property
    def launch(self) -> Mapping[str, Launch]:
        return {s.name: s for e in self.entries for s in e.launches}

    def environment(self, build: Build) -> Mapping[str, BuildValue]:
        """Every build parameter and dimension of ``build`` as a number, by name."""
        env: dict[str, BuildValue] = dict(build.env)
        for dim in self.dims:
            env[dim.name] = dim.expr.evaluate(env)
        return env
