"""Weights as numbers, decoded from the tensors the runner is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from monoc.expr.ir import DType
from monoc.reference.formats import E2M1, code_scale
from monoc.reference.layouts import deinterleave, unshuffle16, unshuffle_scale
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Extent, Layout, TensorDecl

__all__ = ["BlockWeight", "sizes"]

Tensor = torch.Tensor


def sizes(extents: tuple[Extent, ...], env: Mapping[str, BuildValue]) -> tuple[int | None, ...]:
    """Extents of a build as numbers; None where any size will do."""
    return tuple(None if e.size is None else e.size.evaluate(env) for e in extents)


@cache
def _quads() -> np.ndarray[Any, np.dtype[np.complex128]]:
    """Two bytes -> their four e2m1 numbers, low nibbles first, as the 16 bytes of four fp32."""
    at = np.arange(65536)
    nibbles = np.stack([at & 15, at >> 4 & 15, at >> 8 & 15, at >> 12], axis=1)
    return np.array(E2M1, dtype=np.float32)[nibbles].view(np.complex128)[:, 0]


@dataclass(frozen=True)
class BlockWeight:
    """A block-scaled weight of one rank as loaded: ``stored`` bytes and ``codes``, decoded on demand."""

    decl: TensorDecl
    stored: Tensor
    codes: Tensor
    env: Mapping[str, BuildValue]

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical: padding left out, packed values counted one by one."""
        return tuple(n for n in sizes(self.decl.shape, self.env) if n is not None)

    def expert(self, index: int) -> Tensor:
        """Rows of one expert of a weight [experts, n, k]: [n, k], fp32 if that is exact, else fp64."""
        rows = self.stored.shape[1]
        return self._matrix(self.stored[index], self.codes[index * rows : (index + 1) * rows])

    def matrix(self) -> Tensor:
        """A weight [n, k]: [n, k], fp32 if that is exact, else fp64."""
        return self._matrix(self.stored, self.codes)

    def _matrix(self, stored: Tensor, codes: Tensor) -> Tensor:
        decl = self.decl
        assert decl.scale is not None
        data = stored.view(torch.uint8)
        packed = 2 if decl.dtype is DType.E2M1X2 else 1
        if decl.layout is Layout.SHUFFLE16:
            data = unshuffle16(data)
        if decl.scale.layout is Layout.SHUFFLE_SCALE:
            codes = unshuffle_scale(codes)
        if decl.interleave is not None:
            data = deinterleave(data, decl.interleave)
            codes = deinterleave(codes, decl.interleave)  # blocks of one row
        down, along = decl.scale.block
        n, k = self.shape[-2:]
        data = self._rows(data, n)[:, : k // packed].contiguous()
        codes = self._rows(codes, n // down)[:, : k // along]
        if packed == 1:
            numbers = data.view(torch.float8_e4m3fn).float()
        else:
            numbers = torch.from_numpy(np.take(_quads(), data.numpy().view(np.uint16)).view(np.float32))
        scale = code_scale(codes)
        if int(codes.min()) > 20 and int(codes.max()) < 230:
            scale = scale.float()
        else:  # powers fp32 does not have, or NaN
            numbers = numbers.double()
        blocks = numbers.view(n // down, down, k // along, along)
        blocks *= scale[:, None, :, None]
        return numbers

    def _rows(self, whole: Tensor, n: int) -> Tensor:
        """The first ``n`` rows, of gate and up half as many each: what the loader did not pad."""
        if self.decl.interleave is None or len(whole) == n:
            return whole[:n]
        half = len(whole) // 2
        return torch.cat([whole[: n // 2], whole[half : half + n // 2]])
