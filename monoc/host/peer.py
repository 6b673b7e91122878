"""Symmetric peer memory: one uncached buffer a rank, its address known to every rank of the TP group.

The launches push partial sums straight into the other ranks' buffers, so every rank must have mapped every other before
the first of them starts; a rank that gave up alone would leave the others spinning. The constructor is therefore
collective, and a failure on one rank is raised on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

__all__ = ["PeerBuffer", "PeerHeap", "PeerMemoryError", "default_heap"]


class PeerMemoryError(RuntimeError):
    """The peer-memory handshake failed, on this rank or on another."""


class PeerHeap(Protocol):
    """Device memory that other processes (or, simulated, other ranks of this one) can open.

    ``alloc`` returns the address of ``nbytes`` zeroed, uncached bytes; ``handle`` a picklable name for them; ``open``
    the address at which a peer's handle is mapped here. ``open`` raises :class:`RuntimeError` where that is impossible.
    """

    def alloc(self, nbytes: int) -> int: ...
    def view(self, address: int, nbytes: int, device: torch.device) -> torch.Tensor: ...
    def handle(self, address: int) -> bytes: ...
    def open(self, handle: bytes) -> int: ...
    def close(self, address: int) -> None: ...
    def free(self, address: int) -> None: ...


class _DeviceBytes:
    """Raw device bytes as ``__cuda_array_interface__`` (version 3), for a torch view that owns nothing."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


class _AiterHeap:
    """aiter's uncached IPC heap. Raises :class:`ImportError` where aiter is not installed."""

    def __init__(self) -> None:
        from aiter.ops.flydsl.quick_allreduce_int4_ipc import UncachedIpcHeap

        self._heap: Any = UncachedIpcHeap

    def alloc(self, nbytes: int) -> int:
        return int(self._heap.alloc_uncached(nbytes))

    def view(self, address: int, nbytes: int, device: torch.device) -> torch.Tensor:
        return torch.as_tensor(_DeviceBytes(address, nbytes), device=device)

    def handle(self, address: int) -> bytes:
        return bytes(self._heap.get_mem_handle_bytes(address))

    def open(self, handle: bytes) -> int:
        return int(self._heap.open_mem_handle(handle))

    def close(self, address: int) -> None:
        self._heap.close_mem_handle(address)

    def free(self, address: int) -> None:
        self._heap.free_device_mem(address)


def default_heap() -> PeerHeap:
    """aiter's heap, the one a GPU machine has."""
    return _AiterHeap()


def _everyones(mine: Any, ranks: int, group: Any) -> Sequence[Any]:
    """``mine`` of every rank of ``group`` (a CPU process group), in rank order."""
    if ranks == 1:
        return [mine]
    gather = getattr(group, "all_gather_object", None)
    if gather is not None:  # a group that is not torch.distributed's (ranks that are threads of one process)
        return list(gather(mine))
    everyone: list[Any] = [None] * ranks
    dist.all_gather_object(everyone, mine, group=group)
    return everyone


class PeerBuffer:
    """``nbytes`` of symmetric memory on each of ``ranks`` ranks; this one is ``rank``.

    ``local``: the own buffer's address; ``addresses``: int64 tensor [ranks] on ``device``, every rank's buffer as
    mapped here.
    Collective over ``group``. Raises :class:`PeerMemoryError` on every rank if any rank could not allocate or map.
    """

    def __init__(
        self,
        nbytes: int,
        group: Any,
        rank: int,
        ranks: int,
        device: torch.device,
        heap: PeerHeap | None = None,
    ) -> None:
        self._opened: list[int] = []
        self.local = 0
        self.rank = rank
        self._device = device
        addresses: list[int] = []
        failure: Exception | None = None
        handle = b""
        try:
            self._heap = default_heap() if heap is None else heap
            self.local = self._heap.alloc(nbytes)
            self._heap.view(self.local, nbytes, device).zero_()
            handle = self._heap.handle(self.local) if ranks > 1 else b""
        except (ImportError, RuntimeError, MemoryError) as error:
            failure = error
        offers = _everyones((handle, None if failure is None else str(failure)), ranks, group)
        if all(why is None for _, why in offers):
            try:
                for peer, (theirs, _) in enumerate(offers):
                    addresses.append(self.local if peer == rank else self._map(theirs))
            except RuntimeError as error:
                failure = error
        outcomes = _everyones(None if failure is None else str(failure), ranks, group)
        bad = [
            f"rank {r}: {why or offer}"
            for r, (why, (_, offer)) in enumerate(zip(outcomes, offers, strict=True))
            if why or offer
        ]
        if bad:
            self.close()
            raise PeerMemoryError(f"peer memory handshake failed on {'; '.join(bad)}") from failure
        self.addresses = torch.tensor(addresses, dtype=torch.int64, device=device)

    def _map(self, handle: bytes) -> int:
        address = self._heap.open(handle)
        self._opened.append(address)
        return address

    def words(self, byte: int, count: int) -> list[int]:
        """``count`` int32 words of the own buffer from ``byte`` on, read now."""
        view = self._heap.view(self.local + byte, 4 * count, self._device)
        return [int(word) for word in view.cpu().view(torch.int32).tolist()]

    def close(self) -> None:
        """Unmap the peers and free the own buffer; again is harmless. No launch of any rank may still be running."""
        opened, self._opened = self._opened, []
        for address in opened:
            self._heap.close(address)
        local, self.local = self.local, 0
        if local:
            self._heap.free(local)
