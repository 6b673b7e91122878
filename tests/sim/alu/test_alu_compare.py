"""Compares of every type and predicate, and class tests."""

import operator
from collections.abc import Callable

import numpy as np
import pytest
from alu_support import EDGES_F16, EDGES_F32, EDGES_F64, EDGES_I32, lane_mask, pairs, words64

INTEGER: dict[str, Callable[..., np.ndarray]] = {
    "f": lambda a, b: np.zeros(a.shape, bool),
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "ne": operator.ne,
    "ge": operator.ge,
    "t": lambda a, b: np.ones(a.shape, bool),
}


def unordered(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.isnan(a) | np.isnan(b)


FLOAT: dict[str, Callable[..., np.ndarray]] = {
    "f": lambda a, b: np.zeros(a.shape, bool),
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": operator.ge,
    "o": lambda a, b: ~unordered(a, b),
    "u": unordered,
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "tru": lambda a, b: np.ones(a.shape, bool),
}


@pytest.mark.parametrize("prefix", ["v_cmp_", "v_cmpx_"])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_integers(prefix: str, width: int) -> None:
    sign = 1 << (width - 1)
    edges = np.array(
        sorted({int(x) & ((1 << width) - 1) for x in EDGES_I32} | {sign, sign - 1, sign + 1, 2 * sign - 1}), np.uint64
    )
    unsigned = edges.astype({16: np.uint16, 32: np.uint32, 64: np.uint64}[width])
    a, b = pairs(unsigned)
    operands = (words64(a), words64(b)) if width == 64 else (a.astype(np.uint32), b.astype(np.uint32))
    for name, predicate in INTEGER.items():
        np.testing.assert_array_equal(lane_mask(f"{prefix}{name}_u{width}", *operands), predicate(a, b))
        signed = {16: np.int16, 32: np.int32, 64: np.int64}[width]
        np.testing.assert_array_equal(
            lane_mask(f"{prefix}{name}_i{width}", *operands), predicate(a.view(signed), b.view(signed))
        )


@pytest.mark.parametrize("prefix", ["v_cmp_", "v_cmpx_"])
@pytest.mark.parametrize("edges", [EDGES_F16, EDGES_F32, EDGES_F64], ids=["f16", "f32", "f64"])
def test_floats(prefix: str, edges: np.ndarray) -> None:
    a, b = pairs(edges)
    width = edges.dtype.itemsize * 8
    operands = (words64(a), words64(b)) if width == 64 else (a.astype(np.uint32), b.astype(np.uint32))
    x, y = (v.view({16: np.float16, 32: np.float32, 64: np.float64}[width]) for v in (a, b))
    for name, predicate in FLOAT.items():
        np.testing.assert_array_equal(lane_mask(f"{prefix}{name}_f{width}", *operands), predicate(x, y))


@pytest.mark.parametrize("edges", [EDGES_F16, EDGES_F32, EDGES_F64], ids=["f16", "f32", "f64"])
def test_class(edges: np.ndarray) -> None:
    width = edges.dtype.itemsize * 8
    mantissa = {16: 10, 32: 23, 64: 52}[width]
    finite_top = (1 << (width - 1)) - (1 << mantissa)

    def class_of(word: int) -> int:
        magnitude, negative = word & ((1 << (width - 1)) - 1), word >> (width - 1)
        if magnitude > finite_top:
            return 1 if magnitude >> (mantissa - 1) & 1 else 0
        kind = 9 if magnitude == finite_top else 6 if magnitude == 0 else 7 if magnitude < 1 << mantissa else 8
        return 11 - kind if negative else kind

    operand = words64(edges) if width == 64 else edges.astype(np.uint32)
    want = np.array([class_of(int(x)) for x in edges])
    for bit in range(10):
        mask = np.full(edges.size, 1 << bit, np.uint32)
        np.testing.assert_array_equal(lane_mask(f"v_cmp_class_f{width}", operand, mask), want == bit)
        np.testing.assert_array_equal(lane_mask(f"v_cmp_class_f{width}", operand, mask ^ 0x3FF), want != bit)
    assert set(want) >= {1, 2, 3, 4, 5, 6, 7, 8, 9} - ({4} if width == 64 else set())
