"""DeepSeek-V4-Pro's two runners, emitted and hand-written, on the same seeded inputs: one step of one layer kind.

Inputs are those of `monoc verify`: each rank's own weight shards, caches behind block tables, numbers only for experts
a step picks. Contexts lie between a quarter of the longest and the longest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from monoc.reference.interpret import Both, Reference
from monoc.reference.weights import sizes
from monoc.sim import Simulator
from monoc.sim.host import SimulatedHost, simulate
from monoc.sim.simulator import Checks
from monoc.spec.program import Build, Entry, Layout, OpStatement, Program, Role, Statement
from monoc.verify.inputs.step import GARBAGE, Contexts, StepInputs, make_step
from monoc.verify.inputs.weights import Weights, positions_of
from peer.errors import ErrorRow, Parting
from peer.left import Left, emitted_values
from peer.left_by_hand import Widths, hand_written_values
from peer.sides import Counts, RecordingEngine, count, tailed_tensors
from peer.walk import Step, walk_step

__all__ = ["KINDS", "Judged", "Kind", "Models", "judge"]

TP = 8
HIDDEN = 7168
LDS_MARGIN = 96 * 1024
CARRIED = ("q", "res_mid", "post_a", "comb_a")  # from K1 to K2
OUTPUTS = ("out", "residual_out", "post_out", "comb_out")  # of a step; the hand-written runner returns one more
WRITTEN = "swa_cache"  # by K1


@dataclass(frozen=True)
class Kind:
    """A layer kind: the spec's variant, the columns of picked keys in its key table, the switches of `forward`."""

    variant: str
    picks: int
    fold: bool = True
    hash_route: bool = False

    @property
    def fixed(self) -> dict[str, int]:
        """The build parameters but tokens and tp."""
        return {"picks": self.picks, "fold": int(self.fold), "hash_route": int(self.hash_route)}


KINDS = {
    "csa": Kind("csa", 1024),
    "hca128": Kind("hca", 128),
    "hca2048": Kind("hca", 2048),
    "hca8192": Kind("hca", 8192),
    "csa-hash": Kind("csa", 1024, hash_route=True),
    "csa-first": Kind("csa", 1024, fold=False, hash_route=True),
}


@dataclass(frozen=True)
class Models:
    """Both runners' modules, ours compiled from ``program`` with ``plan``; ``cache`` keeps compiled kernels."""

    program: Program
    plan: Any
    ours: Callable[[], ModuleType]
    theirs: Callable[[], ModuleType]
    cache: Path


@dataclass
class _Side:
    counts: dict[str, Counts]
    outputs: list[dict[str, torch.Tensor]]
    left: dict[str, Left]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Judged:
    """One step of both sides: counts by launch, errors of what both left, where they part, what is wrong."""

    ours: dict[str, Counts]
    theirs: dict[str, Counts]
    rows: list[ErrorRow]
    partings: list[Parting]
    problems: list[str]


@dataclass(frozen=True)
class _Case:
    """A step of ``build``: weights and inputs of every rank."""

    models: Models
    kind: Kind
    build: Build
    weights: Weights
    step: StepInputs

    @property
    def entry(self) -> Entry:
        return self.models.program.entries[0]

    @property
    def env(self) -> Mapping[str, Any]:
        return self.models.program.environment(self.build)

    @property
    def given(self) -> tuple[dict[str, torch.Tensor], ...]:
        """What the reference is given: the host's selection is there already."""
        ranks = zip(self.weights.tensors, self.step.tensors, strict=True)
        return tuple({**w, **i, **self.step.selected} for w, i in ranks)


def judge(
    models: Models, name: str, tokens: int, seed: int, *, experts: int | None = None, debug: bool = False
) -> Judged:
    """A step of ``tokens`` rows of kind ``name`` on both sides, K2 of both from what our K1 left. ``experts``: tokens
    pick among the first so many (their weights are what takes memory); ``debug``: counts by source line."""
    case = _case(models, KINDS[name], tokens, seed, experts)
    program, given = models.program, case.given
    ours = _run(case, models.ours, {}, debug)
    values = emitted_values(program, models.plan, case.build, case.entry, ours.left, ours.outputs, given)
    handed = Left()
    for rank in range(TP):
        kept = {n: values[n].ranks[rank] for n in CARRIED}
        handed.kept.append({n: v.to(torch.bfloat16) if n in ("q", "res_mid") else v for n, v in kept.items()})
        handed.caches.append({})  # both sides' own: their records are compared
    theirs = _run(case, models.theirs, {"k2": handed}, debug)
    sink = case.weights.tensors[0]["attn_sink"]
    others = hand_written_values(_widths(case), "forward", theirs.left, theirs.outputs, sink)
    caches = {w: {WRITTEN: [c[WRITTEN] for c in s.left["k1"].caches]} for w, s in (("ours", ours), ("theirs", theirs))}
    step = Step(program, case.build, case.entry, name, given, {"ours": values, "theirs": others}, caches)
    problems = [f"ours: {p}" for p in ours.problems] + [f"theirs: {p}" for p in theirs.problems]
    return Judged(ours.counts, theirs.counts, *walk_step(step), problems)


def _case(models: Models, kind: Kind, tokens: int, seed: int, experts: int | None) -> _Case:
    program = models.program
    build = next(b for b in program.space.builds(tokens=tokens, tp=TP, **kind.fixed) if b.variant == kind.variant)
    env = program.environment(build)
    most = positions_of(program, env)
    drawn = torch.randint(most // 4, most, (tokens,), generator=torch.Generator().manual_seed(seed))
    contexts = Contexts(positions=tuple(drawn.tolist()), narrow=0, missing=0.0)
    step = make_step(program, program.entries[0], env, TP, 1000 * seed, contexts)
    for table in (*step.selected.values(), *(t["topk_indices"] for t in step.tensors)):
        table[table == GARBAGE] = 0  # the hand-written key table looks up entries behind a context too
    weights = Weights(program, env, TP, seed)
    for bias in {id(t["bias"]): t["bias"] for t in weights.tensors}.values():
        bias[experts:] -= 0 if experts is None else 1000.0
    case = _Case(models, kind, build, weights, step)

    def observe(name: str, statement: Statement, both: Both) -> None:
        if isinstance(statement, OpStatement) and statement.op == "route" and name == statement.results[0]:
            case.weights.materialise(both.stated[0].flatten().tolist())

    Reference(program, build).run(case.entry, case.given, lambda _: step.selected, observe)
    return case


def _run(case: _Case, load: Callable[[], ModuleType], before: Mapping[str, Left], debug: bool) -> _Side:
    """One host thread, so that counts of poll loops do not depend on how busy the machine is."""
    # The hand-written K2 reads behind its LDS at 16 and 64 rows, at 64 even behind a compute unit's, and drops what it
    # read.
    checks = Checks(lds_margin=LDS_MARGIN if load is case.models.theirs else 0)
    simulator = Simulator("gfx950", ranks=TP, observe=True, threads=1, checks=checks)
    tokens = case.build["tokens"]
    peers = 2 * (TP + 1) * tokens * HIDDEN * 4  # two reduces: every rank's part and the sums, a word and a tag a pair
    engine = RecordingEngine(simulator, lambda runner: _scratch(case, runner), before, peers)
    tensors_of = case.models.program.tensors
    names = {t.name for t in tensors_of if t.role is Role.CACHE}
    stay = {n for t in tensors_of if len(t.shape) == 3 and t.scale is not None for n in (t.name, t.scale.name)}
    with simulate(engine, cache_dir=case.models.cache, debug=debug) as host:
        runner = load()
        loaded = []
        for tensors in case.weights.tensors:
            # of the experts only those a step picks take memory: they stay where they are
            experts = {n: t for n, t in tensors.items() if n in stay}
            own = {**tailed_tensors({n: t for n, t in tensors.items() if n not in stay}), **experts}
            for name, value in own.items():
                host.register(value, None, name)
                simulator.watch(value.untyped_storage().data_ptr(), "weight")
                names.add(name)
            loaded.append(_weights(case, runner, own))
        outputs = host.run(lambda rank: _rank(host, engine, runner, case, loaded[rank], rank))
    side = _Side({n: count(*seen, names, TP) for n, seen in engine.seen.items()}, outputs, engine.left)
    for rank, others in enumerate(outputs):
        side.problems += [f"{n} of rank {rank} differs" for n in OUTPUTS if not torch.equal(outputs[0][n], others[n])]
    side.problems += [f"{n} is not finite" for n, t in outputs[0].items() if not torch.isfinite(t.float()).all()]
    return side


def _weights(case: _Case, runner: ModuleType, tensors: Mapping[str, Any]) -> Any:
    """The runner's weight classes; padded rows as views of their columns, as a loader hands them over."""
    given: dict[str, Any] = dict(tensors)
    for decl in case.models.program.tensors:
        if decl.layout is Layout.ROWS_PAD256:
            given[decl.name] = given[decl.name][:, : sizes(decl.shape, case.env)[1]]
    if case.kind.hash_route:
        given["bias"] = None
    fields = {c.name: [f.name for f in c.fields if f.name in given] for c in case.models.program.runner.weights}
    attn = {n: given[n] for n in fields["AttnWeights"]}
    layer = {n: given[n] for n in fields["MonoLayerWeights"]}
    return runner.MonoLayerWeights(
        attn=runner.AttnWeights(layer_id=3, ratio=case.build["ratio"], **attn),
        **layer,
    )


def _scratch(case: _Case, layer: Any) -> torch.Tensor:
    """Its scratch buffer; the emitted runner is asked by build parameters, the other by a key table's width."""
    tokens, kind = case.build["tokens"], case.kind
    if hasattr(layer, "barriers"):
        known = {n: case.build[n] for n, _ in case.models.program.space.variants[0].values}
        buffer: torch.Tensor = layer.scratch(tokens, **known)
    else:
        buffer = layer.scratch(tokens, kind.picks if kind.variant == "hca" else 0)
    return buffer


def _rank(
    host: SimulatedHost, engine: RecordingEngine, runner: ModuleType, case: _Case, weights: Any, rank: int
) -> dict[str, torch.Tensor]:
    # The hand-written runner would exchange handles by torch.distributed; without a group the simulated heap does.
    group = host.group if hasattr(runner, "PeerHeap") else None
    kind, selected = case.kind, case.step.selected
    layer = runner.MonoRunner(TP, rank, group, "cuda", max_topk=kind.picks)
    given = dict(case.step.tensors[rank])
    for name in (WRITTEN, *selected):
        given[name] = _copied(given[name])
    for name, value in given.items():
        host.register(value, rank if name == WRITTEN or name in selected else None, name)
    engine.simulator.watch(_scratch(case, layer).untyped_storage().data_ptr(), "handoff")
    engine.simulator.watch(layer.peer.local, "handoff")
    engine.runners[rank], engine.caches[rank] = layer, {WRITTEN: given[WRITTEN]}

    def select(*_: torch.Tensor) -> None:
        for name, value in selected.items():
            given[name].copy_(value)

    options: dict[str, Any] = {"topk": kind.picks, "global_keys": True} if kind.variant == "hca" else {}
    outputs = layer.forward(weights, **given, select=select, fold=kind.fold, **options)
    return {n: t.cpu().clone() for n, t in zip(OUTPUTS, outputs, strict=False)}


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A rank's own copy, gaps between blocks kept."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.as_strided((reach,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def _widths(case: _Case) -> Widths:
    env = case.env
    tokens, hidden, keys = case.build["tokens"], int(env["hidden"]), int(env["window"]) + case.kind.picks
    two_hop = case.models.program.schedule.two_hop
    one_hop = two_hop is None or not two_hop.evaluate(env)
    return Widths(
        layer="vllm.models.deepseek_v4.amd.mono.layer",
        layout=(tokens, TP, case.kind.picks if case.kind.variant == "hca" else 0),
        tokens=tokens,
        tp=TP,
        hidden=hidden,
        q_rank=int(env["q_rank"]),
        head=int(env["head"]),
        heads=int(env["heads"]),
        o_rows=int(env["groups"]) * int(env["o_rank"]),
        keys=keys,
        inter=int(env["inter"]),
        padded=int(env["inter_pad"]),
        shared=int(env["shared_inter"]),
        ffn_at=(TP + 1) * tokens * hidden * 4 if one_hop else None,
        ffn="y_ffn",
        prefix="",
        carried={n: n for n in CARRIED} | {"y": "normed", "q_lat": "qr"},
    )
