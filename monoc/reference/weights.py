"""Weights as numbers, decoded from the tensors the runner is given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from monoc.expr.ir import DType
from monoc.reference.formats import E2M1, code_scale, decode_e4m3
from monoc.reference.layouts import deinterleave, unshuffle16, unshuffle_scale
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Extent, Layout, TensorDecl

__all__ = ["BlockWeight", "sizes"]

Tensor = torch.Tensor
_NUMBERS = 1 << 18  # decoded at a time, about: they stay in the CPU's second cache


def sizes(extents: tuple[Extent, ...], env: Mapping[str, BuildValue]) -> tuple[int | None, ...]:
    """Extents of a build as numbers; None where any size will do."""
    return tuple(None if e.size is None else e.size.evaluate(env) for e in extents)


@cache
def _numbers_of(dtype: DType) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Two bytes (65536 of them, little endian) -> their numbers in order: two e4m3 or four e2m1, low nibbles first."""
    at = np.arange(65536)
    if dtype is DType.E2M1X2:
        return np.array(E2M1)[np.stack([at & 15, at >> 4 & 15, at >> 8 & 15, at >> 12], axis=1)]
    e4m3: np.ndarray[Any, np.dtype[np.float64]] = decode_e4m3(torch.arange(256, dtype=torch.uint8)).double().numpy()
    return e4m3[np.stack([at & 255, at >> 8], axis=1)]


@dataclass(frozen=True)
class BlockWeight:
    """A block-scaled weight of one rank as loaded: ``stored`` bytes and ``codes``. A few rows are decoded at a time: a
    weight as numbers is sixteen times as large."""

    decl: TensorDecl
    stored: Tensor
    codes: Tensor
    env: Mapping[str, BuildValue]

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical: padding left out, packed values counted one by one."""
        return tuple(n for n in sizes(self.decl.shape, self.env) if n is not None)

    def times(self, x: Tensor, expert: int | None = None) -> Tensor:
        """``x`` [m, k] (fp64) times the weight [n, k], or one expert's, transposed: [m, n], sums in fp64."""
        return self.grouped_times(x[:, None], expert)[:, 0]

    def grouped_times(self, x: Tensor, expert: int | None = None) -> Tensor:
        """``x`` [m, g, k] (fp64) times the weight [g n, k], each group with its n rows: [m, g, n]."""
        stored, codes = self.stored.view(torch.uint8), self.codes
        if expert is not None:
            rows = stored.shape[1]
            stored, codes = stored[expert], codes[expert * rows : (expert + 1) * rows]
        groups, each = x.shape[1], stored.shape[0] // x.shape[1]
        out = torch.empty(len(stored), len(x), dtype=torch.float64)
        step = math.gcd(each, 1 << (max(16, _NUMBERS // self.shape[-1]).bit_length() - 1))
        for first, numbers in self._decoded(stored, codes, step):
            torch.mm(numbers, x[:, first // each].T, out=out[first : first + step])
        if self.decl.interleave is not None:
            out = deinterleave(out, self.decl.interleave)
        return self._rows(out, self.shape[-2]).T.reshape(len(x), groups, -1)

    def _decoded(self, stored: Tensor, codes: Tensor, step: int) -> Iterator[tuple[int, Tensor]]:
        """``step`` rows at a time, in stored order: (the first one's number, [step, k] fp64, good until the next)."""
        decl, k = self.decl, self.shape[-1]
        assert decl.scale is not None
        if decl.scale.layout is Layout.SHUFFLE_SCALE:
            codes = unshuffle_scale(codes)
        down, along = decl.scale.block
        scales = code_scale(codes[:, : k // along])
        table = _numbers_of(decl.dtype)
        per_byte = table.shape[1] // 2
        numbers = torch.empty(step * k // table.shape[1], table.shape[1], dtype=torch.float64)
        blocks = numbers.view(step, k // along, along)
        for first in range(0, len(stored), step):
            data = stored[first : first + step]
            if decl.layout is Layout.SHUFFLE16:
                data = unshuffle16(data)
            pairs = data[:, : k // per_byte].contiguous().numpy().view(np.uint16).reshape(-1)
            np.take(table, pairs, axis=0, out=numbers.numpy(), mode="clip")  # every index there is; "raise" would copy
            rows = torch.arange(first, first + step) // down
            blocks *= scales[rows, :, None]
            yield first, numbers.view(step, k)

    def _rows(self, whole: Tensor, n: int) -> Tensor:
        """The first ``n`` rows, of gate and up half as many each: what the loader did not pad."""
        if self.decl.interleave is None or len(whole) == n:
            return whole[:n]
        half = len(whole) // 2
        return torch.cat([whole[: n // 2], whole[half : half + n // 2]])
