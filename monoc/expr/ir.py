"""Scalar expressions with explicit rounding: what the spec language writes between ``=`` and the line's end.

Every arithmetic node is one IEEE fp32 operation, rounded to nearest even; nothing is ever contracted, so
``a * b + c`` rounds twice and :class:`Fma` once. ``exp2``, ``log2``, ``rcp`` and ``rsq`` are the
hardware's approximations (about 1 ulp, denormals flushed); ``exp``, ``sqrt``, ``div`` round correctly.
The same tree prints to FlyDSL (:mod:`monoc.expr.flydsl`) and evaluates in torch (:mod:`monoc.expr.torch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum

__all__ = [
    "Access", "Binary", "BinaryOp", "Compare", "CompareOp", "Const", "DType", "Expr", "Fma", "IndexConst",
    "IndexSum", "IndexTerm", "IndexVar", "Local", "Reduce", "ReduceOp", "Round", "Select", "Span", "Unary", "UnaryOp",
    "accesses", "walk",
]  # fmt: skip


class DType(StrEnum):
    """Element types of values and tensors."""

    F32 = "f32"
    BF16 = "bf16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    E4M3 = "e4m3"
    E2M1X2 = "e2m1x2"  # two e2m1 values a byte, low nibble first
    E8M0 = "e8m0"


@dataclass(frozen=True)
class Span:
    """Where a node was written: 1-based line and column of ``file``, ``length`` columns long."""

    file: str
    line: int
    column: int
    length: int = 1


class UnaryOp(StrEnum):
    """Functions of one value."""

    NEG = "neg"
    ABS = "abs"
    EXP2 = "exp2"
    LOG2 = "log2"
    RCP = "rcp"
    RSQ = "rsq"
    EXP = "exp"
    SQRT = "sqrt"


class BinaryOp(StrEnum):
    """Functions of two values."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MIN = "min"
    MAX = "max"


class CompareOp(StrEnum):
    """Comparisons, of fp32 values."""

    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    EQ = "eq"
    NE = "ne"


class ReduceOp(StrEnum):
    """How a reduction adds up (or takes the largest)."""

    SUM = "sum"  # any order: split over lanes, waves and CTAs as the schedule likes
    ORDERED_SUM = "ordered_sum"  # ((x0 + x1) + x2) + ..., in index order
    PAIRWISE_SUM = "pairwise_sum"  # (x0 + x1) + (x2 + x3), ...: a balanced tree in index order
    MAX = "max"


@dataclass(frozen=True)
class IndexVar:
    """An index variable by its name."""

    name: str


@dataclass(frozen=True)
class IndexConst:
    """A fixed index."""

    value: int


@dataclass(frozen=True)
class IndexSum:
    """``sum of factor * variable + offset``, e.g. ``8 + 4*r + s``; at least one term."""

    terms: tuple[tuple[str, int], ...]  # (variable, factor)
    offset: int


IndexTerm = IndexVar | IndexConst | IndexSum


@dataclass(frozen=True)
class _Node:
    span: Span | None = field(default=None, compare=False, kw_only=True, repr=False)


@dataclass(frozen=True)
class Const(_Node):
    """An fp32 constant: ``value`` rounded to fp32 once."""

    value: float


@dataclass(frozen=True)
class Access(_Node):
    """One element of a named value, e.g. ``comb[t,3,s]``; read exactly, as fp32."""

    tensor: str
    index: tuple[IndexTerm, ...]


@dataclass(frozen=True)
class Local(_Node):
    """A scalar bound earlier in the same slot."""

    name: str


@dataclass(frozen=True)
class Unary(_Node):
    """``op(x)``."""

    op: UnaryOp
    x: Expr


@dataclass(frozen=True)
class Binary(_Node):
    """``op(a, b)``, rounded once."""

    op: BinaryOp
    a: Expr
    b: Expr


@dataclass(frozen=True)
class Fma(_Node):
    """``a * b + c`` rounded once."""

    a: Expr
    b: Expr
    c: Expr


@dataclass(frozen=True)
class Round(_Node):
    """``x`` rounded to ``dtype`` (nearest even) and widened back to fp32."""

    dtype: DType
    x: Expr


@dataclass(frozen=True)
class Compare(_Node):
    """``a op b``, the condition of a :class:`Select`."""

    op: CompareOp
    a: Expr
    b: Expr


@dataclass(frozen=True)
class Select(_Node):
    """``a`` where ``condition`` holds, else ``b``; both are computed."""

    condition: Compare
    a: Expr
    b: Expr


@dataclass(frozen=True)
class Reduce(_Node):
    """A reduction of ``body`` over the index variables ``over``, in fp32.

    An ordered sum with ``rounding`` rounds to that type after every addition (its first term is taken as it is)."""

    op: ReduceOp
    over: tuple[str, ...]
    body: Expr
    rounding: DType | None = None


Expr = Const | Access | Local | Unary | Binary | Fma | Round | Compare | Select | Reduce


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of ``expr``, parents first, in writing order."""
    yield expr
    for f in fields(expr):
        child = getattr(expr, f.name)
        if isinstance(child, _Node):
            yield from walk(child)  # type: ignore[arg-type]


def accesses(expr: Expr) -> tuple[Access, ...]:
    """The distinct element reads of ``expr``, in writing order."""
    return tuple(dict.fromkeys(n for n in walk(expr) if isinstance(n, Access)))
