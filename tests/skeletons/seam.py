"""The four-stream seam of facts of the target model, as slots: fold, collapse, gates, Sinkhorn, norm."""

from __future__ import annotations

from monoc.expr.ir import Access, Binary, BinaryOp, DType, Expr, Fma, IndexConst, IndexVar, Local, Round
from monoc.expr.slot import Slot, SlotInput

__all__ = ["COLLAPSE", "FOLD", "access", "add", "mul"]


def access(tensor: str, *index: str | int) -> Access:
    return Access(tensor, tuple(IndexConst(i) if isinstance(i, int) else IndexVar(i) for i in index))


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
