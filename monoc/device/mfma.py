"""The matrix instructions stages use, as 16x16 tiles of a wave: lane l holds row / column l % 16 of its operands.

Result: lane l, register i: row 4 * (l // 16) + i, column l % 16. Operand layouts: AMD's CDNA3 / CDNA4 ISA documents,
MFMA register layouts.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx

from monoc.device.intrinsics import mfma, mfma_scaled

__all__ = ["FP4", "FP8", "UNIT_SCALE", "mfma_bf16", "mfma_bf16_k16", "mfma_f32", "mfma_mx", "zero_tile"]

# Operand formats of the scaled instruction, and the E8M0 code of 1.0.
FP8 = 0
FP4 = 4
UNIT_SCALE = 127


def zero_tile() -> fx.Vector:
    """A lane's four fp32 results of a 16x16 tile, all zero."""
    return fx.Vector.filled(4, 0.0, fx.Float32)


def mfma_f32(a: Any, b: Any, c: Any) -> fx.Vector:
    """16x16x4 f32: a lane's one value is K = lane // 16."""
    return mfma("f32_16x16x4f32", fx.Float32(a), fx.Float32(b), c)


def mfma_bf16(a: Any, b: Any, c: Any) -> fx.Vector:
    """16x16x32 bf16: a lane's eight values are K = 8 * (lane // 16) .. + 8."""
    return mfma("f32_16x16x32_bf16", a, b, c)


def mfma_bf16_k16(a: Any, b: Any, c: Any) -> fx.Vector:
    """16x16x16 bf16: a lane's four values (as four Int16) are K = 4 * (lane // 16) .. + 4."""
    return mfma("f32_16x16x16bf16_1k", a, b, c)


def mfma_mx(
    a: Any,
    b: Any,
    c: Any,
    a_scale: Any,
    b_scale: Any,
    a_format: int = FP8,
    b_format: int = FP8,
    a_byte: int = 0,
    b_byte: int = 0,
) -> fx.Vector:
    """16x16x128 with E8M0 scales: eight words a lane for fp8 (K bytes 16 j .. and 64 + 16 j .., j = lane // 16), four
    for fp4 (K 32 j ..); a lane's scale byte is that of its row's K block j of 32."""
    return mfma_scaled(a, b, c, a_format, b_format, a_scale, b_scale, a_byte, b_byte)
