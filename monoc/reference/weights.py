"""Weights as numbers, decoded from the tensors the runner is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch

from monoc.expr.ir import DType
from monoc.reference.formats import E2M1, code_scale, decode_e4m3
from monoc.reference.layouts import deinterleave, unshuffle16, unshuffle_scale
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Extent, Layout, TensorDecl

__all__ = ["BlockWeight", "sizes"]

Tensor = torch.Tensor


def sizes(extents: tuple[Extent, ...], env: Mapping[str, BuildValue]) -> tuple[int | None, ...]:
    """Extents of a build as numbers; None where any size will do."""
    return tuple(None if e.size is None else e.size.evaluate(env) for e in extents)


@cache
def _pairs() -> Tensor:
    """Byte -> its two e2m1 numbers, low nibble first."""
    values = torch.tensor(E2M1, dtype=torch.float32)
    byte = torch.arange(256)
    return torch.stack([values[byte & 15], values[byte >> 4]], dim=1)


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
        """Rows of one expert of a weight [experts, n, k]: fp64 [n, k]."""
        rows = self.stored.shape[1]
        return self._matrix(self.stored[index], self.codes[index * rows : (index + 1) * rows])

    def matrix(self) -> Tensor:
        """A weight [n, k]: fp64 [n, k]."""
        return self._matrix(self.stored, self.codes)

    def _matrix(self, stored: Tensor, codes: Tensor) -> Tensor:
        decl = self.decl
        assert decl.scale is not None
        data = stored.view(torch.uint8)
        if decl.layout is Layout.SHUFFLE16:
            data = unshuffle16(data)
        if decl.layout is Layout.ROWS_PAD256:
            data = data[:, : self.shape[-1]]
        numbers = decode_e4m3(data) if decl.dtype is DType.E4M3 else _pairs()[data.long()].flatten(-2)
        if decl.scale.layout is Layout.SHUFFLE_SCALE:
            codes = unshuffle_scale(codes)
        down, along = decl.scale.block
        scale = code_scale(codes).repeat_interleave(down, 0).repeat_interleave(along, 1)
        whole = numbers.double() * scale[: numbers.shape[0], : numbers.shape[1]]
        if decl.interleave is not None:
            whole = deinterleave(whole, decl.interleave)
        return self._unpadded(whole)

    def _unpadded(self, whole: Tensor) -> Tensor:
        n, k = self.shape[-2:]
        if self.decl.interleave is not None:  # gate and up are padded each
            half = whole.shape[0] // 2
            return torch.cat([whole[: n // 2, :k], whole[half : half + n // 2, :k]])
        return whole[:n, :k]
