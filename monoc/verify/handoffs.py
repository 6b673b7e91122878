"""The hand-offs of a launch as the simulator checks them: the plan's manifest with addresses and CTAs.

Words of a region may be stored by the CTAs its writer stage has tasks on, and read by those of its reader stages,
nobody else, with the region's scope; and every hand-off has to happen. Data behind flags and grid barriers is ordered
(:mod:`monoc.sim.handoff`): read only by who has seen a flag or barrier that came after it, written and drained before.
The epoch word may be stored once every CTA has read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from monoc.sim.handoff import Kind, Manifest, Region, Scope

__all__ = ["counted_regions", "crossing_regions", "launch_manifest", "missing_handoffs"]

PAIR_FORMS = ("pair", "peer", "two_hop")


FLAGS = " flags"  # behind a region's name: its flags


def launch_manifest(
    plan: Any, b: Any, launch: str, scratch: Sequence[int], peer: Sequence[int], epoch: Sequence[int]
) -> Manifest:
    """The manifest of one launch of build ``b``. ``scratch``, ``peer``, ``epoch``: every rank's address of the scratch
    buffer, of this epoch's half of the peer buffer, of the epoch buffer."""
    table, offsets = plan.LAUNCHES[launch].regions(b), plan.offsets(b, launch)
    stages = plan.LAUNCHES[launch].stages(b)
    found: list[Region] = []
    for name, (writers, readers) in _roles(plan, b, launch).items():
        region = table[name]
        if not region.words:
            continue  # not in this build
        writing = _ctas(plan, (stages[s] for s in writers))
        reading = _ctas(plan, (stages[s] for s in readers))
        for rank, (own, peers) in enumerate(zip(scratch, peer, strict=True)):
            at = (peers if region.space == "peer" else own) + offsets[name]
            roles: dict[str, Any] = {"rank": rank, "writers": writing, "readers": reading, "reads": 0}
            scope = Scope.SYSTEM if region.scope == "system" else Scope.DEVICE
            if region.form in PAIR_FORMS:
                found.append(Region(name, at, region.bytes, Kind.TAG, scope, **roles))
            elif region.form in ("flag", "barrier"):
                words = plan.WORD_BYTES * region.words * region.copies
                found.append(Region(name, at, words, Kind.PLAIN, scope, **roles))
                if region.form == "flag":
                    flags = plan.PAIR_BYTES * region.units
                    found.append(Region(name + FLAGS, at + region.flags, flags, Kind.FLAG, scope, **roles))
    for rank, at in enumerate(epoch):
        found += _epoch(plan, b, launch, rank, at)
    return Manifest(tuple(found))


def _epoch(plan: Any, b: Any, launch: str, rank: int, at: int) -> Iterator[Region]:
    """The epoch word, its marks and the grid barriers in the epoch buffer of ``rank`` at address ``at``."""
    first, word = (0,), plan.WORD_BYTES
    ends = plan.LAUNCHES[launch].ends_epoch
    yield Region("epoch", at, word, Kind.WORD, rank=rank, writers=first if ends else (), reads=plan.GRID)
    marks = at + word * plan.MARKS_WORD
    yield Region("epoch marks", marks, word * plan.GRID, Kind.WORD, rank=rank, readers=first, reads=0)
    for k, stage in enumerate(plan.LAUNCHES[launch].barriers(b)):
        pairs = plan.PAIR_BYTES * (plan.GRID + 1)
        yield Region(f"barrier before {stage}", at + plan.barrier_byte(k), pairs, Kind.FLAG, rank=rank, reads=0)


def _roles(plan: Any, b: Any, launch: str) -> dict[str, tuple[set[str], set[str]]]:
    """Writer and reader stages of every region some stage of this launch writes."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for handoff in plan.manifest(b, launch):
        if "." in handoff.writer or handoff.form == "launch":
            continue  # an earlier launch's: the launch boundary published it
        writers, readers = found.setdefault(handoff.region, (set(), set()))
        writers.add(handoff.writer)
        readers.update(handoff.readers)
    return found


def _ctas(plan: Any, stages: Iterable[Any]) -> tuple[int, ...] | None:
    """The CTAs that may run tasks of ``stages``; None where any may (tasks handed out as they come)."""
    found: set[int] = set()
    for stage in stages:
        if stage.take not in ("placed", "packed") or stage.tasks >= plan.GRID:
            return None
        found |= {(stage.first_cta + i) % plan.GRID for i in range(stage.tasks)}
    return tuple(sorted(found))


def crossing_regions(plan: Any, b: Any, launch: str) -> frozenset[str]:
    """The regions some unit of which one CTA writes and another reads, on this rank or from another one."""
    stages, table = plan.LAUNCHES[launch].stages(b), plan.LAUNCHES[launch].regions(b)
    return frozenset(
        name
        for name, (writers, readers) in _roles(plan, b, launch).items()
        if (b.tp > 1 and table[name].space == "peer")
        or _crosses(plan, name, [stages[s] for s in writers], [stages[s] for s in readers])
    )


def counted_regions(plan: Any, b: Any, launch: str) -> frozenset[str]:
    """The regions that hold only as much as a step's keys or routing fill: perhaps nothing."""
    stages = plan.LAUNCHES[launch].stages(b).values()
    return frozenset(w.region for s in stages for w in s.writes if w.counted)


def _crosses(plan: Any, region: str, writers: Sequence[Any], readers: Sequence[Any]) -> bool:
    takes = {s.take for s in (*writers, *readers)}
    if "packed" in takes:  # the step says which task a CTA has: a hand-off is sure where no CTA may have both ends
        ends = _ctas(plan, writers), _ctas(plan, readers)
        return ends[0] is not None and ends[1] is not None and not set(ends[0]) & set(ends[1])
    if takes != {"placed"}:
        return True
    owner = {
        unit: (s.first_cta + task) % plan.GRID
        for s in writers
        for w in s.writes
        if w.region == region
        for task in range(s.tasks)
        for unit in _units(w.units(task))
    }
    return any(
        owner.get(unit, (s.first_cta + task) % plan.GRID) != (s.first_cta + task) % plan.GRID
        for s in readers
        for r in s.reads
        if r.region == region
        for task in range(s.tasks)
        for unit in _units(r.units(task))
    )


def _units(units: Any) -> range:
    return range(units.first, units.first + units.count * units.stride, units.stride)


def missing_handoffs(
    manifest: Manifest,
    crossing: frozenset[str],
    counted: frozenset[str],
    traffic: Mapping[tuple[int, str], tuple[int, int]],
) -> list[str]:
    """Hand-offs of the manifest that did not happen: nothing was stored (unless of a ``counted`` region, and nothing of
    it was read either), or what was stored of a region of ``crossing`` was not read."""
    found = []
    for region in manifest:
        stored, read = traffic[region.rank, region.name]
        value = region.name.removesuffix(FLAGS)
        if not stored and ((not read and value in counted) or region.name.startswith("epoch")):
            continue
        if not stored or (not read and value in crossing):
            found.append(f"{region.name} of rank {region.rank}: {stored} words stored, {read} read by other CTAs")
    return found
