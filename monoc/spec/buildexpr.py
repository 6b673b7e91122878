"""Integer and boolean expressions over dimensions and build parameters.

Dimensions (``64 / tp``), guards (``index and ratio > 0``) and tensor extents are all of this one small
tree. It is data: parsed by the grammar, evaluated by :meth:`BuildExpr.evaluate`, printed by
:meth:`BuildExpr.text`; nothing here ever reaches ``eval``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from monoc.expr.ir import Span

__all__ = [
    "TRUE",
    "BinOp",
    "BuildAny",
    "BuildBinary",
    "BuildCall",
    "BuildExpr",
    "BuildFunction",
    "BuildInt",
    "BuildName",
    "BuildNot",
    "BuildValue",
    "InexactDivisionError",
    "conjunction",
    "negation",
]

BuildValue = int | bool | str


class InexactDivisionError(ArithmeticError):
    """``/`` met operands that do not divide, or ``/``, ``cdiv`` or ``pad`` a divisor they cannot take."""

    def __init__(self, expr: BuildExpr, a: int, b: int) -> None:
        super().__init__(f"{a} / {b}")
        self.expr, self.a, self.b = expr, a, b


class BinOp(StrEnum):
    """Operators; the value is how the language (and Python) writes them, ``/`` being exact division."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="
    AND = "and"
    OR = "or"


class BuildFunction(StrEnum):
    """Functions of the language of sizes."""

    CDIV = "cdiv"  # division rounded up
    PAD = "pad"  # pad(n, m): n rounded up to a multiple of m
    MIN = "min"
    MAX = "max"


_LEVEL = {
    BinOp.OR: 1,
    BinOp.AND: 2,
    BinOp.LT: 4,
    BinOp.LE: 4,
    BinOp.GT: 4,
    BinOp.GE: 4,
    BinOp.EQ: 4,
    BinOp.NE: 4,
    BinOp.ADD: 5,
    BinOp.SUB: 5,
    BinOp.MUL: 6,
    BinOp.DIV: 6,
}


@dataclass(frozen=True)
class BuildExpr:
    """A node of the tree: what all of them can do."""

    span: Span | None = field(default=None, compare=False, kw_only=True, repr=False)

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        """The value where every name is ``env``'s; truth values are 0 and 1, ``and`` and ``or`` as in Python.

        Raises :class:`InexactDivisionError` where ``/`` has a remainder or a divisor is no good, ``KeyError`` for a
        missing name."""
        raise NotImplementedError

    def names(self) -> frozenset[str]:
        """Every dimension and build parameter mentioned."""
        return frozenset(n.name for n in self.walk() if isinstance(n, BuildName))

    def children(self) -> tuple[BuildExpr, ...]:
        return ()

    def walk(self) -> Iterator[BuildExpr]:
        yield self
        for child in self.children():
            yield from child.walk()

    def text(self, name: Callable[[str], str] = str, *, python: bool = False) -> str:
        """Source text; ``name`` maps names. With ``python``, ``/`` prints as ``//`` (exact by the checks)."""
        return self._print(name, python)[0]

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class BuildInt(BuildExpr):
    """An integer."""

    value: int

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        return self.value

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        return str(self.value), 9 if self.value >= 0 else 7


@dataclass(frozen=True)
class BuildAny(BuildExpr):
    """A size only the host knows (``*``): it has no value here, and equals no other."""

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        raise KeyError("*")

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        return "*", 9


@dataclass(frozen=True)
class BuildName(BuildExpr):
    """A dimension or a build parameter."""

    name: str

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        return int(env[self.name])

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        return name(self.name), 9


@dataclass(frozen=True)
class BuildNot(BuildExpr):
    """``not x``."""

    x: BuildExpr

    def children(self) -> tuple[BuildExpr, ...]:
        return (self.x,)

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        return int(not self.x.evaluate(env))

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        text, level = self.x._print(name, python)
        return f"not {text}" if level >= 3 else f"not ({text})", 3


@dataclass(frozen=True)
class BuildBinary(BuildExpr):
    """``a op b``; ``/`` is exact."""

    op: BinOp
    a: BuildExpr
    b: BuildExpr

    def children(self) -> tuple[BuildExpr, ...]:
        return (self.a, self.b)

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        a = self.a.evaluate(env)
        if self.op is BinOp.AND:
            return a and self.b.evaluate(env)
        if self.op is BinOp.OR:
            return a or self.b.evaluate(env)
        b = self.b.evaluate(env)
        if self.op is BinOp.DIV:
            if b == 0 or a % b:
                raise InexactDivisionError(self, a, b)
            return a // b
        return int(_APPLY[self.op](a, b))

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        level = _LEVEL[self.op]
        (a, la), (b, lb) = self.a._print(name, python), self.b._print(name, python)
        chains = self.op in (BinOp.ADD, BinOp.MUL, BinOp.AND, BinOp.OR)
        a = a if la > level or (la == level and level != 4) else f"({a})"
        b = b if lb > level or (lb == level and chains and _same(self.b, self.op)) else f"({b})"
        op = "//" if python and self.op is BinOp.DIV else self.op.value
        return f"{a} {op} {b}", level


def _same(expr: BuildExpr, op: BinOp) -> bool:
    return isinstance(expr, BuildBinary) and expr.op is op


@dataclass(frozen=True)
class BuildCall(BuildExpr):
    """``function(args)``."""

    function: BuildFunction
    args: tuple[BuildExpr, ...]

    def children(self) -> tuple[BuildExpr, ...]:
        return self.args

    def evaluate(self, env: Mapping[str, BuildValue]) -> int:
        args = [a.evaluate(env) for a in self.args]
        if self.function in (BuildFunction.CDIV, BuildFunction.PAD) and args[1] < 1:
            raise InexactDivisionError(self, args[0], args[1])
        match self.function:
            case BuildFunction.MIN:
                return min(args)
            case BuildFunction.MAX:
                return max(args)
            case BuildFunction.CDIV:
                return -(-args[0] // args[1])
            case BuildFunction.PAD:
                return -(-args[0] // args[1]) * args[1]

    def _print(self, name: Callable[[str], str], python: bool) -> tuple[str, int]:
        called = "round_up" if python and self.function is BuildFunction.PAD else self.function.value
        return f"{called}({', '.join(a._print(name, python)[0] for a in self.args)})", 9


_APPLY: Mapping[BinOp, Callable[[int, int], int | bool]] = {
    BinOp.ADD: lambda a, b: a + b,
    BinOp.SUB: lambda a, b: a - b,
    BinOp.MUL: lambda a, b: a * b,
    BinOp.LT: lambda a, b: a < b,
    BinOp.LE: lambda a, b: a <= b,
    BinOp.GT: lambda a, b: a > b,
    BinOp.GE: lambda a, b: a >= b,
    BinOp.EQ: lambda a, b: a == b,
    BinOp.NE: lambda a, b: a != b,
}

TRUE = BuildInt(1)


def negation(x: BuildExpr) -> BuildExpr:
    """``not x``, with a double negation removed."""
    if isinstance(x, BuildNot):
        return x.x
    return BuildInt(int(not x.value)) if isinstance(x, BuildInt) else BuildNot(x, span=x.span)


def conjunction(a: BuildExpr, b: BuildExpr) -> BuildExpr:
    """``a and b``, dropping what is constantly true or said twice."""
    if a in (TRUE, b):
        return b
    return a if b == TRUE else BuildBinary(BinOp.AND, a, b, span=b.span)
