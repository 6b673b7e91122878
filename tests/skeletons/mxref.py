"""MXFP8 in numpy and torch, from the definitions of the formats (OCP e4m3, E8M0 block scales)."""

from __future__ import annotations

import numpy as np
import torch

__all__ = ["e4m3", "e8m0", "from_e4m3", "mx_region", "quantise", "shuffle16"]


def e4m3(values: np.ndarray) -> np.ndarray:
    """The e4m3 bytes nearest to f32 ``values`` (ties to even)."""
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def from_e4m3(codes: np.ndarray) -> np.ndarray:
    return torch.from_numpy(np.ascontiguousarray(codes, np.uint8)).view(torch.float8_e4m3fn).to(torch.float64).numpy()


def e8m0(codes: np.ndarray) -> np.ndarray:
    """2^(code - 127)."""
    return np.exp2(codes.astype(np.float64) - 127)


def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f32 rows [n, k] as (e4m3 bytes [n, k], E8M0 codes [n, k / 32]) by rule V.

    The code: of q = RN(max(amax, 2^-126) / 448) the exponent field, plus one if its mantissa is not zero, clamped to
    0 .. 254 (so 1 for a zero group, whose q is denormal); values are clamped to +-448.
    """
    n, k = x.shape
    groups = x.astype(np.float32).reshape(n, k // 32, 32)
    q = np.maximum(np.abs(groups).max(-1), np.float32(2.0**-126)) / np.float32(448)
    bits = q.view(np.uint32)
    codes = np.clip((bits >> 23) + ((bits & 0x7FFFFF) != 0), 0, 254).astype(np.uint8)
    scaled = groups.astype(np.float64) * np.exp2(127.0 - codes.astype(np.float64))[..., None]
    return e4m3(np.clip(scaled, -448, 448).astype(np.float32)).reshape(n, k), codes


def mx_region(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """A region's words of MXFP8 rows: k / 4 words of values, k / 32 of codes, padded to a multiple of four (with 0)."""
    n, k = codes.shape
    row = -(-(k // 4 + k // 32) // 4) * 4
    out = np.zeros((n, row), np.uint32)
    out[:, : k // 4] = np.ascontiguousarray(codes).view(np.uint32)
    out[:, k // 4 : k // 4 + k // 32] = scales
    return out


def shuffle16(weight: np.ndarray) -> np.ndarray:
    """Byte rows [n, k] as [n / 16][k / 16][16 rows][16 bytes]."""
    n, k = weight.shape
    return np.ascontiguousarray(weight.reshape(n // 16, 16, k // 16, 16).transpose(0, 2, 1, 3))
