"""The four-stream seam of facts of the target model, as slots: fold, collapse, gates, Sinkhorn, norm."""

from __future__ import annotations

import math

from monoc.expr.ir import (
    Access,
    Binary,
    BinaryOp,
    Const,
    DType,
    Expr,
    Fma,
    IndexConst,
    IndexSum,
    IndexVar,
    Local,
    ReduceOp,
    Round,
    Unary,
    UnaryOp,
)  # fmt: skip
from monoc.expr.slot import Slot, SlotInput
from monoc.skeletons.token_program import MatrixProgram, MatrixStep

__all__ = ["COLLAPSE", "FOLD", "SCALE", "SINKHORN", "access", "add", "divided_rstd", "gates", "mul", "rstd", "scale"]


def access(tensor: str, *index: str | int | IndexSum) -> Access:
    terms = {int: IndexConst, str: IndexVar}
    return Access(tensor, tuple(i if isinstance(i, IndexSum) else terms[type(i)](i) for i in index))


def add(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.ADD, a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.MUL, a, b)


def _fold() -> Slot:
    inputs = [
        SlotInput("x", access("x", "t", "c")),
        SlotInput("post", access("post", "t", "s")),
        *(SlotInput(f"r{i}", access("R", "t", i, "c")) for i in range(4)),
        *(SlotInput(f"c{i}", access("comb", "t", i, "s")) for i in range(4)),
    ]
    v: Expr = mul(Local("post"), Local("x"))
    for i in range(3):
        v = add(v, mul(Local(f"c{i}"), Local(f"r{i}")))
    v = Fma(Local("c3"), Local("r3"), v)
    return Slot("seam_fold", tuple(inputs), (), (Round(DType.BF16, v),), ("S[t,s,c] = ...",))


def _collapse() -> Slot:
    inputs = [SlotInput(f"p{i}", access("pre", "t", i)) for i in range(4)]
    inputs += [SlotInput(f"s{i}", access("S", "t", i, "c")) for i in range(4)]
    v: Expr = mul(Local("p0"), Local("s0"))
    for i in range(1, 4):
        v = add(v, mul(Local(f"p{i}"), Local(f"s{i}")))
    return Slot("seam_collapse", tuple(inputs), (), (Round(DType.BF16, v),), ("h[t,c] = ...",))


FOLD = _fold()
COLLAPSE = _collapse()

_LOG2E = 1.0 / math.log(2.0)
_EPS = 1e-20
_HC_EPS = 1e-6


def _gate(name: str, scale: int, index: str | IndexSum, hidden: int, result: Expr) -> Slot:
    """``result`` of ``v = fma(mix * rstd, scale, base)``."""
    inputs = (
        SlotInput("mix", access("mix", "t", index)),
        SlotInput("ss", access("ss", "t")),
        SlotInput("scale", access("scale", scale)),
        SlotInput("base", access("base", index)),
    )
    rstd = Unary(UnaryOp.RSQ, Fma(Local("ss"), Const(1.0 / hidden), Const(_EPS)))
    v = Fma(mul(Local("mix"), rstd), Local("scale"), Local("base"))
    return Slot(name, inputs, (("v", v),), (result,), (name,))


def _sigmoid(x: Expr) -> Expr:
    exp = Unary(UnaryOp.EXP2, mul(x, Unary(UnaryOp.NEG, Const(_LOG2E))))
    return Binary(BinaryOp.DIV, Const(1.0), add(Const(1.0), exp))


def gates(hidden: int) -> tuple[Slot, Slot, Slot]:
    """pre, post and the comb logits; ``hidden``: streams times the row's columns."""
    pre = _gate("seam_pre", 0, "s", hidden, add(_sigmoid(Local("v")), Const(_HC_EPS)))
    post = _gate("seam_post", 1, IndexSum((("s", 1),), 4), hidden, mul(_sigmoid(Local("v")), Const(2.0)))
    comb = _gate("seam_comb", 2, IndexSum((("r", 4), ("s", 1)), 8), hidden, Local("v"))
    return pre, post, comb


def sinkhorn(name: str, iterations: int, eps: float) -> MatrixProgram:
    """The doubly normalised ``exp`` of a matrix of logits, rows first, ``iterations`` (at least 1) of both.

    ``e = exp2((z - rowmax) * log2e)``; rows ``fma(e, rcp(rowsum), eps)``, columns ``e * rcp(colsum + eps)``; then rows
    ``e * rcp(rowsum + eps)``, columns as before, again and again. ``name``: the slots' names start with it.
    """
    e, total = Local("e"), Local("total")

    def step(part: str, result: Expr) -> Slot:
        return Slot(f"{name}_{part}", (SlotInput("e"), SlotInput("total")), (), (result,), (f"{name}: {part}",))

    shifted = Binary(BinaryOp.MUL, Binary(BinaryOp.SUB, e, total), Const(1.0 / math.log(2.0)))
    exp = step("exp", Unary(UnaryOp.EXP2, shifted))
    first = step("first_rows", Fma(e, Unary(UnaryOp.RCP, total), Const(eps)))
    floored = Unary(UnaryOp.RCP, Binary(BinaryOp.ADD, total, Const(eps)))
    scaled = step("scaled", Binary(BinaryOp.MUL, e, floored))
    rows, columns = MatrixStep(scaled, "row"), MatrixStep(scaled, "column")
    start = (MatrixStep(exp, "row", ReduceOp.MAX), MatrixStep(first, "row"), columns)
    return MatrixProgram(start, (rows, columns), str(iterations - 1))


SINKHORN = sinkhorn("seam_sinkhorn", 20, _HC_EPS)


def scale(name: str, value: str, weight: str) -> Slot:
    """bf16((value rstd) weight)."""
    inputs = (
        SlotInput("h", access(value, "t", "c")),
        SlotInput("r", access("rstd", "t")),
        SlotInput("w", access(weight, "c")),
    )
    return Slot(name, inputs, (), (Round(DType.BF16, mul(mul(Local("h"), Local("r")), Local("w"))),), ("y",))


def divided_rstd(name: str, columns: int) -> Slot:
    """rsq(RN(sum / columns) + eps)."""
    result = Unary(UnaryOp.RSQ, add(Binary(BinaryOp.DIV, Local("sum"), Const(float(columns))), Const(_EPS)))
    return Slot(name, (SlotInput("sum"),), (), (result,), ("rstd",))


def rstd(columns: int) -> Slot:
    """rsq(fma(sum, 1 / columns, eps))."""
    result = Unary(UnaryOp.RSQ, Fma(Local("sum"), Const(1.0 / columns), Const(_EPS)))
    return Slot("seam_rstd", (SlotInput("sum"),), (), (result,), ("rstd",))


SCALE = scale("seam_scale", "h", "w")
