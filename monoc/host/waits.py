"""What a runner with a wait limit looks at after its launches: the health words written when a wait took too long.

A launch of a build with a wait limit ends when one of its waits does not; every CTA that gave up has said on every rank
what it waited for. Reading it waits for the launches, so it is done only where a limit was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .peer import PeerBuffer

__all__ = ["MissedWait", "WaitPlace", "WaitTimeoutError", "Waits", "missing_first"]

_TICKS = 100  # of the GPUs' realtime clock in a microsecond


class WaitPlace(NamedTuple):
    """Where a wait stands: launch, stage and region (or what else it was for), the stages that write the region,
    whether every rank does, and the number of the last stage that had to run for it (-1: none)."""

    launch: str
    stage: str
    region: str
    writers: tuple[str, ...]
    ranks: bool
    after: int


@dataclass(frozen=True)
class MissedWait:
    """CTAs ``ctas`` of rank ``rank`` gave up at ``place``, launch and stage number ``at``: tag ``awaited`` (32 bits,
    unsigned) was wanted, ``seen`` was there after ``microseconds`` (both of the first CTA)."""

    rank: int
    at: tuple[int, int]
    place: WaitPlace
    ctas: tuple[int, ...]
    awaited: int
    seen: int
    microseconds: int

    def explains(self, other: MissedWait) -> bool:
        """Whether ``other`` waits for what a stage makes that this one kept from running."""
        same = self.rank == other.rank
        return self is not other and (same or other.place.ranks) and self.at <= (other.at[0], other.place.after)

    def __str__(self) -> str:
        p, more = self.place, f" and {len(self.ctas) - 1} more" if len(self.ctas) > 1 else ""
        said = f"rank {self.rank}, launch {p.launch}, stage {p.stage}, CTA {self.ctas[0]}{more}: waited "
        said += f"{self.microseconds} us for {p.region}, tag awaited {self.awaited:#x}, tag seen {self.seen:#x}"
        if self.seen == 0:
            said += " (never written)"
        elif self.seen == self.awaited:
            said += " (it came as the wait ended)"
        return f"{said}; {self._cause()}"

    def _cause(self) -> str:
        who = f"stage {' or '.join(self.place.writers)}" if self.place.writers else "a CTA"
        if self.place.ranks:
            return f"probably another rank does not run this step or is too far behind ({who} writes it)"
        return f"probably {who} of the same rank did not announce what it made"


def missing_first(waits: Iterable[MissedWait]) -> tuple[MissedWait, ...]:
    """Of ``waits`` (one CTA each) those no other explains, CTAs of one rank at one place together; where all explain
    each other, those of the earliest stage."""
    every = list(waits)
    first = [w for w in every if not any(other.explains(w) for other in every)]
    first = first or [w for w in every if w.at == min(v.at for v in every)]
    together: dict[tuple[int, WaitPlace], MissedWait] = {}
    for wait in sorted(first, key=lambda w: (w.at, w.rank, w.ctas)):
        key = (wait.rank, wait.place)
        known = together.get(key)
        together[key] = wait if known is None else replace(known, ctas=known.ctas + wait.ctas)
    return tuple(together.values())


class WaitTimeoutError(RuntimeError):
    """A launch ended because a wait took longer than the limit. ``missed``: the waits for what was missing, less those
    that only waited for others of them; ``rank``: the rank that raises."""

    def __init__(self, rank: int, limit: int, missed: tuple[MissedWait, ...]) -> None:
        self.rank, self.limit, self.missed = rank, limit, missed
        super().__init__(
            f"rank {rank}: a launch was stopped, a wait took longer than {limit} us: {'; '.join(map(str, missed))}. "
            f"What the step left is not to be used and this runner takes no further step: make a new one on every "
            f"rank, with a longer wait_limit if the ranks may differ by as much (warm up first: compiling counts)"
        )


class Waits:
    """The health words of rank ``rank`` in ``peer``, for waits of up to ``limit`` microseconds.

    ``health``: the plan's ``Health``; ``place`` names what a record's launch, stage and region number stand for (the
    plan's ``wait_place``).
    """

    def __init__(
        self, peer: PeerBuffer, rank: int, limit: int, health: Any, place: Callable[[int, int, int], Sequence[Any]]
    ) -> None:
        self._peer, self._rank, self._limit, self._health, self._place = peer, rank, limit, health, place
        self._error: WaitTimeoutError | None = None

    def refuse(self) -> None:
        """Raises the :class:`WaitTimeoutError` of an earlier check again: a stopped runner takes no step."""
        if self._error is not None:
            raise self._error

    def check(self) -> None:
        """Raises :class:`WaitTimeoutError` if a launch of any rank was stopped. The rank's launches must have ended."""
        self.refuse()
        if self._peer.words(self._health.byte + 4 * self._health.stop, 1)[0]:
            self._error = WaitTimeoutError(self._rank, self._limit, missing_first(self._records()))
            raise self._error

    def _records(self) -> Iterable[MissedWait]:
        health, size = self._health, self._health.record_words
        words = self._peer.words(health.byte + 4 * health.records, health.ranks * health.grid * size)
        for slot in range(health.ranks * health.grid):
            given_up, launch, stage, wait, awaited, seen, ticks, *_ = words[slot * size : (slot + 1) * size]
            if given_up:
                rank, cta = divmod(slot, health.grid)
                place = WaitPlace(*self._place(launch, stage, wait))
                tags = (awaited % 2**32, seen % 2**32)
                yield MissedWait(rank, (launch, stage), place, (cta,), *tags, ticks % 2**32 // _TICKS)
