"""Numbers the skeletons are compared with, computed by numpy and torch from the formats' definitions."""

from __future__ import annotations

import numpy as np
import torch
from harness import from_bits, to_bits

__all__ = ["bf16", "mx_rows", "pairs", "quantise", "random_bf16", "record_bytes", "rsq", "unpack"]

F32 = np.float32


def bf16(x: np.ndarray) -> np.ndarray:
    """f32 rounded to bf16, as f32."""
    return from_bits(to_bits(x))


def random_bf16(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """bf16 bits (uint16) of normal values."""
    return to_bits((rng.standard_normal(shape) * scale).astype(F32))


def pairs(bits: np.ndarray) -> np.ndarray:
    """bf16 bits, flattened, two a 32-bit word."""
    return np.ascontiguousarray(bits, np.uint16).reshape(-1).view(np.uint32)


def unpack(words: np.ndarray, *shape: int) -> np.ndarray:
    """bf16 bits of packed words."""
    return np.ascontiguousarray(words, np.uint32).view(np.uint16).reshape(shape)


def rsq(x: np.ndarray) -> np.ndarray:
    return (1.0 / np.sqrt(np.asarray(x, np.float64))).astype(F32)


def _ceil_power(q: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(q, F32).view(np.uint32)
    return ((bits >> 23) & 0xFF).astype(np.int64) + ((bits & 0x7FFFFF) != 0)


def _e4m3(x: np.ndarray) -> np.ndarray:
    clamped = np.clip(x, F32(-448), F32(448)).astype(F32)
    return torch.from_numpy(clamped).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def _coded(x: np.ndarray, code: np.ndarray) -> np.ndarray:
    inverse = ((254 - code).astype(np.uint32) << 23).view(F32)
    return _e4m3((x * inverse[..., None]).astype(F32))


def quantise(x: np.ndarray, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """MXFP8 of f32 [rows, k]: e4m3 bytes [rows, k] and E8M0 codes [rows, k / 32], rule V or M."""
    groups = x.reshape(x.shape[0], -1, 32).astype(F32)
    amax = np.abs(groups).max(-1)
    if rule == "V":
        code = np.clip(_ceil_power(np.maximum(amax, F32(2.0**-126)) / F32(448)), 0, 254)
    else:
        code = np.clip(_ceil_power(np.maximum(amax, F32(1e-10)) * F32(1 / 448)), 1, 254)
    return _coded(groups, code).reshape(x.shape), code


def mx_rows(words: np.ndarray, rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(e4m3 bytes, codes) of the words of an MXFP8 region."""
    used = k // 4 + k // 32
    table = np.ascontiguousarray(words, np.uint32).reshape(rows, -(-used // 4) * 4)
    return np.ascontiguousarray(table[:, : k // 4]).view(np.uint8), table[:, k // 4 : used].astype(np.int64)


def record_bytes(values: np.ndarray, nope: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``fp8_ds_mla`` record of f32 bf16-valued [nope + rope]: (data bytes, codes)."""
    groups = values[:nope].reshape(-1, 64)
    code = _ceil_power(np.maximum(np.abs(groups).max(-1), F32(1e-4)) / F32(448))
    return np.concatenate([_coded(groups, code).reshape(-1), to_bits(values[nope:]).view(np.uint8)]), code
