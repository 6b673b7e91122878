"""Exact operand values and the stated order of MFMA sums, in numpy."""

import numpy as np

__all__ = ["FP4_VALUES", "e4m3_values", "fma32", "mfma_scaled_tile", "mfma_tile"]

_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FP4_VALUES = np.concatenate([_MAGNITUDES, -_MAGNITUDES])


def e4m3_values() -> np.ndarray:
    """float64 [256]: the OCP e4m3 value of every byte (NaN at 0x7f and 0xff)."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value = np.where(code & 0x7F == 0x7F, np.nan, value)
    return np.where(code & 0x80, -value, value)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 of a * b + c rounded once; `a * b` must be exact in float64 (true of two float32 of 24 bits or fewer)."""
    product, addend = a * b, c.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    # Round to odd: an inexact float64 sum with an even last bit moves to its neighbour towards the exact value, so that
    # the rounding to float32 that follows sees which side of a tie the exact value lies on.
    even = total.view(np.int64) & 1 == 0
    odd = np.where((error != 0) & even, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(np.float32)


def mfma_tile(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 [M, N]: c + a @ b.T for one instruction's K (`a` [M, K], `b` [N, K] float64): fused, ascending k."""
    for k in range(a.shape[1]):
        c = fma32(a[:, None, k], b[None, :, k], c)
    return c


def mfma_scaled_tile(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The same for scaled operands (values with their scales): float32 sums of 32, added up in float64, rounded once.

    A power of two common to a block's products changes no rounding, so the scales may go in first.
    """
    total = c.astype(np.float64)
    for k0 in range(0, a.shape[1], 32):
        block = np.zeros_like(c)
        for k in range(k0, k0 + 32):
            block = block + (a[:, None, k] * b[None, :, k]).astype(np.float32)
        total = total + block
    return total.astype(np.float32)
