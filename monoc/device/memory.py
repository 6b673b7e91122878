"""Global memory and LDS accesses by address, with the cache policy named."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx

from monoc.device.intrinsics import buffer_load, buffer_resource, buffer_store

__all__ = [
    "DEVICE",
    "PLAIN",
    "STREAM",
    "SYSTEM",
    "gload",
    "gstore",
    "lds_load",
    "lds_store",
    "load",
    "load_within",
    "store",
]

# Cache policy bits of gfx940 and later (LLVM's AMDGPU CPol): SC0 = 1, NT = 2, SC1 = 16.
PLAIN = 0
STREAM = 2  # non-temporal: read once, do not displace what the step reuses
DEVICE = 16  # past the per-XCD L2s, which are not coherent with each other
SYSTEM = 17  # other GPUs


def load(address: Any, index: Any, dtype: Any = fx.Int32, count: int = 1, policy: int = PLAIN) -> Any:
    """``count`` elements of ``dtype`` from element ``index`` (Int32) of up to 4 GiB at ``address`` (Int64)."""
    return buffer_load(buffer_resource(address), fx.Int32(index) * (dtype.width // 8), count, dtype, policy)


def load_within(
    size: int, address: Any, index: Any, dtype: Any = fx.Int32, count: int = 1, policy: int = PLAIN, live: Any = None
) -> Any:
    """:func:`load` of the ``size`` bytes at ``address``: zeros and no memory traffic past them, and where the
    wave-uniform ``live`` (None: everywhere) does not hold."""
    records = fx.Int64(size) if live is None else live.select(fx.Int64(size), fx.Int64(0))
    return buffer_load(buffer_resource(address, records), fx.Int32(index) * (dtype.width // 8), count, dtype, policy)


def store(address: Any, index: Any, value: Any, policy: int = PLAIN) -> None:
    """Store a scalar or vector from element ``index`` of the memory at ``address``."""
    element = value.dtype if isinstance(value, fx.Vector) else type(value)
    buffer_store(buffer_resource(address), fx.Int32(index) * (element.width // 8), value, policy)


def _pointer(address: Any, dtype: Any, align: int) -> Any:
    kind = fx.PointerType.get(dtype.ir_type, fx.AddressSpace.Global, align)
    return fx.inttoptr(kind, fx.Int64(address))


def gload(address: Any, byte_offset: Any, dtype: Any = fx.Int32, count: int = 1, stream: bool = False) -> Any:
    """:func:`load` by a global access (uniform base + 32-bit unsigned byte offset): two scalar registers, not four."""
    at = fx.Int64(address) + fx.Int64(fx.Uint32(byte_offset))
    align = min(16, count * dtype.width // 8)
    return fx.generic_load(_pointer(at, dtype, align), count=count, nontemporal=stream)


def gstore(address: Any, value: Any) -> None:
    """Store a scalar or vector at a per-lane 64-bit ``address``, plainly."""
    element = value.dtype if isinstance(value, fx.Vector) else type(value)
    count = value.numel if isinstance(value, fx.Vector) else 1
    fx.generic_store(_pointer(address, element, min(16, count * element.width // 8)), value)


def lds_load(array: Any, index: Any, count: int = 1, dtype: Any = fx.Int32) -> Any:
    """``count`` elements (of ``dtype``, if more than one: naturally aligned) from element ``index`` of an LDS array."""
    if count == 1:
        return fx.ptr_load(array.ptr + index)
    return fx.Vector(fx.ptr_load(array.ptr + index, result_type=fx.Vector.make_type(count, dtype)))


def lds_store(array: Any, index: Any, value: Any) -> None:
    """Store a scalar or vector from element ``index`` of an LDS array."""
    fx.ptr_store(value, array.ptr + index)
