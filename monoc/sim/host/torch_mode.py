"""Tensors on "cuda" inside a simulation: CPU tensors whose storage is simulated device memory.

A `TorchFunctionMode` sees every torch call of a host thread. Calls that ask for the "cuda" device are given the CPU
and their result becomes device memory of the thread's rank; results of operations on device tensors are device memory
too; `tensor.device` answers "cuda:<rank>". Nothing of torch is changed for other threads.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from monoc.sim.host.dlpack import mark_device
from monoc.sim.host.memory import DeviceMemory, storage_of

__all__ = ["DeviceMode"]

_UNWRITTEN = frozenset(
    {
        torch.empty,
        torch.empty_like,
        torch.empty_strided,
        torch.Tensor.new_empty,
        torch.Tensor.new_empty_strided,
    }
)
_IN_PLACE = frozenset(
    f"__i{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
)
_MOVES = frozenset({torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda})


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _device_of(value: Any) -> torch.device | None:
    """The device a call argument names, or None when it names none."""
    if isinstance(value, torch.device):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return torch.device("cuda", value)
    if isinstance(value, str) and value.partition(":")[0] in ("cuda", "cpu"):
        return torch.device(value)
    return None


class DeviceMode(TorchFunctionMode):
    """The torch calls of one host thread. `rank()` tells whose memory new tensors are (None: every rank's)."""

    def __init__(self, memory: DeviceMemory, rank: Callable[[], int | None]) -> None:
        super().__init__()
        self._memory = memory
        self._rank = rank

    def _on_device(self, tensor: torch.Tensor) -> bool:
        return self._memory.find(tensor) is not None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func, args)
        if func is torch.Tensor.get_device:
            return (self._rank() or 0) if self._on_device(args[0]) else -1
        if func is torch.Tensor.__dlpack__:
            capsule = func(*args, **kwargs)
            return mark_device(capsule, self._rank() or 0) if self._on_device(args[0]) else capsule
        if func is torch.Tensor.pin_memory:
            return args[0]  # host memory, and all host memory is pinned as far as a CPU is concerned
        if func is torch.Tensor.record_stream:
            return None
        if func is torch.as_tensor and hasattr(args[0], "__cuda_array_interface__"):
            return self._view_of_address(args[0].__cuda_array_interface__)
        args, kwargs, device = self._strip_device(func, args, kwargs)
        inputs = list(_tensors([*args, *kwargs.values()]))
        on_device = device.type == "cuda" if device is not None else any(self._on_device(tensor) for tensor in inputs)
        if func is torch.Tensor.cuda:
            result = args[0].clone() if not self._on_device(args[0]) else args[0]
        elif func is torch.Tensor.cpu:
            result = args[0].clone() if self._on_device(args[0]) else args[0]
        else:
            result = func(*args, **kwargs)
            if func is torch.Tensor.to and device is not None:
                result = self._moved(args[0], result, on_device)
        if on_device:
            written = func not in _UNWRITTEN
            for tensor in _tensors([result]):
                self._memory.adopt(tensor, self._rank(), written=written)
        self._note_writes(name, args, kwargs)
        return result

    def _attribute(self, func: Any, args: tuple[Any, ...]) -> Any:
        owner = getattr(func, "__self__", None)
        if owner is torch.Tensor.device and self._on_device(args[0]):
            allocation = self._memory.find(args[0])
            rank = allocation.rank if allocation is not None else None
            return torch.device("cuda", rank if rank is not None else 0)
        if owner is torch.Tensor.is_cuda:
            return self._on_device(args[0])
        if owner is torch.Tensor.is_cpu:
            return not self._on_device(args[0])
        return func(*args)

    @staticmethod
    def _strip_device(
        func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], torch.device | None]:
        """The call with "cuda" replaced by "cpu", and the device it asked for."""
        device = _device_of(kwargs.get("device"))
        if device is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if func in _MOVES:
            if func is torch.Tensor.cuda:
                return args[:1], {}, torch.device("cuda")
            if func is torch.Tensor.cpu:
                return args[:1], {}, torch.device("cpu")
            for index, value in enumerate(args[1:], 1):
                found = _device_of(value)
                if found is not None:
                    device = found
                    args = (*args[:index], torch.device("cpu"), *args[index + 1 :])
        kwargs.pop("pin_memory", None)
        return args, kwargs, device

    def _moved(self, source: torch.Tensor, result: torch.Tensor, to_device: bool) -> torch.Tensor:
        """A move between host and device is a copy even though both are the same memory here."""
        same = result.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
        return result.clone() if same and self._on_device(source) != to_device else result

    def _view_of_address(self, interface: dict[str, Any]) -> torch.Tensor:
        """A tensor over device memory that somebody else owns (`__cuda_array_interface__`, bytes only)."""
        if interface["typestr"] != "|u1" or len(interface["shape"]) != 1:
            raise TypeError(f"only flat byte views of device memory are supported, not {interface}")
        return self._memory.view(interface["data"][0], interface["shape"][0])

    def _note_writes(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        out = kwargs.get("out")
        if out is not None:
            for tensor in _tensors([out]):
                self._memory.mark_written(tensor)
        if name == "__setitem__":
            view = args[0][args[1]]  # a copy under advanced indexing: then the whole tensor counts
            same = storage_of(view).data_ptr() == storage_of(args[0]).data_ptr()
            self._memory.mark_written(view if same else args[0])
        elif args and ((name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE):
            for tensor in _tensors(args[:1]):
                self._memory.mark_written(tensor)
