"""Every kind of name a spec has, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from monoc.explain.model import Explanation, Subject, place_text, type_text
from monoc.expr.ir import Span
from monoc.schedule.model import TRUE, Region, Stage
from monoc.spec.buildexpr import TRUE as ALWAYS
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.program import Extent, TensorDecl

__all__ = ["explain", "known_names"]

Facts = list[tuple[str, Iterable[str]]]
_SHOWN = 8  # values of a parameter or dimension that are listed one by one


def known_names(subject: Subject) -> list[str]:
    """Every name :func:`explain` knows, values by their full names."""
    return list(dict.fromkeys(name for name, _ in _things(subject)))


def explain(subject: Subject, name: str) -> tuple[Explanation, ...]:
    """Everything of that name; a value inside a definition answers to its last part too. Empty if there is nothing."""
    return tuple(make() for known, make in _things(subject) if name == known or known.endswith(f".{name}"))


def _things(s: Subject) -> Iterator[tuple[str, Callable[[], Explanation]]]:
    p = s.program
    for name in p.space.names():
        yield name, partial(_parameter, s, name)
    for dim in p.dims:
        yield dim.name, partial(_dimension, s, dim.name)
    for tensor in p.tensors:
        yield tensor.name, partial(_tensor, s, tensor)
        if tensor.scale is not None:
            yield tensor.scale.name, partial(_scale, tensor)
    for name, _ in p.types:
        if name not in p.tensor:
            yield name, partial(_value, s, name)
    for entry in p.entries:
        yield entry.name, partial(_entry, s, entry.name)
    for launch in s.schedule.launches:
        yield launch.name, partial(_launch, s, launch.name)
        for stage in launch.stages:
            yield f"{launch.name}.{stage.name}", partial(_stage, s, launch.name, stage)
    for region in s.schedule.regions:
        yield f"{region.launch}.{region.name}", partial(_region, s, region)


def _made(name: str, kind: str, span: Span | None, facts: Facts) -> Explanation:
    kept = ((title, tuple(lines)) for title, lines in facts)
    return Explanation(name, kind, span, tuple((title, lines) for title, lines in kept if lines))


def _when(guard: BuildExpr) -> tuple[str, ...]:
    return () if guard == ALWAYS else (str(guard),)


def _several(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return ", ".join(map(str, found)) if len(found) <= _SHOWN else f"{found[0]} .. {found[-1]} ({len(found)} values)"


# ------------------------------------------------------------------ numbers


def _parameter(s: Subject, name: str) -> Explanation:
    space = s.program.space
    shared = next((p for p in space.params if p.name == name), None)
    if shared is not None:
        values = ["no, yes" if shared.boolean and len(shared.values) == 2 else _several(shared.values)]
        span = shared.span
    else:
        values = [f"{v.name}: {_several(dict(v.values)[name])}" for v in space.variants]
        span = space.variants[0].span
    graphs = s.layer.graphs
    guarded = [s.doing(g, op) for g in graphs for op in g.operations if name in op.guard.names()]
    guarded += [
        f"host call {c.name} of {e.name}" for e in s.program.entries for c in e.host_calls if name in c.guard.names()
    ]
    sizes = [d.name for d in s.program.dims if name in d.expr.names()]
    rules = [str(r) for r in space.require if name in r.names()]
    facts: Facts = [("values", values), ("required", rules), ("sizes from it", sizes), ("decides whether", guarded)]
    return _made(name, "build parameter", span, facts)


def _dimension(s: Subject, name: str) -> Explanation:
    dim = next(d for d in s.program.dims if d.name == name)
    values = _several(int(s.program.environment(b)[name]) for b in s.program.space.builds())
    sizes = [d.name for d in s.program.dims if name in d.expr.names()]
    axes = [n for n, t in s.program.types if any(name in size.names() for size in t.shape)]
    facts: Facts = [
        ("is", [str(dim.expr)]),
        ("values", [values]),
        ("sizes from it", sizes),
        ("axes of", [", ".join(axes)] if axes else []),
    ]
    return _made(name, "dimension", dim.span, facts)


# ------------------------------------------------------------------ tensors and values


def _axes(shape: tuple[Extent, ...]) -> str:
    def text(e: Extent) -> str:
        bound = ">= " if e.at_least else "<= " if e.at_most else ""
        return "any" if e.size is None else f"{bound}{e.size}"

    return f"[{', '.join(text(e) for e in shape)}]"


def _tensor(s: Subject, t: TensorDecl) -> Explanation:
    scale = [] if t.scale is None else [f"{t.scale.name}: an E8M0 code a {t.scale.block[0]} x {t.scale.block[1]}"]
    stored = [] if t.stored == t.shape else [_axes(t.stored)]
    host = [] if t.host_shape == t.stored else [_axes(t.host_shape)]
    interleave = "" if t.interleave is None else f", gate and up rows alternating in tiles of {t.interleave}"
    holders = [f"{c.name}.{f.name}" for c in s.program.runner.weights for f in c.fields if f.refers == t.name]
    facts: Facts = [
        ("type", [f"{t.dtype} {_axes(t.shape)}, {t.sharding}"]),
        ("stored as", stored),
        ("tensor of", host),
        ("layout", [f"{t.layout}{interleave}"]),
        ("scale", scale),
        ("given where", _when(t.guard)),
        ("field", holders),
        ("written by", [s.doing(g, op) for g, op in s.writers(t.name)]),
        ("lives", _homes(s, t.name)),
        ("read by", [s.doing(g, op) for g, op in s.readers(t.name)]),
    ]
    return _made(t.name, str(t.role), t.span, facts)


def _scale(t: TensorDecl) -> Explanation:
    assert t.scale is not None
    facts: Facts = [
        ("type", [f"u8 [{', '.join(map(str, t.scale.shape))}]"]),
        ("of", [f"weight {t.name}: a code a {t.scale.block[0]} x {t.scale.block[1]}"]),
        ("layout", [str(t.scale.layout)]),
    ]
    return _made(t.scale.name, "scale", t.scale.span or t.span, facts)


def _value(s: Subject, name: str) -> Explanation:
    views = [g for g in s.layer.graphs if name in g.views]
    writers = list(s.writers(name))
    parts = sorted({v for g in s.layer.graphs for v in g.views if g.views[v].base == name})
    base = [f"{views[0].views[name].base}, from column {views[0].views[name].offset}"] if views else []
    guards = list(dict.fromkeys(str(op.guard) for _, op in writers if op.guard != ALWAYS))
    leaves = [e.name for e in s.program.entries if name in e.outputs]
    facts: Facts = [
        ("type", [type_text(s.program.type_of[name])]),
        ("defined", list(dict.fromkeys(place_text(op.span) for _, op in writers if op.span is not None))),
        ("where", guards),
        ("a part of", base),
        ("its parts", parts),
        ("computed by", [s.doing(g, op) for g, op in writers]),
        ("lives", _homes(s, name)),
        ("read by", [s.doing(g, op) for g, op in s.readers(name)]),
        ("an output of", leaves),
    ]
    return _made(name, "value", None, facts)


def _homes(s: Subject, value: str) -> list[str]:
    """Where ``value`` is between stages."""
    regions = [line for r in s.regions(value) for line in (f"region {r.launch}.{r.name}: {_home(r)}", *_forms(r))]
    if any(value in e.carried for e in s.program.entries):
        regions.append("memory, for a later launch or the host")
    if value in s.program.tensor or regions:
        return regions
    written = {(g.launch, s.stage_of.get((g.launch, op.name))) for g, op in s.writers(value)}
    read = {(g.launch, s.stage_of.get((g.launch, op.name))) for g, op in s.readers(value)}
    outside = any(value in g.outputs for g, _ in s.writers(value))
    return ["registers and LDS of its stage"] if read <= written and not outside else []


def _home(region: Region) -> str:
    shares = f", in the bytes of {region.shares}" if region.shares else ""
    return f"{region.space}, {region.words} words in {region.units} units{shares}"


def _forms(region: Region) -> list[str]:
    """The hand-off's forms, each with the builds it is for and the reason."""
    return [
        f"  {rule.form}{'' if rule.when == TRUE else f' where {rule.when}'}{f': {rule.reason}' if rule.reason else ''}"
        for rule in region.rules
    ]


# ------------------------------------------------------------------ what the compiler makes


def _entry(s: Subject, name: str) -> Explanation:
    entry = next(e for e in s.program.entries if e.name == name)
    facts: Facts = [
        ("takes", [", ".join(entry.arguments)]),
        ("runs", [step.name for step in entry.steps]),
        ("carries", [", ".join(entry.carried)] if entry.carried else []),
        ("gives", [", ".join(entry.outputs)]),
    ]
    return _made(name, "entry of the runner", entry.span, facts)


def _launch(s: Subject, name: str) -> Explanation:
    launch = next(la for la in s.schedule.launches if la.name == name)
    entries = [e.name for e in s.program.entries if any(la.name == name for la in e.launches)]
    facts: Facts = [
        ("of entry", entries),
        ("stages", [f"{stage.name} ({stage.skeleton})" for stage in launch.stages]),
        ("runs where", [] if launch.guard == TRUE else [launch.guard]),
    ]
    return _made(name, "launch", s.program.launch[name].span, facts)


def _stage(s: Subject, launch: str, stage: Stage) -> Explanation:
    fused = next(f for f in s.layer.stages[launch] if f.name == stage.name)
    graph = next(g for g in s.layer.graphs if g.launch == launch)
    shape = stage.shape
    spans = [op.span for name in fused.operations if (op := graph.by_name[name]).span is not None]
    facts: Facts = [
        ("skeleton", [stage.skeleton]),
        ("runs where", [] if stage.guard == TRUE else [stage.guard]),
        ("tasks", [shape.tasks]),
        ("placed", [stage.placement_reason] if stage.placement_reason else []),
        ("computes", [", ".join(fused.operations)]),
        ("from", list(dict.fromkeys(place_text(at) for at in spans if at is not None))),
        ("reads", [f"region {r.region}: units {r.task_units.first} + {r.task_units.count}" for r in shape.reads]),
        ("writes", [f"region {w.region}: {w.words} words" for w in shape.writes]),
        ("memory", [", ".join(a.name for a in stage.params.arguments())]),
        ("LDS", [f"{m.name}: {m.count} {m.dtype}" for m in shape.lds]),
        ("weight bytes a task", [] if shape.weight_bytes == "0" else [shape.weight_bytes]),
    ]
    return _made(f"{launch}.{stage.name}", "stage", None, facts)


def _region(s: Subject, region: Region) -> Explanation:
    edges = s.edges(region)
    facts: Facts = [
        ("is", [_home(region)]),
        ("scope", [str(region.scope)]),
        ("written by", list(dict.fromkeys(e.producer for e in edges))),
        ("read by", list(dict.fromkeys(e.consumer for e in edges))),
        ("lives", [f"from {region.lifetime.first} to {region.lifetime.last}"]),
        ("form", [line.strip() for line in _forms(region)]),
        ("written where", [] if region.guard == TRUE else [region.guard]),
    ]
    return _made(f"{region.launch}.{region.name}", "region", None, facts)
