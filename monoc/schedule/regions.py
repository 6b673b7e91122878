"""Regions and edges of a launch, collected from what its stages say they write and read; who shares whose
bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monoc.schedule.model import (
    TRUE,
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

__all__ = ["LEAVES", "HandOffError", "carried_regions", "collect_edges", "collect_regions", "share_bytes", "writers"]


class HandOffError(ValueError):
    """A region without a writer, with two, or without a reader; the message names the stages. ``stage``: the one to
    blame, as (launch, stage), where it is one."""

    def __init__(self, message: str, stage: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.stage = stage


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


def carried_regions(launches: tuple[Launch, ...]) -> dict[tuple[str, str], tuple[str, Stage, RegionWrite]]:
    """(launch, region) read from an earlier launch -> that launch, its writer. Raises :class:`HandOffError`."""
    found: dict[tuple[str, str], tuple[str, Stage, RegionWrite]] = {}
    for k, launch in enumerate(launches):
        for carried in launch.carried:
            source = next((la for la in launches[:k] if la.name == carried.source), None)
            made = writers(source).get(carried.region) if source is not None else None
            if source is None or made is None:
                raise HandOffError(
                    f"launch {launch.name} is to read region {carried.region!r} of launch {carried.source}, "
                    "which comes later or does not write it"
                )
            found[launch.name, carried.region] = source.name, *made
    return found


def collect_edges(
    launches: tuple[Launch, ...], rules: Mapping[tuple[str, str], tuple[FormRule, ...]]
) -> tuple[Edge, ...]:
    """One edge a (launch, region, writer, reader), in program order. Raises :class:`HandOffError` for a region nobody
    writes. ``rules`` by (launch, region)."""
    carried = carried_regions(launches)
    edges: list[Edge] = []
    for launch in launches:
        writer = writers(launch)
        for stage in launch.stages:
            for region in dict.fromkeys(r.region for r in stage.shape.reads):
                at = launch.name, region
                if at in carried:
                    source, made, _ = carried[at]
                    edges.append(Edge(launch.name, region, f"{source}.{made.name}", stage.name, rules[at]))
                if region in writer:
                    edges.append(Edge(launch.name, region, writer[region][0].name, stage.name, rules[at]))
                elif at not in carried:
                    raise HandOffError(
                        f"launch {launch.name}: stage {stage.name!r} reads region {region!r}, which no stage writes"
                    )
    return tuple(edges)


def collect_regions(launches: tuple[Launch, ...], edges: tuple[Edge, ...]) -> tuple[Region, ...]:
    """The regions of every launch, carried ones first, then in the order they are written. Raises
    :class:`HandOffError` for one nobody reads."""
    carried = carried_regions(launches)
    leaving = {(source, region) for (_, region), (source, _, _) in carried.items()}
    regions = []
    for launch in launches:
        own = writers(launch)
        named = [r for la, r in carried if la == launch.name]
        for name in dict.fromkeys([*named, *own]):
            mine = [e for e in edges if (e.launch, e.region) == (launch.name, name)]
            if not mine and (launch.name, name) not in leaving:
                raise HandOffError(
                    f"launch {launch.name}: stage {own[name][0].name!r} writes region {name!r}, which no stage reads"
                )
            source, stage, write = carried.get((launch.name, name), ("", *own.get(name, (None, None))))
            assert stage is not None
            assert write is not None
            rules = mine[0].rules if mine else (LEAVES,)
            peer = rules[-1].form in (Form.PEER, Form.TWO_HOP)
            first = f"{source}.{stage.name}" if source else stage.name
            regions.append(
                Region(
                    name=name,
                    launch=launch.name,
                    space=Space.PEER if peer else Space.SCRATCH,
                    scope=Scope.SYSTEM if peer else write.scope,
                    words=write.words,
                    units=write.units,
                    rules=rules,
                    lifetime=Lifetime(first, mine[-1].consumer if mine else "the next launch"),
                    guard=stage.guard,
                    shares=f"{source}.{name}" if source else "",
                    copies=write.copies,
                )
            )
    return tuple(regions)


LEAVES = FormRule(Form.LAUNCH, TRUE, "a later launch reads it: the launch boundary publishes it")


def share_bytes(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    """``regions`` of all launches, those of a later launch put on the bytes of the same-named one of an
    earlier launch.

    The launch boundary orders the two lives. Shared only where both have the same words, units, copies and
    forms, so that no tag of one is ever data of the other; the tags of the launches differ, or each ends the
    epoch.
    """
    hosts: dict[tuple[object, ...], Region] = {}
    out = []
    for region in regions:
        if region.shares:  # carried: the very bytes of the launch that wrote them
            out.append(region)
            continue
        host = hosts.setdefault((region.name, *_shape(region)), region)
        out.append(region if host is region else replace(region, shares=f"{host.launch}.{host.name}"))
    return tuple(out)


def _shape(region: Region) -> tuple[object, ...]:
    forms = tuple((rule.form, rule.when) for rule in region.rules)
    flags = region.units if any(rule.form is Form.FLAG for rule in region.rules) else ""
    return region.space, region.scope, region.words, flags, region.copies, forms
