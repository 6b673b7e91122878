"""The few device helpers the hand-written launches import from aiter, on FlyDSL 0.5's raw buffer operations.

aiter needs ROCm to install. Only signatures are theirs: `offset` counts elements, `cache_modifier` is the `aux` word.
"""

import sys
import types
from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import llvm, rocdl
from flydsl.expr.typing import T, as_ir_value

__all__ = ["add_modules"]

# Descriptor word 3 of an untyped buffer: 32-bit data format, structure swizzle off.
_WORD3 = 7 << 12 | 4 << 15


def _resource(addr: Any, *, num_records_bytes: Any = None) -> Any:
    if not hasattr(addr, "ir_value"):
        addr = getattr(addr, "value", addr)  # a region object holding its address
    pointer = llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr"), as_ir_value(fx.Int64(addr))).result
    limit = fx.Int64(2**32 - 1) if num_records_bytes is None else fx.Int64(num_records_bytes)
    words = [fx.Int16(0), limit, fx.Int32(_WORD3)]
    return rocdl.MakeBufferRsrcOp(ir.Type.parse("!llvm.ptr<8>"), pointer, *map(as_ir_value, words)).result


def _places(offset: Any, width: int, cache_modifier: int) -> tuple[Any, Any, Any]:
    """(byte offset, scalar offset, aux attribute) of element `offset`."""
    aux = ir.IntegerAttr.get(T.i32, cache_modifier) if cache_modifier else None
    return as_ir_value(fx.Int32(offset) * (width // 8)), as_ir_value(fx.Int32(0)), aux


def _load(rsrc: Any, offset: Any, vec_width: int = 4, dtype: Any = None, cache_modifier: int = 0) -> Any:
    element = T.f32 if dtype is None else getattr(dtype, "ir_type", dtype)
    result = ir.VectorType.get([vec_width], element) if vec_width > 1 else element
    voffset, soffset, aux = _places(offset, element.width, cache_modifier)
    return rocdl.RawPtrBufferLoadOp(result, rsrc, voffset, soffset, aux=aux).result


def _store(data: Any, rsrc: Any, offset: Any, cache_modifier: int = 0) -> None:
    value = as_ir_value(data)
    element = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    voffset, soffset, aux = _places(offset, element.width, cache_modifier)
    rocdl.RawPtrBufferStoreOp(value, rsrc, voffset, soffset, aux=aux)


def _dpp(old: Any, src: Any, ctrl: Any, row_mask: Any = 15, bank_mask: Any = 15, bound_ctrl: Any = False) -> Any:
    integers = [fx.Int32(value) for value in (old, src, ctrl, row_mask, bank_mask)]
    operands = [as_ir_value(value) for value in [*integers, fx.Boolean(bound_ctrl)]]
    return llvm.call_intrinsic(T.i32, "llvm.amdgcn.update.dpp.i32", operands, [], [])


def _signature(**params: Any) -> str:
    return "_".join(name + str(int(value)) for name, value in params.items())


def add_modules() -> None:
    """Puts the helpers where the launches import them from."""
    base = "aiter.ops.flydsl.kernels"
    parts = base.split(".")
    for depth in range(1, len(parts) + 1):
        package = types.ModuleType(".".join(parts[:depth]))
        package.__path__ = []
        sys.modules[package.__name__] = package
    leaves: dict[str, dict[str, Any]] = {
        "buffer_ops": {
            "create_buffer_resource_from_addr": _resource,
            "buffer_load": _load,
            "buffer_store": _store,
        },
        "dpp_utils": {"update_dpp_i32": _dpp},
        "kernels_common": {"kernel_signature": _signature},
    }
    for leaf, members in leaves.items():
        module = types.ModuleType(f"{base}.{leaf}")
        vars(module).update(members)
        sys.modules[module.__name__] = module
        setattr(sys.modules[base], leaf, module)
