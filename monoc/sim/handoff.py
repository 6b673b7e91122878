"""The hand-off manifest: which memory carries work between CTAs, who writes it, who reads it and how.

A `Manifest` of `Region`s is given to the simulator (`Simulator.set_manifest`), which shadows their words while launches
run and reports as findings of kind `handoff`:

- `scope`: an access without the cache bits of the region's scope (device: SC1; system: SC0 and SC1; gfx940 ISA,
  "Memory scopes"). Loads of plain data need none: their flag has been seen, and the lines were not read before.
- `role`: an access by a CTA or rank the region does not name, or a tagged pair that is not one aligned 8-byte store.
- `undrained`: a flag stored while a wave of the CTA still has a store outstanding (no `s_waitcnt vmcnt(0)` since)
  to data that flag announces.
- `unseen`: a read of data by another CTA in the launch that wrote it, before the reader's CTA has loaded the flag that
  announces it (with the value it was given then, or a later one).
- `unread`: a store over a word that fewer than `reads` of its readers have read since it was written (a `word`'s: in
  this launch).

Plain regions that name no flag are *ordered*: which flag announces a word follows from what happens. A flag's store (of
any flag region) publishes what its wave stored before it and what the CTA's other waves had stored when they last met
at a barrier; a wave that loads the flag, and those it meets at barriers afterwards, know of all that, and of what the
storing wave knew (vector clocks, a component a CTA). Then

- `unseen` is also: a read of a word by a wave that knows of no flag raised after it was written, whatever the schedule
  made it see; a write, the first of the launch, of a word another CTA has read in it; and a read through the caches
  (no SC1) of a line this die's L2 holds from before the word was written;
- `undrained`: any flag stored while its wave has such stores outstanding, or another wave had when the CTA last met.

A launch boundary publishes everything written before it. Only dynamic accesses count; a manifest says nothing of time.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from monoc.sim.errors import UsageError

__all__ = ["Kind", "Manifest", "Region", "Scope", "Violation"]


class Kind(StrEnum):
    """What a region's words are."""

    TAG = "tag"  # 8-byte (value, tag) pairs, each its own announcement
    FLAG = "flag"  # 8-byte (value, tag) pairs that announce units of plain regions
    PLAIN = "plain"  # data words announced by flags
    WORD = "word"  # 4-byte words that announce themselves: the epoch, its marks


class Scope(StrEnum):
    """How far a store must be visible."""

    DEVICE = "device"
    SYSTEM = "system"


class Violation(StrEnum):
    """The hand-off errors (`Finding.details["violation"]`)."""

    SCOPE = "scope"
    ROLE = "role"
    UNDRAINED = "undrained"
    UNSEEN = "unseen"
    UNREAD = "unread"


@dataclass(frozen=True)
class Region:
    """`nbytes` bytes at device address `address` in the memory of `rank`.

    `writers` / `readers`: the CTA ids that may write / read it, None for all; `writer_ranks` likewise, None for `rank`
    only (device scope) or all ranks (system scope). `reads` is how many distinct CTAs must have read a word before it
    may be written again, over all of the rank's launches; 0 turns that check off.

    A plain region may name the `flag` region that announces it: byte offset `o` is then announced by the pair number
    `o // unit_bytes % (pairs of the flag region)`. One that names none is ordered (see above).
    """

    name: str
    address: int
    nbytes: int
    kind: Kind
    scope: Scope = Scope.DEVICE
    rank: int = 0
    writers: tuple[int, ...] | None = None
    readers: tuple[int, ...] | None = None
    writer_ranks: tuple[int, ...] | None = None
    reads: int = 1
    flag: str = ""
    unit_bytes: int = 0

    def __post_init__(self) -> None:
        where = f"region {self.name!r}"
        if not self.name:
            raise UsageError("a hand-off region needs a name")
        if self.nbytes <= 0 or self.address <= 0:
            raise UsageError(f"{where}: address and size must be positive, not {self.address:#x} and {self.nbytes}")
        if self.kind is Kind.PLAIN:
            if bool(self.flag) != (self.unit_bytes > 0):
                raise UsageError(f"{where}: a flag region that announces plain data goes with unit_bytes > 0")
            if self.address % 4 or self.unit_bytes % 4:
                raise UsageError(f"{where}: address and unit_bytes must be multiples of 4")
        else:
            if self.flag or self.unit_bytes:
                raise UsageError(f"{where}: only plain regions have a flag; a {self.kind} region announces itself")
            size = 4 if self.kind is Kind.WORD else 8
            if self.address % size or self.nbytes % size:
                raise UsageError(
                    f"{where}: a {self.kind} is {size} bytes: address and size must be multiples of {size}"
                )
        if self.reads < 0:
            raise UsageError(f"{where}: reads must not be negative")

    @property
    def pairs(self) -> int:
        """Number of 8-byte pairs."""
        return self.nbytes // 8


@dataclass(frozen=True)
class Manifest:
    """All regions of a simulation. Raises UsageError on equal names of a rank, overlaps and dangling flags."""

    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        for (rank, name), count in Counter((r.rank, r.name) for r in self.regions).items():
            if count > 1:
                raise UsageError(f"region {name!r} is declared twice for rank {rank}")
        ordered = sorted(self.regions, key=lambda r: r.address)
        for first, second in pairwise(ordered):
            if first.address + first.nbytes > second.address:
                raise UsageError(f"regions {first.name!r} and {second.name!r} overlap at {second.address:#x}")
        for region in self.regions:
            if region.flag:
                flag = self.find(region.rank, region.flag)
                if flag is None or flag.kind is not Kind.FLAG:
                    raise UsageError(f"region {region.name!r}: {region.flag!r} is no flag region of rank {region.rank}")

    def __iter__(self) -> Iterator[Region]:
        return iter(self.regions)

    def find(self, rank: int, name: str) -> Region | None:
        """The region of that rank and name."""
        return next((r for r in self.regions if r.rank == rank and r.name == name), None)

    def flag_index(self, region: Region) -> int:
        """Index in `regions` of the flag region that announces `region`; -1 if none does."""
        if not region.flag:
            return -1
        return next(i for i, r in enumerate(self.regions) if (r.rank, r.name) == (region.rank, region.flag))

    def to_json(self) -> str:
        """One JSON document, stable across runs."""
        return json.dumps({"regions": [asdict(region) for region in self.regions]}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """The reverse of `to_json`; UsageError on anything else."""
        try:
            document = json.loads(text)
            return cls(tuple(_region(entry) for entry in document["regions"]))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"not a hand-off manifest: {error}") from error

    @classmethod
    def of(cls, regions: Iterable[Region]) -> "Manifest":
        """A manifest of any iterable of regions."""
        return cls(tuple(regions))


def _region(entry: dict[str, Any]) -> Region:
    values = dict(entry)
    values["kind"], values["scope"] = Kind(values["kind"]), Scope(values["scope"])
    for name in ("writers", "readers", "writer_ranks"):
        if values.get(name) is not None:
            values[name] = tuple(int(item) for item in values[name])
    return Region(**values)
