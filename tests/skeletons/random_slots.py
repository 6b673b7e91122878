"""Random scalar programs, and what they compute, by numpy: one IEEE fp32 operation a node."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from monoc.expr.ir import (
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

__all__ = ["evaluate_slot", "exact_programs"]

_LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
_LIBM.fmaf.restype = ctypes.c_float
_LIBM.fmaf.argtypes = [ctypes.c_float] * 3
_fmaf = np.frompyfunc(_LIBM.fmaf, 3, 1)
_BINARY = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
}
_UNARY = {UnaryOp.NEG: np.negative, UnaryOp.ABS: np.abs, UnaryOp.SQRT: lambda x: np.sqrt(x)}
_COMPARE = {
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.GT: np.greater,
    CompareOp.GE: np.greater_equal,
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
}


def _bf16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def _evaluate(expr: Expr, names: Mapping[str, np.ndarray]) -> np.ndarray:
    def inner(e: Expr) -> np.ndarray:
        return _evaluate(e, names)

    match expr:
        case Const(value=value):
            return np.full(next(iter(names.values())).shape, value, np.float32)
        case Local(name=name):
            return names[name]
        case Unary(op=op, x=x):
            return _UNARY[op](inner(x))
        case Binary(op=op, a=a, b=b):
            return _BINARY[op](inner(a), inner(b))
        case Fma(a=a, b=b, c=c):
            return np.asarray(_fmaf(inner(a), inner(b), inner(c)), np.float32)
        case Round(dtype=DType.BF16, x=x):
            return _bf16(inner(x))
        case Select(condition=Compare(op=op, a=x, b=y), a=a, b=b):
            return np.where(_COMPARE[op](inner(x), inner(y)), inner(a), inner(b))
    raise TypeError(f"not in these programs: {expr!r}")


def evaluate_slot(slot: Slot, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first result of ``slot``; ``inputs``: f32 arrays of one shape by the slot's input names."""
    names = dict(inputs)
    with np.errstate(all="ignore"):
        for name, expr in slot.lets:
            names[name] = _evaluate(expr, names)
        return _evaluate(slot.results[0], names)


def _expressions(leaves: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        safe = inner.map(lambda x: Binary(BinaryOp.ADD, Const(0.5), Unary(UnaryOp.ABS, x)))
        compare = st.builds(Compare, st.sampled_from(CompareOp), inner, inner)
        plain = st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX])
        return st.one_of(
            st.builds(Binary, plain, inner, inner),
            st.builds(Fma, inner, inner, inner),
            st.builds(lambda a, b: Binary(BinaryOp.DIV, a, b), inner, safe),
            safe.map(lambda x: Unary(UnaryOp.SQRT, x)),
            st.builds(Unary, st.sampled_from([UnaryOp.NEG, UnaryOp.ABS]), inner),
            inner.map(lambda x: Round(DType.BF16, x)),
            st.builds(Select, compare, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=12)


@st.composite
def exact_programs(draw: st.DrawFn, name: str, inputs: tuple[SlotInput, ...], bf16: bool) -> Slot:
    """Slots of ``inputs`` made of correctly rounded operations only; ``bf16``: the result is rounded to bf16."""
    finite = st.floats(-4, 4, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)
    locals_ = st.sampled_from([Local(i.name) for i in inputs])
    first = draw(_expressions(st.one_of(locals_, finite.map(Const))))
    leaves = st.one_of(locals_, st.just(Local("v_first")), finite.map(Const))
    result = draw(_expressions(leaves))
    # every input has a use: a skeleton may be asked for each of them
    for given in inputs:
        result = Binary(BinaryOp.ADD, result, Binary(BinaryOp.MUL, Local(given.name), Const(0.25)))
    return Slot(name, inputs, (("v_first", first),), (Round(DType.BF16, result) if bf16 else result,), (name,))
