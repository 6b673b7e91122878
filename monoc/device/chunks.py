"""Which chunks of a step's key tables hold keys, so that no task is run for one that holds none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.cta import uniform
from monoc.device.frozen import Frozen
from monoc.device.intrinsics import ballot_bits, read_lane
from monoc.device.lanes import gather

__all__ = ["LiveChunks", "live_chunks"]


@dataclass(frozen=True)
class LiveChunks(Frozen):
    """Lane t: token t's ``keys``, chunks with keys of tokens 0 .. t (Int32 ``ends``; past the tokens no chunk's
    number); ``total``: chunks of all, wave-uniform."""

    keys: Any
    ends: Any
    total: Any

    def place(self, i: Any) -> tuple[Any, Any, Any]:
        """(token, chunk, the token's keys) of live chunk ``i`` < ``total``, tokens in order."""
        token = fx.Int32(fx.ctpop(ballot_bits(self.ends <= i)))
        before = read_lane(self.ends, fx.max(token - 1, 0))
        return token, i - (token > 0).select(before, fx.Int32(0)), read_lane(self.keys, token)


def live_chunks(lane: Any, tokens: int, keys: Any, chunk: int) -> LiveChunks:
    """The chunks of ``chunk`` keys of up to 64 ``tokens``; ``keys``: token ``min(lane, tokens - 1)``'s count."""
    own = fx.Int32(fx.Uint32(fx.Int32(keys) + (chunk - 1)) // fx.Uint32(chunk))
    ends = (lane < tokens).select(own, fx.Int32(0))
    distance = 1
    while distance < tokens:
        ends = ends + (lane >= distance).select(gather(ends, fx.max(lane - distance, 0)), fx.Int32(0))
        distance *= 2
    ends = (lane < tokens).select(ends, fx.Int32(0x7FFFFFFF))
    return LiveChunks(fx.Int32(keys), fx.Int32(ends), uniform(read_lane(ends, tokens - 1)))
