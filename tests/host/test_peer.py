"""The peer-memory handshake: all ranks map all others, or all of them raise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from monoc.host.peer import PeerBuffer, PeerMemoryError

RANKS = 3


class Group:
    """A process group of threads."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.slots: list[Any] = [None] * ranks
        self.rank = threading.local()

    def all_gather_object(self, value: Any) -> list[Any]:
        self.slots[self.rank.value] = value
        self.barrier.wait(timeout=10)
        everyone = list(self.slots)
        self.barrier.wait(timeout=10)
        return everyone


class Heap:
    """Memory of one rank, opened by its handle; ``fails`` names the call that raises."""

    memory: dict[int, torch.Tensor]

    def __init__(self, memory: dict[int, torch.Tensor], fails: str = "") -> None:
        self.memory = memory
        self.fails = fails
        self.freed: list[int] = []
        self.closed: list[int] = []

    def alloc(self, nbytes: int) -> int:
        if self.fails == "alloc":
            raise RuntimeError("out of memory")
        buffer = torch.full((nbytes,), 7, dtype=torch.uint8)
        self.memory[buffer.data_ptr()] = buffer
        return buffer.data_ptr()

    def view(self, address: int, nbytes: int, device: torch.device) -> torch.Tensor:
        return self.memory[address]

    def handle(self, address: int) -> bytes:
        return address.to_bytes(8, "little")

    def open(self, handle: bytes) -> int:
        if self.fails == "open":
            raise RuntimeError("no peer access")
        return int.from_bytes(handle, "little")

    def close(self, address: int) -> None:
        self.closed.append(address)

    def free(self, address: int) -> None:
        self.freed.append(address)


def _on_all_ranks(body: Callable[[int, Group], Any]) -> list[Any]:
    group, results = Group(RANKS), [None] * RANKS

    def run(rank: int) -> None:
        group.rank.value = rank
        try:
            results[rank] = body(rank, group)
        except PeerMemoryError as error:
            results[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return results


def test_every_rank_knows_every_address() -> None:
    memory: dict[int, torch.Tensor] = {}
    heaps = [Heap(memory) for _ in range(RANKS)]

    def body(rank: int, group: Group) -> PeerBuffer:
        return PeerBuffer(64, group, rank, RANKS, torch.device("cpu"), heaps[rank])

    buffers = _on_all_ranks(body)
    addresses = [b.local for b in buffers]
    assert all(b.addresses.tolist() == addresses for b in buffers)
    assert all(not memory[a].any() for a in addresses)  # zeroed
    for rank, buffer in enumerate(buffers):
        buffer.close()
        buffer.close()
        assert heaps[rank].freed == [addresses[rank]]
        assert sorted(heaps[rank].closed) == sorted(a for r, a in enumerate(addresses) if r != rank)


@pytest.mark.parametrize(("fails", "says"), [("open", "no peer access"), ("alloc", "out of memory")])
def test_a_failure_on_one_rank_is_raised_on_all(fails: str, says: str) -> None:
    memory: dict[int, torch.Tensor] = {}
    heaps = [Heap(memory, fails if rank == 1 else "") for rank in range(RANKS)]

    def body(rank: int, group: Group) -> PeerBuffer:
        return PeerBuffer(64, group, rank, RANKS, torch.device("cpu"), heaps[rank])

    errors = _on_all_ranks(body)
    assert all(isinstance(e, PeerMemoryError) for e in errors)
    assert {str(e) for e in errors} == {f"peer memory handshake failed on rank 1: {says}"}
    assert [len(h.freed) for h in heaps] == [1, 0 if fails == "alloc" else 1, 1]  # nothing is kept


def test_one_rank_needs_no_group() -> None:
    heap = Heap({})
    buffer = PeerBuffer(8, None, 0, 1, torch.device("cpu"), heap)
    assert buffer.addresses.tolist() == [buffer.local]
    buffer.close()
