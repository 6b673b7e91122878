"""Slots as FlyDSL text: grouping, constants, what has no place."""

import pytest

from monoc.expr.flydsl import flydsl_expression, flydsl_slot
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
    Round,
    Select,
    Unary,
    UnaryOp,
)  # fmt: skip
from monoc.expr.slot import Slot, SlotInput

A, B, C = Local("a"), Local("b"), Local("c")


def _bin(op: BinaryOp, x: Expr, y: Expr) -> Binary:
    return Binary(op, x, y)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (_bin(BinaryOp.ADD, _bin(BinaryOp.ADD, A, B), C), "a + b + c"),
        (_bin(BinaryOp.ADD, A, _bin(BinaryOp.ADD, B, C)), "a + (b + c)"),
        (_bin(BinaryOp.SUB, A, _bin(BinaryOp.SUB, B, C)), "a - (b - c)"),
        (_bin(BinaryOp.MUL, _bin(BinaryOp.ADD, A, B), C), "(a + b) * c"),
        (_bin(BinaryOp.ADD, _bin(BinaryOp.MUL, A, B), C), "a * b + c"),
        (_bin(BinaryOp.MUL, A, _bin(BinaryOp.MUL, B, C)), "a * (b * c)"),
        (_bin(BinaryOp.DIV, A, _bin(BinaryOp.MUL, B, C)), "a / (b * c)"),
        (Unary(UnaryOp.NEG, _bin(BinaryOp.ADD, A, B)), "-(a + b)"),
        (_bin(BinaryOp.MUL, Unary(UnaryOp.NEG, A), B), "-a * b"),
        (Unary(UnaryOp.ABS, _bin(BinaryOp.SUB, A, B)), "abs(a - b)"),
        (_bin(BinaryOp.MAX, A, _bin(BinaryOp.MIN, B, C)), "fx.max(a, fx.min(b, c))"),
        (Fma(_bin(BinaryOp.ADD, A, B), B, C), "fma(a + b, b, c)"),
        (Round(DType.BF16, A), "bf16_round(a)"),
        (Select(Compare(CompareOp.GT, A, Const(20.0)), A, B), "fx.Float32((a > constant_f32(20.0)).select(a, b))"),
    ],
)
def test_grouping_is_the_trees(expr: Expr, text: str) -> None:
    assert flydsl_expression(expr) == text


def test_constants_are_the_shortest_text_of_their_fp32() -> None:
    assert flydsl_expression(Const(1e-6)) == "constant_f32(1e-06)"
    assert flydsl_expression(Const(1.4426950408889634)) == "constant_f32(LOG2E)"
    assert flydsl_expression(Const(1.44)) == "constant_f32(1.44)"
    assert flydsl_expression(Const(-2.0)) == "constant_f32(-2.0)"


def test_a_slot_is_a_function() -> None:
    slot = Slot("gate", (SlotInput("a"), SlotInput("b")), (("c", _bin(BinaryOp.MUL, A, B)),), (C,), ("seam.pre",))
    assert flydsl_slot(slot) == 'def gate(a, b):\n    """seam.pre of the spec."""\n    c = a * b\n    return c\n'


def test_what_is_said_twice_gets_a_name() -> None:
    clamped = _bin(BinaryOp.MIN, A, Const(10.0))
    ratio = _bin(BinaryOp.DIV, clamped, _bin(BinaryOp.ADD, Const(1.0), Unary(UnaryOp.EXP, Unary(UnaryOp.NEG, clamped))))
    slot = Slot("gate", (SlotInput("a"), SlotInput("part")), (), (_bin(BinaryOp.MUL, ratio, ratio),), ("silu", "gate"))
    assert flydsl_slot(slot) == (
        "def gate(a, part):\n"
        '    """gate of the spec, through silu."""\n'
        "    part_2 = fx.min(a, constant_f32(10.0))\n"
        "    part_3 = part_2 / (constant_f32(1.0) + exp(-part_2))\n"
        "    return part_3 * part_3\n"
    )


def test_element_accesses_are_the_skeletons_business() -> None:
    with pytest.raises(TypeError, match="Access has no place in a slot"):
        flydsl_expression(Access("x", ()))
