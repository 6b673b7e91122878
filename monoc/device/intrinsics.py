"""The LLVM and ROCDL operations FlyDSL 0.5 has no stable wrapper for, in one place."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import llvm
from flydsl._mlir.dialects import rocdl as rocdl_ops
from flydsl.expr import rocdl
from flydsl.expr.typing import T, as_ir_value

__all__ = [
    "amdgcn_f32", "ballot_bits", "buffer_load", "buffer_resource", "buffer_store", "constant_f32",
    "constant_load", "cvt_fp8_pair", "cvt_scaled_fp8_pair", "dpp_update", "end_wave", "first_lane", "kernel_arguments",
    "lane_permute", "lanes_unlike", "mfma", "mfma_scaled", "opaque_scalar", "opaque_vector", "permlane_swap",
    "read_lane", "realtime_clock",
]  # fmt: skip

# Untyped buffer descriptor, word 3: 32-bit data format, no swizzle, no bounds beyond num_records.
_RAW_BUFFER = (7 << 12) | (4 << 15)


def _i32(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


def amdgcn_f32(name: str, x: Any) -> fx.Float32:
    """``llvm.amdgcn.<name>.f32`` of ``x``: the hardware's ``exp2``, ``log``, ``rcp``, ``rsq`` (about 1 ulp)."""
    return fx.Float32(llvm.call_intrinsic(T.f32, f"llvm.amdgcn.{name}.f32", [as_ir_value(fx.Float32(x))], [], []))


def opaque_vector(v: Any) -> fx.Int32:
    """``v`` (Int32, a value a lane) through an opaque move: arithmetic on the result stays behind it."""
    return fx.Int32(
        llvm.inline_asm(T.i32, [as_ir_value(fx.Int32(v))], "v_mov_b32 $0, $1", "=v,v", has_side_effects=True)
    )


def opaque_scalar(v: Any) -> fx.Int64:
    """``v`` (Int64, wave-uniform) through an opaque scalar move."""
    return fx.Int64(
        llvm.inline_asm(T.i64, [as_ir_value(fx.Int64(v))], "s_mov_b64 $0, $1", "=s,s", has_side_effects=True)
    )


def first_lane(v: Any) -> fx.Int32:
    """The first active lane's Int32 ``v``, as a scalar."""
    return fx.Int32(rocdl.readfirstlane(T.i32, as_ir_value(fx.Int32(v))))


def read_lane(v: Any, source: Any) -> fx.Int32:
    """Lane ``source``'s Int32 ``v``, as a scalar (``v_readlane_b32``; ``source`` a Python int or wave-uniform)."""
    return fx.Int32(rocdl.readlane(T.i32, as_ir_value(fx.Int32(v)), as_ir_value(fx.Int32(source))))


def ballot_bits(predicate: Any) -> fx.Int64:
    """The lanes of the wave in which ``predicate`` holds, one bit a lane."""
    return fx.Int64(rocdl.ballot(T.i64, as_ir_value(predicate)))


def lanes_unlike(v: Any, scalar: Any) -> fx.Int64:
    """The active lanes whose Int32 ``v`` is not the wave-uniform ``scalar``, one bit a lane.

    For what lanes loaded while others may have stored it. Where they load from one address LLVM takes ``v`` for the
    same in all lanes, and folds a ballot or lets any lane decide a branch; yet a wave's load goes out in parts, and a
    part may come before the store. This comparison it does not see.
    """
    operands = [as_ir_value(fx.Int32(scalar)), as_ir_value(fx.Int32(v))]
    return fx.Int64(llvm.inline_asm(T.i64, operands, "v_cmp_ne_u32_e64 $0, $1, $2", "=s,s,v", has_side_effects=True))


def lane_permute(v: Any, source: Any) -> fx.Int32:
    """Lane ``source``'s Int32 ``v`` (``ds_bpermute_b32``; a source a lane)."""
    return fx.Int32(rocdl.ds_bpermute(T.i32, as_ir_value(fx.Int32(source) * 4), as_ir_value(fx.Int32(v))))


def dpp_update(
    old: Any, v: Any, control: int, row_mask: int = 0xF, bank_mask: int = 0xF, bound: bool = False
) -> fx.Int32:
    """``v_mov_b32_dpp``: ``v`` moved by ``control``; lanes off the masks or without a source keep ``old``."""
    arguments = [fx.Int32(a) for a in (old, v, control, row_mask, bank_mask)] + [fx.Boolean(bound)]
    return fx.Int32(
        llvm.call_intrinsic(T.i32, "llvm.amdgcn.update.dpp.i32", [as_ir_value(a) for a in arguments], [], [])
    )


def permlane_swap(distance: int, x: Any, y: Any) -> tuple[fx.Int32, fx.Int32]:
    """``v_permlane32_swap`` / ``v_permlane16_swap``: x's upper half (odd rows of 16) traded with y's lower (even)."""
    operation = {32: rocdl.permlane32_swap, 16: rocdl.permlane16_swap}[distance]
    pair = llvm.StructType.get_literal([T.i32, T.i32])
    both = operation(pair, as_ir_value(fx.Int32(x)), as_ir_value(fx.Int32(y)), False, False)
    return fx.Int32(llvm.extractvalue(T.i32, both, [0])), fx.Int32(llvm.extractvalue(T.i32, both, [1]))


def kernel_arguments() -> fx.Int64:
    """The address of the kernarg segment."""
    pointer = llvm.call_intrinsic(ir.Type.parse("!llvm.ptr<4>"), "llvm.amdgcn.kernarg.segment.ptr", [], [], [])
    return fx.Int64(llvm.PtrToIntOp(T.i64, pointer).result)


def constant_load(address: Any) -> fx.Int64:
    """The Int64 at uniform ``address`` of memory no launch writes (a scalar load)."""
    pointer = llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr<4>"), as_ir_value(fx.Int64(address))).result
    return fx.Int64(llvm.LoadOp(T.i64, pointer, alignment=8, invariant=True).result)


def constant_f32(value: float) -> fx.Float32:
    """The fp32 constant ``value`` as an IR constant.

    FlyDSL computes on Python numbers in double precision and truncates them to bf16; LLVM folds these as IEEE fp32.
    """
    return fx.Float32(as_ir_value(fx.Float32(value)))


def realtime_clock() -> fx.Int64:
    """``s_memrealtime``: the 100 MHz counter all CUs share."""
    return fx.Int64(llvm.call_intrinsic(T.i64, "llvm.amdgcn.s.memrealtime", [], [], []))


def end_wave() -> None:
    """The wave ends here, its stores and LDS accesses done. A CTA's barriers then wait for its other waves alone
    (AMD, *CDNA3 Instruction Set Architecture*, ``S_BARRIER``)."""
    llvm.inline_asm(None, [], "s_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_endpgm", "~{memory}", has_side_effects=True)


def cvt_fp8_pair(a: Any, b: Any, old: Any, high: bool) -> fx.Int32:
    """``v_cvt_pk_fp8_f32``: e4m3 of (a, b) into the low or high half of ``old``; in range only (overflow gives NaN)."""
    return fx.Int32(
        rocdl.cvt_pk_fp8_f32(
            T.i32,
            as_ir_value(fx.Float32(a)),
            as_ir_value(fx.Float32(b)),
            as_ir_value(fx.Int32(old)),
            high,
        )
    )


def cvt_scaled_fp8_pair(word: Any, scale: Any, high: bool) -> fx.Vector:
    """``v_cvt_scalef32_pk_f32_fp8``: the low or high e4m3 pair of ``word`` times ``scale``'s exponent, two f32."""
    return fx.Vector(
        rocdl.cvt_scalef32_pk_f32_fp8(
            fx.Vector.make_type(2, fx.Float32),
            as_ir_value(fx.Int32(word)),
            as_ir_value(fx.Float32(scale)),
            high,
        )
    )


def mfma(name: str, a: Any, b: Any, c: Any) -> fx.Vector:
    """``rocdl.mfma_<name>`` on operands a, b and the four-register accumulator c."""
    result = getattr(rocdl, f"mfma_{name}")(T.vec(4, T.f32), [as_ir_value(a), as_ir_value(b), as_ir_value(c), 0, 0, 0])
    return fx.Vector(getattr(result, "result", result))


def mfma_scaled(
    a: Any, b: Any, c: Any, a_format: int, b_format: int, a_scale: Any, b_scale: Any, a_byte: int, b_byte: int
) -> fx.Vector:
    """``v_mfma_scale_f32_16x16x128_f8f6f4`` (formats: fp8 0, fp4 4; ``*_byte``: which byte of the scale word)."""
    return fx.Vector(
        rocdl.mfma_scale_f32_16x16x128_f8f6f4(
            T.vec(4, T.f32),
            [as_ir_value(v) for v in (a, b, c)]
            + [a_format, b_format, a_byte, as_ir_value(a_scale), b_byte, as_ir_value(b_scale)],
        )
    )


def buffer_resource(address: Any, num_records: Any = None) -> Any:
    """A raw buffer descriptor at ``address`` (Int64); accesses past ``num_records`` bytes load 0 and store nothing."""
    base = llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr"), as_ir_value(fx.Int64(address))).result
    records = fx.Int64(0xFFFFFFFF if num_records is None else num_records)
    return rocdl_ops.MakeBufferRsrcOp(
        ir.Type.parse("!llvm.ptr<8>"),
        base,
        as_ir_value(fx.Int16(0)),
        as_ir_value(records),
        as_ir_value(fx.Int32(_RAW_BUFFER)),
    ).result


def buffer_load(resource: Any, byte_offset: Any, count: int, dtype: Any, policy: int) -> Any:
    """``count`` elements of ``dtype`` at ``byte_offset`` under cache policy ``policy``; a scalar if ``count`` is 1."""
    kind = dtype.ir_type if count == 1 else fx.Vector.make_type(count, dtype)
    value = rocdl_ops.RawPtrBufferLoadOp(
        kind,
        resource,
        as_ir_value(fx.Int32(byte_offset)),
        as_ir_value(fx.Int32(0)),
        aux=_i32(policy) if policy else None,
    ).result
    return dtype(value) if count == 1 else fx.Vector(value)


def buffer_store(resource: Any, byte_offset: Any, value: Any, policy: int) -> None:
    """Store a scalar or vector at ``byte_offset`` under cache policy bits ``policy``."""
    rocdl_ops.RawPtrBufferStoreOp(
        as_ir_value(value),
        resource,
        as_ir_value(fx.Int32(byte_offset)),
        as_ir_value(fx.Int32(0)),
        aux=_i32(policy) if policy else None,
    )
