"""Loaded layouts of weights and caches, both ways (docs/language.md, "Layouts")."""

from __future__ import annotations

import torch

__all__ = [
    "cache_rows", "deinterleave", "interleave", "shuffle16", "shuffle_scale", "store_records", "unshuffle16",
    "unshuffle_scale",
]  # fmt: skip

Tensor = torch.Tensor


def shuffle16(rows: Tensor) -> Tensor:
    """Bytes [.., n, b], each 16 rows stored as [b / 16][16 rows][16 bytes]; shape kept."""
    *lead, n, b = rows.shape
    return rows.reshape(*lead, n // 16, 16, b // 16, 16).transpose(-3, -2).reshape(rows.shape)


def unshuffle16(stored: Tensor) -> Tensor:
    """The inverse of :func:`shuffle16`."""
    *lead, n, b = stored.shape
    return stored.reshape(*lead, n // 16, b // 16, 16, 16).transpose(-3, -2).reshape(stored.shape)


def shuffle_scale(codes: Tensor) -> Tensor:
    """Codes [rows, columns] (columns a multiple of 8, rows of 32) in the order of a shuffled weight's scales."""
    rows, columns = codes.shape
    tiles = codes.reshape(rows // 32, 2, 16, columns // 8, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(rows, columns)


def unshuffle_scale(stored: Tensor) -> Tensor:
    """The inverse of :func:`shuffle_scale`."""
    rows, columns = stored.shape
    tiles = stored.reshape(rows // 32, columns // 8, 4, 16, 2, 2)
    return tiles.permute(0, 5, 3, 1, 4, 2).reshape(rows, columns)


def interleave(rows: Tensor, tile: int) -> Tensor:
    """[.., 2 n, k], the gate rows then the up rows, as alternating tiles of ``tile`` rows of each."""
    *lead, n, k = rows.shape
    return rows.reshape(*lead, 2, n // (2 * tile), tile, k).transpose(-4, -3).reshape(rows.shape)


def deinterleave(stored: Tensor, tile: int) -> Tensor:
    """The inverse of :func:`interleave`."""
    *lead, n, k = stored.shape
    return stored.reshape(*lead, n // (2 * tile), 2, tile, k).transpose(-4, -3).reshape(stored.shape)


def cache_rows(cache: Tensor, slots: Tensor, data: int) -> tuple[Tensor, Tensor]:
    """KV records at ``slots`` [n] of ``cache`` [blocks, B, record]: data bytes [n, data] and codes [n, record - data].

    A block is B x ``data`` bytes, then B groups of codes; blocks may be further apart than they are long."""
    blocks, size, record = cache.shape
    flat = cache.as_strided((blocks, size * record), (cache.stride(0), 1))
    block, row = slots // size, slots % size
    at = row[:, None] * data + torch.arange(data)
    codes = size * data + row[:, None] * (record - data) + torch.arange(record - data)
    return flat[block[:, None], at], flat[block[:, None], codes]


def store_records(cache: Tensor, slots: Tensor, data: Tensor, codes: Tensor, kept: int) -> None:
    """Writes records in place; of a record's code bytes the first ``kept``."""
    blocks, size, record = cache.shape
    flat = cache.as_strided((blocks, size * record), (cache.stride(0), 1))
    block, row = slots // size, slots % size
    width = data.shape[1]
    flat[block[:, None], row[:, None] * width + torch.arange(width)] = data
    flat[block[:, None], size * width + row[:, None] * (record - width) + torch.arange(kept)] = codes[:, :kept]
