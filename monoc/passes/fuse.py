"""fuse: operations become stages of skeletons, by a table of rules.

A rule is tried on every operation of its anchor kind, producers first, until none fits any more; it takes the anchor
and the operations its skeleton can do along with it. An operation no rule took is an error that says what the table
offers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from monoc.graph.model import LayerGraph, Operation
from monoc.passes.fuser import Fuser, Made, NotReadyError
from monoc.passes.layer import Layer
from monoc.passes.names import PlanNames
from monoc.passes.rules.attention import fuse_attention, fuse_key_table
from monoc.passes.rules.experts import fuse_experts_down, fuse_experts_up, fuse_route, fuse_router
from monoc.passes.rules.latent import fuse_latents
from monoc.passes.rules.linear import fuse_linear
from monoc.passes.rules.ranks import fuse_push, fuse_rank_sum
from monoc.passes.rules.row_norm import fuse_row_norm
from monoc.passes.rules.row_slice import fuse_row_slice
from monoc.passes.rules.token_program import fuse_token_program
from monoc.schedule.model import TRUE, Carried

__all__ = ["RULES", "Fuse", "Rule"]


@dataclass(frozen=True)
class Rule:
    """``anchor`` (an operation kind) with ``takes`` becomes ``stages``; ``fuse`` says whether it fitted."""

    anchor: str
    takes: str
    stages: str
    fuse: Callable[[Fuser, Operation], bool]


RULES: tuple[Rule, ...] = (
    Rule("reduce", "fold, collapse, mix and squares of residual streams, rank sum", "row_slice", fuse_row_slice),
    Rule("map", "all small maps and Sinkhorn of a slice's mixes", "token_program", fuse_token_program),
    Rule("reduce", "sum of squares, scale, quantisations of a row", "row_norm", fuse_row_norm),
    Rule("linear", "round to bf16; rope, activation, quantise or push", "gemv", fuse_linear),
    Rule("grouped_linear", "the same, a group's columns a row tile", "gemv", fuse_linear),
    Rule("kv_insert", "two norms of one linear's parts, rope, quantise", "latent_norm", fuse_latents),
    Rule("key_table", "nothing", "key_table", fuse_key_table),
    Rule("attend", "unrope, quantise", "attend_split, attend_combine", fuse_attention),
    Rule("linear", "bf16 weight: logits in parts", "router", fuse_router),
    Rule("route", "score", "route", fuse_route),
    Rule("expert_linear", "activation of its halves, quantise", "expert_up", fuse_experts_up),
    Rule("expert_linear", "weighted sum over picks, shared row, push", "expert_down", fuse_experts_down),
    Rule("push", "nothing: the value is an input", "rank_push", fuse_push),
    Rule("rank_sum", "nothing: the value is an output", "rank_reduce", fuse_rank_sum),
)


@dataclass(frozen=True)
class Fuse:
    """Operations into stages, by the rules of ``monoc/passes/rules/``."""

    name: str = "fuse"

    def run(self, layer: Layer) -> Layer:
        names = PlanNames(layer.program)
        fused: dict[str, Fuser] = {}
        carried: dict[str, tuple[Carried, ...]] = {}
        for graph in layer.graphs:
            before = _before(layer, graph, fused)
            fused[graph.launch] = _fused(Fuser(graph, names, {key: made for key, (_, made) in before.items()}))
            carried[graph.launch] = _carried(fused[graph.launch], before)
        stages = {launch: tuple(f.stages) for launch, f in fused.items()}
        properties = {name: value for f in fused.values() for name, value in f.properties.items()}
        return replace(layer, stages=stages, carried=carried, properties=tuple(properties.items()))


def _before(layer: Layer, graph: LayerGraph, fused: dict[str, Fuser]) -> dict[str, tuple[str, Made]]:
    """What earlier launches of the same entry made, by value, and which launch."""
    found: dict[str, tuple[str, Made]] = {}
    for entry in layer.program.entries:
        names = [launch.name for launch in entry.launches]
        if graph.launch in names:
            for name in names[: names.index(graph.launch)]:
                found |= {key: (name, made) for key, made in fused[name].made.items()}
    return found


def _fused(f: Fuser) -> Fuser:
    waiting: dict[str, NotReadyError] = {}
    progress = True
    while progress:
        progress = False
        for op in f.graph.topological():
            for rule in RULES:
                if rule.anchor == op.kind and op.name not in f.taken:
                    progress |= _tried(f, rule, op, waiting)
    for op in f.graph.operations:
        if op.name in f.taken:
            continue
        if op.name in waiting:
            raise waiting[op.name]
        offers = "; ".join(f"{r.stages}: {r.takes}" for r in RULES if r.anchor == op.kind) or "nothing"
        raise f.error(op, f"fits no stage. For {op.kind} there is: {offers}")
    return f


def _tried(f: Fuser, rule: Rule, op: Operation, waiting: dict[str, NotReadyError]) -> bool:
    made = dict(f.made)
    try:
        return rule.fuse(f, op)
    except NotReadyError as error:
        f.made = made
        waiting[op.name] = error
        return False


def _carried(f: Fuser, before: dict[str, tuple[str, Made]]) -> tuple[Carried, ...]:
    """The regions stages of ``f`` read from earlier launches: those it does not make in every build itself."""
    sources = {made.region: launch for launch, made in before.values()}
    own = {w.region: s for s in f.stages for w in s.shape.writes}
    found: dict[str, Carried] = {}
    for stage in f.stages:
        for read in stage.shape.reads:
            always = read.region in own and f.names.guard(own[read.region].guard) == TRUE
            if read.region in sources and not always:
                found[read.region] = Carried(read.region, sources[read.region])
    return tuple(found.values())
