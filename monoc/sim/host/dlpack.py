"""DLPack capsules of simulated device memory: they say "ROCm device", as capsules of GPU tensors do.

FlyDSL's `from_dlpack` arguments launch only when their capsule is of a device; a CPU one is a compile-time placeholder.
"""

import ctypes
from typing import Any

__all__ = ["mark_device"]

_ROCM = 10  # kDLROCM (dlpack.h, DLDeviceType)

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]


class _Device(ctypes.Structure):
    """`DLDevice` behind the data pointer, with which a `DLTensor` begins (dlpack.h)."""

    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("index", ctypes.c_int32)]


# `DLManagedTensor` begins with the tensor, `DLManagedTensorVersioned` with version, context, deleter and flags.
_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}


def mark_device(capsule: Any, rank: int) -> Any:
    """`capsule`, changed to be of ROCm device `rank`; ValueError for a capsule that holds no unused DLPack tensor."""
    name = _name_of(capsule)
    if name not in _TENSOR_AT:
        raise ValueError(f"a capsule named {name!r} holds no DLPack tensor")
    device = _Device.from_address(_pointer_of(capsule, name) + _TENSOR_AT[name])
    device.type, device.index = _ROCM, rank
    return capsule
