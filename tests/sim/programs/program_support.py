"""Memory accesses of the test programs: plain FlyDSL on 64-bit addresses."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import torch
from flydsl.expr import rocdl

STREAM = fx.Stream(None)


def pointer(address, index, dtype, align=None):
    """Global pointer to element `index` of `dtype` at `address`."""
    size = dtype.width // 8
    kind = fx.PointerType.get(dtype.ir_type, fx.AddressSpace.Global, align or size)
    return fx.inttoptr(kind, fx.Int64(address) + fx.Int64(index) * fx.Int64(size))


def load(address, index, dtype=fx.Int32, count=1):
    align = min(16, count * dtype.width // 8)
    return fx.generic_load(pointer(address, index, dtype, align), count=count)


def store(address, index, value):
    vector = isinstance(value, fx.Vector)
    dtype = value.dtype if vector else type(value)
    align = min(16, (value.numel if vector else 1) * dtype.width // 8)
    fx.generic_store(pointer(address, index, dtype, align), value)


def put(address, index, value, tag, scope):
    """(value, tag) as one 8-byte store, visible in `scope`."""
    pair = fx.Int64(fx.Uint64(fx.Uint32(value)) | (fx.Uint64(fx.Uint32(tag)) << fx.Uint64(32)))
    fx.generic_store(pointer(address, index, fx.Int64), pair, memory_order=fx.AtomicOrdering.Monotonic, syncscope=scope)


@flyc.jit
def get(address, index, tag, scope):
    """Polls the pair until its tag is current; the value."""
    where = pointer(address, index, fx.Int64)
    pair = fx.generic_load(where, dtype=fx.Int64, memory_order=fx.AtomicOrdering.Monotonic, syncscope=scope)
    while fx.Int32(pair >> fx.Int64(32)) != tag:
        rocdl.s_sleep(1)
        pair = fx.generic_load(where, dtype=fx.Int64, memory_order=fx.AtomicOrdering.Monotonic, syncscope=scope)
    return fx.Int32(pair)


def on_device(array):
    """A numpy array as a tensor of the simulated device."""
    return torch.from_numpy(array).to("cuda")
