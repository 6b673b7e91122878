"""MFMA operand layouts and the simulator's stated order of sums (docs/simulator-alu.md), in numpy."""

import re
from dataclasses import dataclass

import numpy as np
from alu_support import BF8, FP8, f32

__all__ = [
    "Shape",
    "decode",
    "emulate",
    "expand_operand",
    "fma_f32",
    "gather_result",
    "parse",
    "place_operand",
    "scatter_result",
]


@dataclass(frozen=True, slots=True)
class Shape:
    """`blocks` products of [size, k] and [k, size]; element formats of A and B."""

    size: int
    k: int
    blocks: int
    a: str
    b: str

    @property
    def groups(self) -> int:
        return 64 // (self.size * self.blocks)


def parse(mnemonic: str) -> Shape:
    """The shape an unscaled mnemonic names."""
    match = re.fullmatch(r"v_mfma_[fi]\d+_(\d+)x\1x(\d+)(?:_(\d+)b)?_(\w+)", mnemonic)
    assert match, mnemonic
    formats = match[4].split("_")
    return Shape(int(match[1]), int(match[2]), int(match[3] or 1), formats[0], formats[-1])


@np.errstate(invalid="ignore")  # casts of signalling NaN
def decode(codes: np.ndarray, kind: str) -> np.ndarray:
    """float64 values of element codes."""
    if kind == "fp8":
        return FP8.values[codes]
    if kind == "bf8":
        return BF8.values[codes]
    if kind == "f16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "bf16":
        return f32(codes.astype(np.uint32) << 16).astype(np.float64)
    if kind == "i8":
        return codes.astype(np.uint8).view(np.int8).astype(np.float64)
    return f32(codes).astype(np.float64)


def bits_of(kind: str) -> int:
    return {"fp8": 8, "bf8": 8, "i8": 8, "f16": 16, "bf16": 16}.get(kind, 32)


def place_operand(codes: np.ndarray, shape: Shape, kind: str) -> np.ndarray:
    """uint32 [dwords, 64] registers from element codes [blocks, size, k]."""
    width = bits_of(kind)
    per_lane = shape.k // shape.groups
    out = np.zeros((per_lane * width // 32, 64), np.uint32)
    for lane in range(64):
        row, block, group = lane % shape.size, lane // shape.size % shape.blocks, lane // (shape.size * shape.blocks)
        for e in range(per_lane):
            out[e * width // 32, lane] |= np.uint32(int(codes[block, row, group * per_lane + e]) << (e * width % 32))
    return out


def expand_operand(words: np.ndarray, shape: Shape, kind: str) -> np.ndarray:
    """float64 [blocks, size, k] values of an operand's registers: the inverse of place_operand."""
    width = bits_of(kind)
    per_lane = shape.k // shape.groups
    codes = np.zeros((shape.blocks, shape.size, shape.k), np.uint32)
    for lane in range(64):
        row, block, group = lane % shape.size, lane // shape.size % shape.blocks, lane // (shape.size * shape.blocks)
        for e in range(per_lane):
            codes[block, row, group * per_lane + e] = (int(words[e * width // 32, lane]) >> (e * width % 32)) & (
                (1 << width) - 1
            )
    return decode(codes, kind)


def result_place(shape: Shape, block: int, row: int, col: int) -> tuple[int, int]:
    """(register, lane) of an element of the result."""
    if shape.size == 32:
        return 16 * block + 4 * (row // 8) + row % 4, 32 * (row // 4 % 2) + col
    if shape.size == 16:
        return 4 * block + row % 4, 16 * (row // 4) + col
    return row, 4 * block + col


def scatter_result(matrix: np.ndarray, shape: Shape) -> np.ndarray:
    """uint32 [dwords, 64] registers of a 4-byte result [blocks, size, size]."""
    out = np.zeros((shape.size * shape.size * shape.blocks // 64, 64), np.uint32)
    words = np.ascontiguousarray(matrix).view(np.uint32)
    for block, row, col in np.ndindex(*matrix.shape):
        out[result_place(shape, block, row, col)] = words[block, row, col]
    return out


def gather_result(registers: np.ndarray, shape: Shape) -> np.ndarray:
    """uint32 [blocks, size, size] of result registers."""
    out = np.empty((shape.blocks, shape.size, shape.size), np.uint32)
    for block, row, col in np.ndindex(*out.shape):
        out[block, row, col] = registers[result_place(shape, block, row, col)]
    return out


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 a * b + c in one rounding, for float64 arrays of float32 values: rounded to odd in float64 first."""
    with np.errstate(all="ignore"):
        product = a * b
        total = product + c
        back = total - product
        error = (product - (total - back)) + (c - back)
        word = total.view(np.int64)
        inexact = np.isfinite(total) & (error != 0)
        toward_zero = (error > 0) == (total > 0)
        odd = np.where(inexact, np.where(toward_zero, word, word - 1) | 1, word)
        return odd.view(np.float64).astype(np.float32)


@np.errstate(invalid="ignore")
def emulate(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 [blocks, size, size]: c + a b^T, fused, ascending k (a, b: float64 [blocks, size, k])."""
    acc = c.astype(np.float32)
    for k in range(a.shape[2]):
        x, y = np.broadcast_arrays(a[:, :, None, k], b[:, None, :, k])
        acc = fma_f32(x, y, acc.astype(np.float64))
    return acc
