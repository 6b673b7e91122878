"""Proof 2: a region has one writer role per epoch, each unit one writer task, and a read comes only after its
hand-off."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monoc.schedule.proofs.failure import Failure
from monoc.schedule.tables import AccessTable, LaunchTable, StageTable

__all__ = ["prove_handoffs"]

NAME = "hand-off"


def prove_handoffs(table: LaunchTable, build: str) -> list[Failure]:
    """Failures name the region and the stage that uses it wrongly, or the two stages."""
    found = [*_writers(table), *_reads(table), *_room(table)]
    return [Failure(NAME, table.name, build, who, message) for who, message in found]


Finding = tuple[tuple[str, str], str]


def _writers(table: LaunchTable) -> Iterator[Finding]:
    for region in table.regions:
        writers = table.writers(region)
        if len(writers) > 1:
            a, b = writers[0][0].name, writers[1][0].name
            yield (a, b), f"region {region!r} is written by stage {a!r} and by stage {b!r}; it may have one writer"
        for stage, write in writers:
            yield from _units_once(stage, write)


def _units_once(stage: StageTable, write: AccessTable) -> Iterator[Finding]:
    task, unit = write.pairs
    outside = (unit < 0) | (unit >= write.total)
    if outside.any():
        k = int(np.argmax(outside))
        yield (
            (f"{stage.name} task {task[k]}", write.region),
            f"task {task[k]} of stage {stage.name!r} announces unit {unit[k]} of region {write.region!r}, "
            f"which has {write.total}",
        )
        return
    times = np.bincount(unit, minlength=write.total)
    if (times > 1).any():
        u = int(np.argmax(times > 1))
        a, b = task[unit == u][:2]
        yield (
            (f"{stage.name} task {a}", f"{stage.name} task {b}"),
            f"tasks {a} and {b} of stage {stage.name!r} both announce unit {u} of region {write.region!r}",
        )
    if (times == 0).any():
        u = int(np.argmax(times == 0))
        yield (
            (stage.name, write.region),
            f"unit {u} of region {write.region!r} is announced by no task of its writer {stage.name!r}",
        )


def _reads(table: LaunchTable) -> Iterator[Finding]:
    edges = set(table.edges)
    for stage in table.stages.values():
        for read in stage.reads:
            if not read.count.any():
                continue
            if read.region not in table.regions:
                yield (stage.name, read.region), f"stage {stage.name!r} reads {read.region!r}, which is no region"
                continue
            writers = table.writers(read.region)
            if table.regions[read.region].form == "launch":
                yield from _carried(table, stage, read)
                continue
            if not writers:
                yield (
                    (stage.name, read.region),
                    f"stage {stage.name!r} reads region {read.region!r}, which no stage writes in this build",
                )
            for writer, write in writers:
                yield from _after(table, edges, stage, read, writer, write)


def _carried(table: LaunchTable, stage: StageTable, read: AccessTable) -> Iterator[Finding]:
    """A read of what an earlier launch wrote: there must be an edge from a stage that ran, and the unit must exist."""
    who = (stage.name, read.region)
    own = [w.name for w, _ in table.writers(read.region)]
    if own:
        yield (
            (own[0], stage.name),
            (
                f"region {read.region!r} of stage {own[0]!r} has the form of an earlier launch's, and stage "
                f"{stage.name!r} reads it in the same launch"
            ),
        )
    from_before = [p for r, p, c in table.edges if (r, c) == (read.region, stage.name) and "." in p]
    if not from_before or read.region not in table.carried:
        yield (
            who,
            (
                f"stage {stage.name!r} reads region {read.region!r} as an earlier launch left it, "
                "and none writes it in this build"
            ),
        )
        return
    low, high = read.extremes
    if low < 0 or high >= table.carried[read.region].total:
        yield (
            (from_before[0], stage.name),
            (
                f"stage {stage.name!r} reads a unit of region {read.region!r} "
                f"that stage {from_before[0]!r} does not announce"
            ),
        )


def _after(
    table: LaunchTable,
    edges: set[tuple[str, str, str]],
    stage: StageTable,
    read: AccessTable,
    writer: StageTable,
    write: AccessTable,
) -> Iterator[Finding]:
    who = (writer.name, stage.name)
    if (read.region, writer.name, stage.name) not in edges:
        yield who, f"no hand-off carries region {read.region!r} from stage {writer.name!r} to stage {stage.name!r}"
    form = table.regions[read.region].form
    if form == "barrier" and not table.fenced(writer, stage):
        yield (
            who,
            (
                f"region {read.region!r} goes from stage {writer.name!r} to stage {stage.name!r} behind a grid "
                "barrier, and none lies between them"
            ),
        )
    if form not in ("pair", "flag", "barrier", "peer", "two_hop"):
        yield who, f"region {read.region!r} has form {form!r}, which hands nothing over inside a launch"
    low, high = read.extremes
    if low < 0 or high >= write.total:
        yield (
            who,
            f"stage {stage.name!r} waits for unit {low if low < 0 else high} of region {read.region!r}; its writer "
            f"{writer.name!r} announces {write.total}",
        )


def _room(table: LaunchTable) -> Iterator[Finding]:
    for stage in table.stages.values():
        for write in stage.writes:
            region = table.regions.get(write.region)
            if region is None:
                yield (stage.name, write.region), f"stage {stage.name!r} writes {write.region!r}, which is no region"
                continue
            if region.words < write.words:
                yield (
                    (stage.name, write.region),
                    (
                        f"stage {stage.name!r} writes {write.words} words of region {write.region!r}, "
                        f"which has room for {region.words}"
                    ),
                )
            if region.units < write.total:
                yield (
                    (stage.name, write.region),
                    (
                        f"stage {stage.name!r} announces {write.total} units of region {write.region!r}, "
                        f"which has flags for {region.units}"
                    ),
                )
