"""Slots from statements: inlining, unrolling, index arithmetic; values checked against the statements themselves."""

from __future__ import annotations

import pytest

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
    Reduce,
    ReduceOp,
    Round,
    accesses,
    walk,
)
from monoc.passes.slots import SlotError, SlotMaker, identifier
from monoc.spec.buildexpr import TRUE, BuildName
from monoc.spec.program import MapStatement

T, S, C = IndexVar("t"), IndexVar("s"), IndexVar("c")


def statement(result: str, index: tuple[str, ...], expr: Expr) -> MapStatement:
    extents = tuple((v, BuildName(v)) for v in index)
    return MapStatement(result, index, expr, extents, TRUE, "", result)


def value(expr: Expr, names: dict[str, float]) -> float:
    """An expression of locals, in doubles (no rounding: the values are small integers)."""
    match expr:
        case Const(value=v):
            return v
        case Local(name=name):
            return names[name]
        case Binary(op=op, a=a, b=b):
            x, y = value(a, names), value(b, names)
            return {BinaryOp.ADD: x + y, BinaryOp.SUB: x - y, BinaryOp.MUL: x * y, BinaryOp.MAX: max(x, y)}[op]
        case Fma(a=a, b=b, c=c):
            return value(a, names) * value(b, names) + value(c, names)
        case Round(x=x):
            return value(x, names)
    raise AssertionError(expr)


def run(maker: SlotMaker, name: str, read: dict[Access, float]) -> float:
    slot = maker.make("slot", name)
    names = {i.name: read[i.access] for i in slot.inputs if i.access is not None}
    assert len(names) == len(slot.inputs)
    for let, expr in slot.lets:
        assert not accesses(expr)
        names[let] = value(expr, names)
    return value(slot.results[0], names)


def test_a_map_of_a_map_is_inlined_once() -> None:
    v = statement("v", ("t", "j"), Binary(BinaryOp.MUL, Access("mix", (T, IndexVar("j"))), Access("r", (T,))))
    twice = statement("p", ("t", "s"), Binary(BinaryOp.ADD, Access("v", (T, S)), Access("v", (T, S))))
    maker = SlotMaker({"v": v, "p": twice}, {})
    slot = maker.make("slot", "p")
    assert [i.access for i in slot.inputs] == [Access("mix", (T, S)), Access("r", (T,))]
    assert len(slot.lets) == 1
    assert run(maker, "p", {Access("mix", (T, S)): 3, Access("r", (T,)): 5}) == 30


def test_index_sums_compose() -> None:
    v = statement("v", ("t", "j"), Access("mix", (T, IndexVar("j"))))
    z = statement("z", ("t", "r", "s"), Access("v", (T, IndexSum((("r", 4), ("s", 1)), 8))))
    slot = SlotMaker({"v": v, "z": z}, {}).make("slot", "z")
    assert slot.inputs[0].access == Access("mix", (T, IndexSum((("r", 4), ("s", 1)), 8)))
    fixed = statement("z", ("t", "s"), Access("v", (T, IndexSum((("s", 2),), 1))))
    at = statement("q", ("t",), Access("z", (T, IndexConst(3))))
    slot = SlotMaker({"v": v, "z": fixed, "q": at}, {}).make("slot", "q")
    assert slot.inputs[0].access == Access("mix", (T, IndexConst(7)))


@pytest.mark.parametrize(
    ("op", "expected"), [(ReduceOp.ORDERED_SUM, 10), (ReduceOp.PAIRWISE_SUM, 10), (ReduceOp.MAX, 4)]
)
def test_short_reductions_are_unrolled(op: ReduceOp, expected: float) -> None:
    h = statement("h", ("t", "c"), Reduce(op, ("s",), Access("S", (T, S, C))))
    read = {Access("S", (T, IndexConst(s), C)): s + 1.0 for s in range(4)}
    assert run(SlotMaker({"h": h}, {"s": 4}), "h", read) == expected


def test_the_order_of_a_sum_is_kept() -> None:
    def shape(op: ReduceOp) -> Expr:
        h = statement("h", ("t",), Reduce(op, ("s",), Access("S", (T, S))))
        return SlotMaker({"h": h}, {"s": 4}).make("slot", "h").results[0]

    a, b, c, d = (Local(n) for n in ("S_0", "S_1", "S_2", "S_3"))

    def add(x: Expr, y: Expr) -> Expr:
        return Binary(BinaryOp.ADD, x, y)

    assert shape(ReduceOp.ORDERED_SUM) == add(add(add(a, b), c), d)
    assert shape(ReduceOp.PAIRWISE_SUM) == add(add(a, b), add(c, d))


def test_a_rounded_sum_rounds_after_every_addition() -> None:
    body = Access("S", (T, S))
    h = statement("h", ("t",), Reduce(ReduceOp.ORDERED_SUM, ("s",), body, DType.BF16))
    result = SlotMaker({"h": h}, {"s": 3}).make("slot", "h").results[0]
    assert sum(isinstance(n, Round) for n in walk(result)) == 2


def test_long_sums_are_refused_by_name() -> None:
    h = statement("h", ("t",), Reduce(ReduceOp.SUM, ("c",), Access("S", (T, C))))
    with pytest.raises(SlotError, match="h: the sum over c is too long"):
        SlotMaker({"h": h}, {"c": 5120}).make("slot", "h")


def test_inputs_asked_for_come_first_and_names_do_not_clash() -> None:
    expr = Binary(BinaryOp.MUL, Access("a.x", (T,)), Binary(BinaryOp.ADD, Access("b.x", (T,)), Access("w", (T,))))
    slot = SlotMaker({"p": statement("p", ("t",), expr)}, {}).make("slot", "p", order=("w", "b.x"))
    assert [i.access.tensor for i in slot.inputs if i.access] == ["w", "b.x", "a.x"]
    assert len({i.name for i in slot.inputs}) == 3
    assert identifier("attn_seam.S") == "attn_seam_S"
