"""From a program to what the scheduler takes: all passes in order."""

from __future__ import annotations

from collections.abc import Iterable

from monoc.graph import build_graphs
from monoc.passes.fit import Fit
from monoc.passes.fuse import Fuse
from monoc.passes.fuser import REGION_SUFFIXES
from monoc.passes.layer import Layer, Pass, PassError, run_passes
from monoc.passes.legalise import Legalise
from monoc.passes.names import PlanNames
from monoc.passes.order import OrderStages
from monoc.passes.shard import ShardTp
from monoc.passes.slots import identifier
from monoc.passes.views import ResolveViews
from monoc.schedule.make import Draft
from monoc.schedule.model import Field, Form, Launch, Stage, Variant
from monoc.spec.program import BuildSpace, Program

__all__ = ["PASSES", "compile_layer", "draft_schedule", "regions_of"]

PASSES: tuple[Pass, ...] = (ResolveViews(), ShardTp(), Legalise(), Fuse(), Fit(), OrderStages())


def compile_layer(program: Program) -> Layer:
    """``program`` through every pass. Raises :class:`~monoc.passes.layer.PassError`."""
    return run_passes(Layer(program, build_graphs(program)), PASSES)


def draft_schedule(program: Program) -> Draft:
    """Everything the scheduler needs of ``program``. Raises :class:`~monoc.passes.layer.PassError`."""
    layer, names = compile_layer(program), PlanNames(program)
    return Draft(
        name=program.name,
        grid=program.target.ctas,
        threads=program.target.threads,
        dims=names.constants,
        properties=(*names.properties, *layer.properties),
        variants=_variants(program.space),
        require=tuple(names.guard(r) for r in program.space.require),
        launches=_launches(layer, names),
        forms=_forms(layer),
    )


def _variants(space: BuildSpace) -> tuple[Variant, ...]:
    shared = [(p.name, p.values, p.boolean) for p in space.params]
    return tuple(
        Variant(
            v.name,
            tuple(
                Field(name, tuple(bool(x) for x in values) if boolean else values)
                for name, values, boolean in [*shared, *((n, values, False) for n, values in v.values)]
            ),
        )
        for v in space.variants
    )


def _launches(layer: Layer, names: PlanNames) -> tuple[Launch, ...]:
    """Launches in entry order. The last launch of an entry ends the epoch and has the epoch's last tag, those before
    it the tags before."""
    found: dict[str, Launch] = {}
    longest = max(len(entry.launches) for entry in layer.program.entries)
    for entry in layer.program.entries:
        count = len(entry.launches)
        for k, launch in enumerate(entry.launches):
            stages = tuple(
                Stage(s.name, s.skeleton, s.params, s.shape, guard=names.guard(s.guard), statements=s.statements)
                for s in layer.stages[launch.name]
            )
            found[launch.name] = Launch(
                name=launch.name,
                stages=stages,
                tag=longest - count + k + 1,
                ends_epoch=k == count - 1,
                carried=layer.carried[launch.name],
            )
    return tuple(found.values())


def regions_of(value: str, regions: Iterable[str]) -> list[str]:
    """Those of ``regions`` that hold ``value``, by their names."""
    names = {identifier(value), identifier(value.rpartition(".")[2])}
    return [r for r in regions if any(r == f"{name}_{suffix}" for name in names for suffix in REGION_SUFFIXES)]


def _forms(layer: Layer) -> dict[tuple[str, str], tuple[Form, str]]:
    """The hand-off forms the spec fixed, by region: an override names the value the region holds."""
    found: dict[tuple[str, str], tuple[Form, str]] = {}
    for override in layer.program.schedule.handoffs:
        if override.launch not in layer.stages:
            raise PassError(f"schedule: there is no launch {override.launch!r}", override.launch_span)
        regions = [w.region for s in layer.stages[override.launch] for w in s.shape.writes if len(w.forms) > 1]
        meant = regions_of(override.value, regions)
        if not meant:
            raise PassError(
                f"schedule: {override.value!r} is no hand-off of launch {override.launch}; its regions are "
                f"{', '.join(regions)}",
                override.span,
            )
        found |= {(override.launch, r): (Form(override.form), override.reason) for r in meant}
    return found
