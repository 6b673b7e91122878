"""Which of the waits that ended are named: those no other explains."""

from collections.abc import Callable

import pytest
import torch

from monoc.host.peer import PeerBuffer
from monoc.host.waits import MissedWait, WaitPlace, Waits, WaitTimeoutError, missing_first

STAGES = ("push", "norm", "matrix", "sum")


def wait(rank: int, cta: int, stage: int, after: int, ranks: bool = False, region: str = "") -> MissedWait:
    place = WaitPlace("k", STAGES[stage], region or f"region of {after}", (STAGES[after],), ranks, after)
    return MissedWait(rank, (0, stage), place, (cta,), 2, 0, 10)


def test_a_wait_for_a_waiting_stage_is_left_out() -> None:
    root, follower = wait(0, 1, 1, 0), wait(0, 2, 2, 1)
    assert missing_first([follower, root]) == (root,)


def test_other_ranks_waits_explain_only_what_crosses_ranks() -> None:
    root, local, crossing = wait(1, 0, 1, 0), wait(0, 3, 2, 1), wait(0, 4, 3, 2, ranks=True)
    assert missing_first([root, local]) == (root, local)
    assert missing_first([root, crossing]) == (root,)


def test_ctas_at_one_place_are_one() -> None:
    (found,) = missing_first([wait(0, 5, 1, 0), wait(0, 2, 1, 0), wait(0, 7, 1, 0)])
    assert found.ctas == (2, 5, 7)
    assert "CTA 2 and 2 more" in str(found)


def test_waits_for_each_other_are_all_named() -> None:
    # two hops of one stage: each rank's gather waits for the other's
    mutual = [wait(0, 0, 3, 3, ranks=True), wait(1, 0, 3, 3, ranks=True)]
    assert missing_first(mutual) == tuple(mutual)


class Health:
    """Two ranks of two CTAs."""

    byte, stop, ranks, grid, records, record_words = 64, 0, 2, 2, 16, 8


class Heap:
    """Ordinary memory as a peer heap."""

    def __init__(self, words: torch.Tensor) -> None:
        self.words = words

    def alloc(self, nbytes: int) -> int:
        return 4096

    def view(self, address: int, nbytes: int, device: torch.device) -> torch.Tensor:
        return self.words.view(torch.uint8)[address - 4096 :][:nbytes]

    def handle(self, address: int) -> bytes:
        return b""

    def open(self, handle: bytes) -> int:
        raise AssertionError

    def close(self, address: int) -> None:
        raise AssertionError

    def free(self, address: int) -> None:
        pass


@pytest.fixture
def memory() -> tuple[torch.Tensor, Waits]:
    words = torch.zeros(64, dtype=torch.int32)
    peer = PeerBuffer(256, None, 0, 1, torch.device("cpu"), Heap(words))

    def place(launch: int, stage: int, wait: int) -> tuple[str, str, str, tuple[str, ...], bool, int]:
        return "k", STAGES[stage], f"region {wait}", (STAGES[0],), False, 0

    named: Callable[[int, int, int], tuple[str, str, str, tuple[str, ...], bool, int]] = place
    return words, Waits(peer, 0, 20, Health(), named)


def test_nothing_is_raised_where_nothing_stopped(memory: tuple[torch.Tensor, Waits]) -> None:
    words, waits = memory
    words[16 + 16] = 1  # a record alone is none yet: the stop word follows it
    waits.check()
    waits.refuse()


def test_a_record_is_read_and_kept(memory: tuple[torch.Tensor, Waits]) -> None:
    words, waits = memory
    words[16] = 1
    at = 16 + 16 + (1 * 2 + 0) * 8  # rank 1, CTA 0
    words[at : at + 7] = torch.tensor([1, 0, 2, 5, -3, 7, 2500])
    with pytest.raises(WaitTimeoutError) as raised:
        waits.check()
    (missed,) = raised.value.missed
    assert (missed.rank, missed.ctas, missed.place.stage, missed.place.region) == (1, (0,), "matrix", "region 5")
    assert (missed.awaited, missed.seen, missed.microseconds) == (2**32 - 3, 7, 25)
    words.zero_()
    with pytest.raises(WaitTimeoutError) as again:
        waits.refuse()
    assert again.value is raised.value
