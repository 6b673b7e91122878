"""Where the host threads of the ranks meet: a launch, or an exchange of handles, happens for all at once."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from monoc.sim.errors import UsageError

__all__ = ["Rendezvous"]


class Rendezvous:
    """A meeting point of `ranks` threads that repeats. A rank that leaves for good is no longer waited for."""

    def __init__(self, ranks: int) -> None:
        self._live = set(range(ranks))
        self._arrived: dict[int, tuple[str, Any]] = {}
        self._condition = threading.Condition()
        self._generation = 0
        self._outcome: Any = None
        self._failure: BaseException | None = None
        self._action: Callable[[Mapping[int, Any]], Any] | None = None

    def meet(self, rank: int, kind: str, payload: Any, action: Callable[[Mapping[int, Any]], Any]) -> Any:
        """Blocks until every live rank has come, then `action({rank: payload})` runs once, in the last thread
        to come; every rank gets its result or its exception.

        Raises UsageError on all ranks when they come for different `kind`s: they would wait forever.
        """
        with self._condition:
            if rank not in self._live:
                raise UsageError(f"rank {rank} is not running; start its host code with run()")
            generation = self._generation
            self._arrived[rank] = (kind, payload)
            self._action = action
            self._complete()
            while generation == self._generation:
                self._condition.wait()
            if self._failure is not None:
                raise self._failure
            return self._outcome

    def leave(self, rank: int) -> None:
        """The rank's host code has ended; the others go on without it."""
        with self._condition:
            self._live.discard(rank)
            self._complete()

    def _complete(self) -> None:
        if not self._live or set(self._arrived) != self._live or self._action is None:
            return
        arrived, self._arrived = self._arrived, {}
        self._outcome, self._failure = None, None
        try:
            kinds = {rank: kind for rank, (kind, _) in sorted(arrived.items())}
            if len(set(kinds.values())) > 1:
                listed = ", ".join(f"rank {rank}: {kind}" for rank, kind in kinds.items())
                raise UsageError(f"the ranks' host code diverged ({listed}); every rank must make the same calls")
            self._outcome = self._action({rank: payload for rank, (_, payload) in sorted(arrived.items())})
        except BaseException as error:  # handed to every rank, each raises it
            self._failure = error
        finally:
            self._generation += 1
            self._condition.notify_all()
