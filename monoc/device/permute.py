"""Bytes of two words put together anew."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl._mlir.dialects import llvm
from flydsl.expr.typing import T, as_ir_value

__all__ = ["byte_permute", "transpose_halves"]


def byte_permute(high: Any, low: Any, selector: int) -> fx.Int32:
    """``v_perm_b32``: byte i of the result is byte ``selector >> 8 i & 7`` of (``high``, ``low``), ``low``'s being 0
    .. 3.
    """
    words = [as_ir_value(fx.Int32(w)) for w in (high, low, selector)]
    return fx.Int32(llvm.call_intrinsic(T.i32, "llvm.amdgcn.perm", words, [], []))


def transpose_halves(a: Any, b: Any) -> tuple[fx.Int32, fx.Int32]:
    """(low halves, high halves) of two words, ``a``'s lowest."""
    return byte_permute(b, a, 0x05040100), byte_permute(b, a, 0x07060302)
