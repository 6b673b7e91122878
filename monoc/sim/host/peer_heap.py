"""Peer memory of the simulated ranks: what aiter's `UncachedIpcHeap` is on a GPU machine.

One address space holds every rank's device memory, so opening a peer's handle gives the peer's own address.
Handles are checked as strictly as the real ones: 64 opaque bytes, open only while the memory lives, not by its owner.
"""

import struct
import threading
from collections.abc import Callable
from typing import Any

import torch

from monoc.sim.host.memory import DeviceMemory

__all__ = ["ActiveHeap", "PeerHeap"]

_HANDLE = struct.Struct("<8sQQ40x")  # magic, address, serial: 64 bytes, the size of a hipIpcMemHandle_t
_MAGIC = b"monocipc"


class PeerHeap:
    """The heap of one simulation. Methods have the names of the class they stand in for; errors are RuntimeError."""

    def __init__(self, memory: DeviceMemory, rank: Callable[[], int], gather: Callable[[str, Any], list[Any]]) -> None:
        self._memory = memory
        self._rank = rank
        self._gather = gather
        self._lock = threading.Lock()
        self._owned: dict[int, tuple[int, int, torch.Tensor]] = {}  # address -> (rank, serial, bytes)
        self._opened: dict[tuple[int, int], int] = {}  # (rank, address) -> times open
        self._serial = 0

    def alloc_uncached(self, nbytes: int) -> int:
        """Address of `nbytes` (> 0) of this rank's memory, contents undefined, 4 KiB granularity as hipMalloc."""
        if nbytes <= 0:
            raise RuntimeError(f"alloc_uncached({nbytes}): the size must be positive")
        rank = self._rank()
        # One cache line more than asked for keeps the start 256-byte aligned, as device allocations are.
        storage = torch.empty(nbytes + 256, dtype=torch.uint8)
        skip = -storage.data_ptr() % 256
        self._memory.adopt(storage, rank, written=False, name=f"peer heap of rank {rank}", shared=True)
        address = storage.data_ptr() + skip
        with self._lock:
            self._serial += 1
            self._owned[address] = (rank, self._serial, storage)
        return address

    def free_device_mem(self, address: int) -> None:
        """Frees an allocation; its open handles become invalid."""
        with self._lock:
            if self._owned.pop(address, None) is None:
                raise RuntimeError(f"free_device_mem({address:#x}): not an allocation of this heap")

    def get_mem_handle_bytes(self, address: int) -> bytes:
        """The 64-byte handle of an allocation's start."""
        with self._lock:
            if address not in self._owned:
                raise RuntimeError(f"get_mem_handle_bytes({address:#x}): not the start of an allocation")
            return _HANDLE.pack(_MAGIC, address, self._owned[address][1])

    def open_mem_handle(self, handle: bytes) -> int:
        """The address, valid on this rank, of a peer's allocation."""
        if len(handle) != _HANDLE.size:
            raise RuntimeError(f"open_mem_handle: a handle has {_HANDLE.size} bytes, not {len(handle)}")
        magic, address, serial = _HANDLE.unpack(handle)
        rank = self._rank()
        with self._lock:
            owner = self._owned.get(address)
            if magic != _MAGIC or owner is None or owner[1] != serial:
                raise RuntimeError("open_mem_handle: the handle names no live allocation")
            if owner[0] == rank:
                raise RuntimeError("open_mem_handle: a rank cannot open its own memory")
            self._opened[rank, address] = self._opened.get((rank, address), 0) + 1
        return int(address)

    def close_mem_handle(self, address: int) -> None:
        """Ends one `open_mem_handle` of this rank."""
        key = (self._rank(), address)
        with self._lock:
            count = self._opened.get(key, 0)
            if count == 0:
                raise RuntimeError(f"close_mem_handle({address:#x}): not open on rank {key[0]}")
            self._opened[key] = count - 1

    def gather_object_list_via_broadcast(self, group: Any, value: Any) -> list[Any]:
        """Every rank's `value`, in rank order; all ranks must call. `group` is not used: the ranks are threads."""
        return self._gather("gather_object_list_via_broadcast", value)


class ActiveHeap:
    """The heap of the simulation that runs now. Host modules import it once and keep it over several simulations."""

    def __init__(self) -> None:
        self._heaps: list[PeerHeap] = []

    def enter(self, heap: PeerHeap) -> None:
        """A simulation begins."""
        self._heaps.append(heap)

    def leave(self) -> None:
        """The innermost simulation ends."""
        self._heaps.pop()

    def __getattr__(self, name: str) -> Any:
        if not self._heaps:
            raise RuntimeError(f"UncachedIpcHeap.{name}: the simulation this stand-in belongs to has ended")
        return getattr(self._heaps[-1], name)
