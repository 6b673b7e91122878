"""A launch's hand-off regions: the plan's table made into region objects, addresses read where a stage starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.handoff import FlagRegion, PairRegion, PeerRegion, PlainRegion
from monoc.device.intrinsics import constant_load
from monoc.device.limit import WaitLimit

__all__ = ["Regions"]


class Regions(Frozen):
    """Regions by name for one stage.

    ``table``: the plan's regions (form, space, flags, ...); ``offsets``: their byte offsets in scratch or in a half of
    the peer buffer; ``scratch``: Int64 address; ``peers``: address of the ranks' Int64 peer-buffer addresses;
    ``rank``: this one; ``half``: Int64 byte offset of the epoch's half; ``limit``: on the stage's waits, if there is
    one.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        offsets: Mapping[str, int],
        scratch: Any,
        peers: Any,
        rank: Any,
        ranks: int,
        half: Any,
        tag: Any,
        limit: WaitLimit | None = None,
    ) -> None:
        self._table = table
        self._offsets = offsets
        self._scratch = scratch
        self._peers = peers
        self._rank = rank
        self._ranks = ranks
        self._half = half
        self._tag = tag
        self._limit = limit

    def __getitem__(self, name: str) -> Any:
        place = self._table[name]
        limit = None if self._limit is None else self._limit.of(list(self._table).index(name))
        offset = fx.Int64(self._offsets[name])
        if place.space == "peer":
            at = offset + self._half
            copies = tuple(constant_load(self._peers + fx.Int64(8 * r)) + at for r in range(self._ranks))
            own = constant_load(self._peers + fx.Int64(self._rank) * 8) + at
            return PeerRegion(copies, own, self._tag, limit)
        address = self._scratch + offset
        if place.form == "pair":
            return PairRegion(address, self._tag, limit=limit)
        if place.form == "flag":
            return FlagRegion(PlainRegion(address), address + fx.Int64(place.flags), self._tag, limit)
        return PlainRegion(address)
