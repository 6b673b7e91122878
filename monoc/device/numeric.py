"""Rounding, packing and the hardware's approximate functions, each with its rounding stated.

Formats: OCP e4m3 (max 448), E8M0 code ``k`` = scale 2^(k - 127) (OCP Microscaling Formats 1.0).
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import math as fmath

from monoc.device.intrinsics import amdgcn_f32, cvt_fp8_pair

__all__ = [
    "E4M3_MAX", "LN2", "LOG2E", "bf16_high", "bf16_low", "bf16_pack", "bf16_round", "clamp_e4m3", "div_by",
    "e4m3_pack", "exp", "exp2", "fma", "log2", "mx_code", "mx_code_floor", "power_of_two", "power_of_two_inverse",
    "rcp", "rsq", "scale_code", "sqrt",
]  # fmt: skip

E4M3_MAX = 448.0
LOG2E = 1.4426950408889634  # the base-2 logarithm of e
LN2 = 0.6931471805599453  # the natural logarithm of 2
SMALLEST_NORMAL = 2.0**-126


def fma(a: Any, b: Any, c: Any) -> fx.Float32:
    """``a * b + c`` rounded once."""
    return fx.Float32(fmath.fma(fx.Float32(a), fx.Float32(b), fx.Float32(c)))


def exp2(x: Any) -> fx.Float32:
    """2^x by the hardware (about 1 ulp, denormals flushed)."""
    return amdgcn_f32("exp2", x)


def log2(x: Any) -> fx.Float32:
    """The base-2 logarithm by the hardware (about 1 ulp, denormals flushed)."""
    return amdgcn_f32("log", x)


def sqrt(x: Any) -> fx.Float32:
    """The square root, correctly rounded (LLVM's expansion)."""
    return fx.Float32(fmath.sqrt(fx.Float32(x)))


def exp(x: Any) -> fx.Float32:
    """e^x by LLVM's expansion (about 1 ulp; not the hardware's exp2 of a product)."""
    return fx.Float32(fmath.exp(fx.Float32(x)))


def rcp(x: Any) -> fx.Float32:
    """1 / x by the hardware (about 1 ulp, denormals flushed)."""
    return amdgcn_f32("rcp", x)


def rsq(x: Any) -> fx.Float32:
    """1 / sqrt(x) by the hardware (about 1 ulp, denormals flushed)."""
    return amdgcn_f32("rsq", x)


def div_by(x: Any, divisor: float) -> fx.Float32:
    """``x / divisor`` for a constant, correctly rounded in three operations.

    q = RN(x r) with r = RN(1 / divisor), then q + (x - q divisor) r: P. Markstein, "Computation of elementary
    functions on the IBM RISC System/6000 processor", theorem on division by a correctly rounded reciprocal.
    """
    r = fx.Float32(1.0 / divisor)
    q = fx.Float32(x) * r
    return fma(fma(-q, fx.Float32(divisor), x), r, q)


def bf16_round(x: Any) -> fx.Float32:
    """``x`` rounded to bf16, nearest even, as f32."""
    return fx.Float32(fx.Float32(x).to(fx.BFloat16))


def bf16_pack(low: Any, high: Any) -> fx.Int32:
    """Two f32 rounded to bf16 in one word."""
    pair = fx.Vector.from_elements([fx.Float32(low), fx.Float32(high)], fx.Float32)
    return fx.Int32(pair.to(fx.BFloat16).bitcast(fx.Int32)[0])


def bf16_low(word: Any) -> fx.Float32:
    """The bf16 in a word's low half, as f32."""
    return (fx.Int32(word) << 16).bitcast(fx.Float32)


def bf16_high(word: Any) -> fx.Float32:
    """The bf16 in a word's high half, as f32."""
    return (fx.Int32(word) & fx.Int32(-65536)).bitcast(fx.Float32)


def clamp_e4m3(x: Any) -> fx.Float32:
    """``x`` within what e4m3 holds."""
    return fx.max(fx.min(x, fx.Float32(E4M3_MAX)), fx.Float32(-E4M3_MAX))


def e4m3_pack(a: Any, b: Any, c: Any, d: Any) -> fx.Int32:
    """Four f32 within +-448 as e4m3 bytes, nearest even, ``a`` lowest."""
    return cvt_fp8_pair(c, d, cvt_fp8_pair(a, b, fx.Int32(0), False), True)


def scale_code(x: Any) -> fx.Int32:
    """The biased exponent of the smallest power of two >= ``x`` (finite, >= 0)."""
    bits = fx.Float32(x).bitcast(fx.Int32)
    up = ((bits & 0x7FFFFF) != 0).select(fx.Int32(1), fx.Int32(0))
    return ((bits >> 23) & 0xFF) + up


def mx_code(amax: Any) -> fx.Int32:
    """A group's E8M0 code, rule V: of RN(max(amax, 2^-126) / 448), clamped to [0, 254]."""
    q = div_by(fx.max(amax, fx.Float32(SMALLEST_NORMAL)), E4M3_MAX)
    return fx.max(fx.min(scale_code(q), fx.Int32(254)), fx.Int32(0))


def mx_code_floor(amax: Any) -> fx.Int32:
    """A group's E8M0 code, rule M: of max(amax, 1e-10) * fp32(1/448), clamped to [1, 254]."""
    q = fx.max(amax, fx.Float32(1e-10)) * fx.Float32(1.0 / E4M3_MAX)
    return fx.max(fx.min(scale_code(q), fx.Int32(254)), fx.Int32(1))


def power_of_two(code: Any) -> fx.Float32:
    """2^(code - 127) for codes 1 .. 254."""
    return (fx.Int32(code) << 23).bitcast(fx.Float32)


def power_of_two_inverse(code: Any) -> fx.Float32:
    """2^(127 - code): what a group's values are multiplied by."""
    return ((254 - fx.Int32(code)) << 23).bitcast(fx.Float32)
