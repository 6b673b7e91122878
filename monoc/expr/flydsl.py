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

__all__ = ["flydsl_expression", "flydsl_slot", "used_device_functions"]

_UNARY = {
    UnaryOp.EXP2: "exp2",
    UnaryOp.LOG2: "log2",
    UnaryOp.RCP: "rcp",
    UnaryOp.RSQ: "rsq",
    UnaryOp.EXP: "exp",
    UnaryOp.SQRT: "sqrt",
}
_INFIX = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*"}
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


def flydsl_expression(expr: Expr) -> str:
    """``expr`` (no :class:`Access`, no :class:`Reduce`: those are the skeleton's) as a FlyDSL expression."""
    match expr:
        case Const(value=value):
            return _constant(value)
        case Local(name=name):
            return name
        case Unary(op=UnaryOp.NEG, x=x):
            return f"(-{flydsl_expression(x)})"
        case Unary(op=UnaryOp.ABS, x=x):
            return f"abs({flydsl_expression(x)})"
        case Unary(op=op, x=x):
            return f"{_UNARY[op]}({flydsl_expression(x)})"
        case Binary(op=BinaryOp.DIV, a=a, b=b):
            return f"({flydsl_expression(a)} / {flydsl_expression(b)})"
        case Binary(op=BinaryOp.MIN | BinaryOp.MAX as op, a=a, b=b):
            return f"fx.{op}({flydsl_expression(a)}, {flydsl_expression(b)})"
        case Binary(op=op, a=a, b=b):
            return f"({flydsl_expression(a)} {_INFIX[op]} {flydsl_expression(b)})"
        case Fma(a=a, b=b, c=c):
            return f"fma({flydsl_expression(a)}, {flydsl_expression(b)}, {flydsl_expression(c)})"
        case Round(dtype=DType.BF16, x=x):
            return f"bf16_round({flydsl_expression(x)})"
        case Round(dtype=DType.F32, x=x):
            return flydsl_expression(x)
        case Compare(op=op, a=a, b=b):
            return f"({flydsl_expression(a)} {_COMPARE[op]} {flydsl_expression(b)})"
        case Select(condition=condition, a=a, b=b):
            chosen = f"{flydsl_expression(condition)}.select({flydsl_expression(a)}, {flydsl_expression(b)})"
            return f"fx.Float32({chosen})"
        case Access() | Reduce() | Round():
            raise TypeError(f"{type(expr).__name__} has no place in a slot: {expr}")
    raise TypeError(f"not an expression: {expr!r}")


def flydsl_slot(slot: Slot) -> str:
    """The function of ``slot``: f32 parameters in order, one result or a tuple of them."""
    parameters = ", ".join(i.name for i in slot.inputs)
    lines = [f"def {slot.name}({parameters}):", f'    """{"; ".join(slot.statements)}"""']
    lines += [f"    {name} = {_bare(flydsl_expression(e))}" for name, e in slot.lets]
    lines.append(f"    return {', '.join(_bare(flydsl_expression(e)) for e in slot.results)}")
    return "\n".join(lines) + "\n"


def _bare(text: str) -> str:
    """``text`` without one pair of parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]


def used_device_functions() -> frozenset[str]:
    """The device library's names a slot may call."""
    return frozenset({*_UNARY.values(), "fma", "bf16_round", "constant_f32"})
