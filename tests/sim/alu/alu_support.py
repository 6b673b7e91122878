"""Running single vector instructions, and number formats as exact tables."""

import itertools
from typing import Any

import numpy as np

from monoc.sim import _core

__all__ = [
    "BF8",
    "EDGES_F16",
    "EDGES_F32",
    "EDGES_F64",
    "EDGES_I32",
    "FP4",
    "FP6",
    "FP8",
    "Minifloat",
    "bits32",
    "f32",
    "f64",
    "halves",
    "lane_mask",
    "pairs",
    "registers",
    "run",
    "run64",
    "same_floats",
    "words64",
]


def f32(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words, np.uint32).view(np.float32)


def bits32(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def words64(values: np.ndarray) -> np.ndarray:
    """uint32 [2, n] registers of 64-bit values (any 8-byte dtype)."""
    raw = np.ascontiguousarray(values).view(np.uint64)
    return np.stack([raw.astype(np.uint32), (raw >> np.uint64(32)).astype(np.uint32)])


def f64(words: np.ndarray) -> np.ndarray:
    return (words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32)).view(np.float64)


def halves(values: Any) -> np.ndarray:
    """uint32 [n] registers with float16 values in their low halves."""
    return np.ascontiguousarray(values, np.float16).view(np.uint16).astype(np.uint32)


def registers(source: Any, lanes: int) -> np.ndarray:
    """uint32 [dwords, lanes] of one operand, padded with zeros to `lanes`."""
    array = np.asarray(source)
    if array.dtype != np.uint32:
        array = array.view(np.uint32) if array.dtype.itemsize == 4 else array.astype(np.uint32)
    array = np.atleast_2d(array)
    padded = np.zeros((array.shape[0], lanes), np.uint32)
    padded[:, : array.shape[1]] = array
    return padded


def run64(
    mnemonic: str, *sources: Any, old: Any = None, mask: np.ndarray | None = None, **modifiers: Any
) -> tuple[np.ndarray, np.ndarray]:
    """(registers [dwords, n], mask bits bool [n]) of an instruction on n lanes; `mask`: bool [n] carry or VCC in."""
    n = np.atleast_2d(np.asarray(sources[0])).shape[1]
    lanes = -(-n // 64) * 64
    if old is not None:
        modifiers["old"] = registers(old, lanes)
    if mask is not None:
        packed = np.packbits(np.pad(mask, (0, lanes - n)).astype(np.uint8), bitorder="little")
        modifiers["mask"] = packed.view(np.uint64)
    out, mask_out = _core.alu_apply(mnemonic, [registers(s, lanes) for s in sources], **modifiers)
    flags = np.unpackbits(np.asarray(mask_out).view(np.uint8), bitorder="little").astype(bool)
    return np.asarray(out)[:, :n], flags[:n]


def run(mnemonic: str, *sources: Any, **modifiers: Any) -> np.ndarray:
    """uint32 [n] (or [dwords, n]) result registers."""
    out = run64(mnemonic, *sources, **modifiers)[0]
    return out[0] if out.shape[0] == 1 else out


def lane_mask(mnemonic: str, *sources: Any, **modifiers: Any) -> np.ndarray:
    """bool [n]: the lane mask an instruction writes."""
    return run64(mnemonic, *sources, **modifiers)[1]


def pairs(values: np.ndarray, arity: int = 2) -> list[np.ndarray]:
    """Every combination of the values, one array an operand."""
    return [np.array(c, values.dtype) for c in zip(*itertools.product(values, repeat=arity), strict=True)]


def same_floats(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits; NaN where NaN is expected, and then the canonical one."""
    assert actual.dtype == expected.dtype
    word = {2: np.uint16, 4: np.uint32, 8: np.uint64}[actual.dtype.itemsize]
    quiet = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[actual.dtype.itemsize]
    want = np.where(np.isnan(expected), word(quiet), expected.view(word))
    bad = np.flatnonzero(actual.view(word) != want)
    assert bad.size == 0, f"{bad.size} differ, first at {bad[0]}: {actual[bad[0]]!r} is not {expected[bad[0]]!r}"


# fmt: off
EDGES_F32 = np.array([
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x33800000,
    0x3EAAAAAB, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0xBF800000, 0x3F800001, 0x40490FDB, 0x4B000000,
    0x4B800001, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0x4F800000, 0x5F000000, 0x7E967699, 0x7F7FFFFF,
    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
], np.uint32)
EDGES_F16 = np.array([
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x1400, 0x3555, 0x3800, 0x3BFF, 0x3C00, 0xBC00,
    0x3C01, 0x4248, 0x6400, 0x6801, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01,
], np.uint16)
EDGES_F64 = np.array([
    0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FE0000000000000, 0x3FEFFFFFFFFFFFFF,
    0x3FF0000000000000, 0xBFF0000000000000, 0x400921FB54442D18, 0x41DFFFFFFFC00000,
    0x41E0000000000000, 0xC1E0000000200000, 0x4330000000000001, 0x7FEFFFFFFFFFFFFF,
    0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
], np.uint64)
EDGES_I32 = np.array([
    0, 1, 2, 5, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000,
    0xFFFFFF, 0x1000000, 0x55555555, 0xAAAAAAAA, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE,
    0xFFFFFFFF,
], np.uint32)
# fmt: on


class Minifloat:
    """A small float format as the sorted list of its finite magnitudes: conversion by search, without bit tricks.

    `top`: code of the largest finite number; `overflow`: code of what lies beyond (`top` again where it saturates).
    """

    def __init__(self, exponent_bits: int, mantissa_bits: int, bias: int, top: int, overflow: int, nan: int) -> None:
        self.sign = 1 << (exponent_bits + mantissa_bits)
        self.top, self.overflow, self.nan = top, overflow, nan
        codes = np.arange(self.sign)
        e, m = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
        one = float(1 << mantissa_bits)
        values = np.where(e == 0, m / one * 2.0 ** (1 - bias), (1 + m / one) * 2.0 ** (e - bias))
        # One more step beyond the top decides what still rounds down to it.
        self.magnitudes = (
            values[: top + 2] if top + 1 < self.sign else np.append(values, 2 * values[top] - values[top - 1])
        )
        positive = np.where(codes <= top, values, np.where((overflow != nan) & (codes == overflow), np.inf, np.nan))
        self.values = np.concatenate([positive, -positive])

    def encode(self, x: np.ndarray, saturate: bool = False) -> np.ndarray:
        """uint32 codes of float64 numbers, nearest, ties to the even code."""
        magnitude = np.abs(x)
        with np.errstate(invalid="ignore"):
            upper = np.searchsorted(self.magnitudes, magnitude).clip(1, self.top + 1)
            below, above = magnitude - self.magnitudes[upper - 1], self.magnitudes[upper] - magnitude
            tie_up = (below == above) & (upper % 2 == 0)
            code = np.where((below > above) | tie_up, upper, upper - 1)
            beyond = np.where(saturate & np.isfinite(x), self.top, self.overflow)
            code = np.where((code > self.top) | (magnitude > self.magnitudes[-1]), beyond, code)
        code = np.where(np.isnan(x), self.nan, code)
        return (code + np.where(np.signbit(x), self.sign, 0)).astype(np.uint32)


FP8 = Minifloat(4, 3, 7, 0x7E, 0x7F, 0x7F)
BF8 = Minifloat(5, 2, 15, 0x7B, 0x7C, 0x7F)
FP6 = Minifloat(2, 3, 1, 0x1F, 0x1F, 0x1F)
BF6 = Minifloat(3, 2, 3, 0x1F, 0x1F, 0x1F)
FP4 = Minifloat(2, 1, 1, 0x7, 0x7, 0x7)
