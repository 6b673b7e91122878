"""Slots as FlyDSL source: one traced function each, one operation of the IR per operation of the text."""

from __future__ import annotations

import math
import struct

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
)  # fmt: skip
from monoc.expr.slot import Slot

__all__ = ["flydsl_expression", "flydsl_slot"]

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


def _constant(value: float) -> str:
    """``value`` as the shortest decimal of its fp32 rounding."""
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    if math.isinf(single) or math.isnan(single):
        return f'constant_f32(float("{single}"))'
    for digits in range(1, 18):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
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
    """The function of ``slot``: f32 parameters in order, one result or a tuple of them."""
    parameters = ", ".join(i.name for i in slot.inputs)
    lines = [f"def {slot.name}({parameters}):", f'    """{"; ".join(slot.statements)}"""']
    lines += [f"    {name} = {flydsl_expression(e)}" for name, e in slot.lets]
    lines.append(f"    return {', '.join(flydsl_expression(e) for e in slot.results)}")
    return "\n".join(lines) + "\n"
