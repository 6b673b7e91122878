"""Slots as FlyDSL source: one traced function each, one operation of the IR per operation of the text."""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import fields, replace
from itertools import chain
from itertools import count as numbers

from monoc.expr.ir import (
    Access,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    DType,
    Expr,
    Fma,
    Local,
    Reduce,
    Round,
    Select,
    Unary,
    UnaryOp,
    walk,
)  # fmt: skip
from monoc.expr.slot import Slot

__all__ = ["WORDS", "flydsl_expression", "flydsl_slot"]

_UNARY = {
    UnaryOp.EXP2: "exp2",
    UnaryOp.LOG2: "log2",
    UnaryOp.RCP: "rcp",
    UnaryOp.RSQ: "rsq",
    UnaryOp.EXP: "exp",
    UnaryOp.SQRT: "sqrt",
}
_INFIX = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.DIV: "/"}
_COMPARE = {
    CompareOp.LT: "<",
    CompareOp.LE: "<=",
    CompareOp.GT: ">",
    CompareOp.GE: ">=",
    CompareOp.EQ: "==",
    CompareOp.NE: "!=",
}


# Every name the text of a slot may use that is not its own.
WORDS = frozenset({*_UNARY.values(), "abs", "bf16_round", "constant_f32", "float", "fma", "fx", "LOG2E", "LN2"})


def _single(value: float) -> float:
    """``value`` rounded to fp32."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


# Constants the device library has a name for (``monoc/device/numeric.py``).
_NAMED = {_single(math.log2(math.e)): "LOG2E", _single(math.log(2)): "LN2"}


def _constant(value: float) -> str:
    """``value`` by its name, or as the shortest decimal of its fp32 rounding."""
    single = _single(value)
    if single in _NAMED:
        return f"constant_f32({_NAMED[single]})"
    if math.isinf(single) or math.isnan(single):
        return f'constant_f32(float("{single}"))'
    for digits in range(1, 18):
        text = f"{single:.{digits}g}"
        if _single(float(text)) == single:
            return f"constant_f32({float(text)!r})"
    raise AssertionError(value)


# How tightly an expression's text binds: sums, products, signs, and everything that needs no parentheses.
_SUM, _PRODUCT, _SIGN, _ATOM = 1, 2, 3, 4
_BINDS = {BinaryOp.ADD: _SUM, BinaryOp.SUB: _SUM, BinaryOp.MUL: _PRODUCT, BinaryOp.DIV: _PRODUCT}


def flydsl_expression(expr: Expr) -> str:
    """``expr`` (no :class:`Access`, no :class:`Reduce`: those are the skeleton's) as a FlyDSL expression.

    Parenthesised only where Python's grouping (left to right) would not be the tree's. Raises ``TypeError``.
    """
    return _text(expr)[0]


def _operand(expr: Expr, at_least: int) -> str:
    text, binds = _text(expr)
    return text if binds >= at_least else f"({text})"


def _text(expr: Expr) -> tuple[str, int]:
    """The text of ``expr`` and how tightly it binds."""
    match expr:
        case Const(value=value):
            return _constant(value), _ATOM
        case Local(name=name):
            return name, _ATOM
        case Unary(op=UnaryOp.NEG, x=x):
            return f"-{_operand(x, _SIGN)}", _SIGN
        case Unary(op=UnaryOp.ABS, x=x):
            return f"abs({flydsl_expression(x)})", _ATOM
        case Unary(op=op, x=x):
            return f"{_UNARY[op]}({flydsl_expression(x)})", _ATOM
        case Binary(op=BinaryOp.MIN | BinaryOp.MAX as op, a=a, b=b):
            return f"fx.{op}({flydsl_expression(a)}, {flydsl_expression(b)})", _ATOM
        case Binary(op=op, a=a, b=b):
            binds = _BINDS[op]
            return f"{_operand(a, binds)} {_INFIX[op]} {_operand(b, binds + 1)}", binds
        case Fma(a=a, b=b, c=c):
            return f"fma({flydsl_expression(a)}, {flydsl_expression(b)}, {flydsl_expression(c)})", _ATOM
        case Round(dtype=DType.BF16, x=x):
            return f"bf16_round({flydsl_expression(x)})", _ATOM
        case Round(dtype=DType.F32, x=x):
            return _text(x)
        case Compare(op=op, a=a, b=b):
            return f"{_operand(a, _SUM)} {_COMPARE[op]} {_operand(b, _SUM)}", 0
        case Select(condition=condition, a=a, b=b):
            chosen = f"{_operand(condition, _ATOM)}.select({flydsl_expression(a)}, {flydsl_expression(b)})"
            return f"fx.Float32({chosen})", _ATOM
        case Access() | Reduce() | Round():
            raise TypeError(f"{type(expr).__name__} has no place in a slot: {expr}")
    raise TypeError(f"not an expression: {expr!r}")


def flydsl_slot(slot: Slot) -> str:
    """The function of ``slot``: f32 parameters in order, one result or a tuple of them.

    What an expression says twice gets a name first.
    """
    parameters = ", ".join(i.name for i in slot.inputs)
    lines = [f"def {slot.name}({parameters}):", f'    """{_docstring(slot.statements)}"""']
    shared = _Shared({i.name for i in slot.inputs} | {name for name, _ in slot.lets})
    for name, expr in slot.lets:
        lines += [f"    {n} = {text}" for n, text in shared.bound((expr,))]
        lines.append(f"    {name} = {flydsl_expression(shared.named(expr))}")
    lines += [f"    {n} = {text}" for n, text in shared.bound(slot.results)]
    lines.append(f"    return {', '.join(flydsl_expression(shared.named(e)) for e in slot.results)}")
    return "\n".join(lines) + "\n"


def _docstring(statements: tuple[str, ...]) -> str:
    """What of the spec it computes: the last statement, through the ones before."""
    *before, last = statements
    return f"{last} of the spec{', through ' + ', '.join(before) if before else ''}."


class _Shared:
    """Names for the expressions that occur more than once. ``taken``: names in use."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.names: dict[Expr, str] = {}

    def bound(self, exprs: tuple[Expr, ...]) -> list[tuple[str, str]]:
        """The repeated expressions of ``exprs`` that have no name yet, inner ones first: (name, text)."""
        count = Counter(node for e in exprs for node in walk(e) if not isinstance(node, Const | Local | Compare))
        out: list[tuple[str, str]] = []
        for node in sorted((n for n, times in count.items() if times > 1), key=lambda n: sum(1 for _ in walk(n))):
            outer = [n for n, times in count.items() if n != node and times == count[node] and node in walk(n)]
            if node in self.names or outer:  # said only inside a larger one as often
                continue
            text = flydsl_expression(self.named(node))
            self.names[node] = self._new()
            out.append((self.names[node], text))
        return out

    def _new(self) -> str:
        names = chain(["part"], (f"part_{i}" for i in numbers(2)))
        name = next(n for n in names if n not in self.taken)
        self.taken.add(name)
        return name

    def named(self, expr: Expr) -> Expr:
        """``expr`` with every expression that has a name replaced by it."""
        if expr in self.names:
            return Local(self.names[expr])
        parts = {f.name: getattr(expr, f.name) for f in fields(expr)}
        changed = {name: self.named(part) for name, part in parts.items() if isinstance(part, Expr)}
        return replace(expr, **changed) if changed else expr  # type: ignore[arg-type]
