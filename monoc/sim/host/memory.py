"""Device memory of the simulated ranks: which torch storages it is, and who owns them.

Device memory is host memory: a "cuda" tensor made inside the simulation is an ordinary CPU tensor whose storage
is in this table. The table follows the storages' lives; the simulator learns of changes before each launch.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from monoc.sim.errors import UsageError

__all__ = ["Allocation", "DeviceMemory", "storage_of"]


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage behind `tensor` (subclasses and views included)."""
    return tensor.untyped_storage()


@dataclass(eq=False)
class Allocation:
    """`nbytes` of device memory at `address` of `rank` (None: the host made it, every rank may use it).

    `shared` memory may be used by every rank (peer memory); kernels may not store to `read_only` memory. `written`
    spans are byte ranges the host wrote since the simulator last looked; memory from `torch.empty` starts with none.
    """

    address: int
    nbytes: int
    rank: int | None
    name: str
    shared: bool = False
    read_only: bool = False
    written: list[tuple[int, int]] = field(default_factory=list)
    dead: bool = False


class DeviceMemory:
    """The table of live allocations, safe to use from every host thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_address: dict[int, Allocation] = {}
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._fresh: list[Allocation] = []
        self._dead: list[Allocation] = []
        self._serial = 0

    def adopt(
        self,
        tensor: torch.Tensor,
        rank: int | None,
        *,
        written: bool = True,
        name: str = "",
        shared: bool = False,
        read_only: bool = False,
    ) -> Allocation | None:
        """Makes the tensor's storage device memory of `rank`; gives the present entry when it is that already.

        An empty storage is given a byte, so that it is known by its address like any other. None where it cannot grow.
        """
        storage = storage_of(tensor)
        if storage.nbytes() == 0:
            try:
                storage.resize_(1)
            except RuntimeError:
                return None
            written = False
        address, nbytes = storage.data_ptr(), storage.nbytes()
        with self._lock:
            known = self._by_address.get(address)
            if known is not None and self._storages[address]() is storage:
                return known
            if known is not None:
                self._drop(known)
            self._serial += 1
            allocation = Allocation(address, nbytes, rank, name or f"tensor{self._serial}", shared, read_only)
            if written:
                allocation.written.append((0, nbytes))
            self._by_address[address] = allocation
            self._storages[address] = weakref.ref(storage, self._finalizer(allocation))
            self._fresh.append(allocation)
            return allocation

    def _finalizer(self, allocation: Allocation) -> Callable[[object], None]:
        table = weakref.ref(self)

        def gone(_: object) -> None:
            memory = table()
            if memory is not None:
                with memory._lock:
                    if not allocation.dead:
                        memory._drop(allocation)

        return gone

    def _drop(self, allocation: Allocation) -> None:
        allocation.dead = True
        if self._by_address.get(allocation.address) is allocation:
            del self._by_address[allocation.address]
            del self._storages[allocation.address]
        if allocation in self._fresh:
            self._fresh.remove(allocation)
        else:
            self._dead.append(allocation)

    def find(self, tensor: torch.Tensor) -> Allocation | None:
        """The tensor's allocation, or None when it is host memory."""
        storage = storage_of(tensor)
        with self._lock:
            reference = self._storages.get(storage.data_ptr())
            if reference is None or reference() is not storage:
                return None
            return self._by_address[storage.data_ptr()]

    def view(self, address: int, nbytes: int) -> torch.Tensor:
        """Bytes `[nbytes]` (uint8) of the allocation that covers them; UsageError when none does."""
        with self._lock:
            for allocation in self._by_address.values():
                offset = address - allocation.address
                if offset >= 0 and offset + nbytes <= allocation.nbytes:
                    storage = self._storages[allocation.address]()
                    if storage is not None:
                        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
                        return whole[offset : offset + nbytes]
        raise UsageError(f"{nbytes} bytes at {address:#x} are no device memory of this simulation")

    def mark_written(self, tensor: torch.Tensor) -> None:
        """The host wrote (some of) the bytes `tensor` spans."""
        allocation = self.find(tensor)
        if allocation is None or tensor.numel() == 0:
            return
        first = int(tensor.storage_offset()) * tensor.element_size()
        reach = sum((int(n) - 1) * int(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        with self._lock:
            span = (first, first + reach * tensor.element_size())
            if span not in allocation.written:
                allocation.written.append(span)

    def changes(self) -> tuple[list[Allocation], list[Allocation]]:
        """(new, freed) allocations since the last call; the freed ones first left, then the new ones came."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            dead, self._dead = self._dead, []
            return fresh, dead

    def take_written(self) -> list[tuple[Allocation, list[tuple[int, int]]]]:
        """Byte spans the host wrote since the last call."""
        with self._lock:
            out = [(a, a.written) for a in self._by_address.values() if a.written]
            for allocation, _ in out:
                allocation.written = []
            return out

    def __iter__(self) -> Iterator[Allocation]:
        with self._lock:
            return iter(list(self._by_address.values()))
