"""Regions and edges of a launch, collected from what its stages say they write and read; who shares whose
bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monoc.schedule.model import (
    Edge,
    Form,
    FormRule,
    Launch,
    Lifetime,
    Region,
    RegionWrite,
    Scope,
    Space,
    Stage,
)

__all__ = ["HandOffError", "collect_edges", "collect_regions", "share_bytes"]


class HandOffError(ValueError):
    """A region without a writer, with two, or without a reader; the message names the stages."""


def writers(launch: Launch) -> dict[str, tuple[Stage, RegionWrite]]:
    """The writer of every region. Raises :class:`HandOffError` if two stages of one build could write it."""
    found: dict[str, tuple[Stage, RegionWrite]] = {}
    for stage in launch.stages:
        for write in stage.shape.writes:
            if write.region in found:
                first = found[write.region][0].name
                raise HandOffError(
                    f"launch {launch.name}: region {write.region!r} is written by stage {first!r} and by "
                    f"{stage.name!r}; a region has one writer stage, so give one of them a region of its own"
                )
            found[write.region] = stage, write
    return found


def collect_edges(launch: Launch, rules: Mapping[str, tuple[FormRule, ...]]) -> tuple[Edge, ...]:
    """One edge a (region, reader), in program order. Raises :class:`HandOffError` for a region nobody
    writes."""
    writer = writers(launch)
    edges: list[Edge] = []
    for stage in launch.stages:
        for region in dict.fromkeys(r.region for r in stage.shape.reads):
            if region not in writer:
                raise HandOffError(
                    f"launch {launch.name}: stage {stage.name!r} reads region {region!r}, which no stage writes"
                )
            edges.append(Edge(launch.name, region, writer[region][0].name, stage.name, rules[region]))
    return tuple(edges)


def collect_regions(launch: Launch, edges: tuple[Edge, ...]) -> tuple[Region, ...]:
    """The regions of ``launch`` in the order they are first written. Raises :class:`HandOffError` for one
    nobody reads."""
    regions = []
    for name, (stage, write) in writers(launch).items():
        mine = [e for e in edges if e.region == name]
        if not mine:
            raise HandOffError(
                f"launch {launch.name}: stage {stage.name!r} writes region {name!r}, which no stage reads"
            )
        peer = mine[0].rules[-1].form in (Form.PEER, Form.TWO_HOP)
        regions.append(
            Region(
                name=name,
                launch=launch.name,
                space=Space.PEER if peer else Space.SCRATCH,
                scope=Scope.SYSTEM if peer else write.scope,
                words=write.words,
                units=write.units,
                rules=mine[0].rules,
                lifetime=Lifetime(stage.name, mine[-1].consumer),
                guard=stage.guard,
                copies=write.copies,
            )
        )
    return tuple(regions)


def share_bytes(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    """``regions`` of all launches, those of a later launch put on the bytes of the same-named one of an
    earlier launch.

    The launch boundary orders the two lives. Shared only where both have the same words, units, copies and
    forms, so that no tag of one is ever data of the other; the tags of the launches differ, or each ends the
    epoch.
    """
    first: dict[str, Region] = {}
    out = []
    for region in regions:
        host = first.setdefault(region.name, region)
        alike = host is not region and _shape(host) == _shape(region)
        out.append(replace(region, shares=f"{host.launch}.{host.name}") if alike else region)
    return tuple(out)


def _shape(region: Region) -> tuple[object, ...]:
    forms = tuple((rule.form, rule.when) for rule in region.rules)
    flags = region.units if any(rule.form is Form.FLAG for rule in region.rules) else ""
    return region.space, region.scope, region.words, flags, region.copies, forms
