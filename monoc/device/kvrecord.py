"""Key-value records of layout ``fp8_ds_mla``: where a token's bytes are in its block, and how its values are coded.

A block of B tokens is B times (``nope`` e4m3 values, ``rope`` bf16 values), then B times the E8M0 codes of the e4m3
values, one per 64 and padded to a multiple of eight bytes (vLLM's sparse MLA cache format).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.numeric import E4M3_MAX, div_by, scale_code
from monoc.device.rows import split_index

__all__ = ["RECORD_GROUP", "KvRecord", "record_code"]

RECORD_GROUP = 64  # values under one code


@dataclass(frozen=True)
class KvRecord(Frozen):
    """Records of ``nope`` (a multiple of 64) + ``rope`` values."""

    nope: int
    rope: int

    @property
    def data(self) -> int:
        """Bytes of a token's values."""
        return self.nope + 2 * self.rope

    @property
    def groups(self) -> int:
        return self.nope // RECORD_GROUP

    @property
    def codes(self) -> int:
        """Bytes of a token's codes, padding included."""
        return -(-self.groups // 8) * 8

    def places(self, cache: Any, slot: Any, block: Any, stride: Any) -> tuple[fx.Int64, fx.Int64]:
        """Addresses of ``slot``'s values and codes in a cache of ``block`` tokens and ``stride`` bytes a block."""
        page, inside = split_index(slot, block)
        start = fx.Int64(cache) + fx.Int64(page) * fx.Int64(stride)
        return start + fx.Int64(inside * self.data), start + fx.Int64(block * self.data + inside * self.codes)


def record_code(amax: Any) -> fx.Int32:
    """A group's E8M0 code: the smallest power of two >= RN(max(amax, 1e-4) / 448)."""
    return scale_code(div_by(fx.max(amax, fx.Float32(1e-4)), E4M3_MAX))
