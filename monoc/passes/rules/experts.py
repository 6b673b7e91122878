"""experts: router logits, routing, and the routed experts with the shared expert's row joined in.

logit = y @ gate_w        ids, weight = route(score(logit), bias)
m = activation(split(expert_linear(y8, w13, ids)))        down = expert_linear(m8, w2, ids)
routed = ordered sum over picks of bf16(down * weight)    out = bf16(routed + shared), pushed to every rank
"""

from __future__ import annotations

from monoc.expr.ir import Access, Binary, BinaryOp, DType, Expr, IndexVar, Local, Reduce, ReduceOp, Round
from monoc.expr.slot import Slot, SlotInput
from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser
from monoc.passes.knobs import EXPERT_DEPTH, ROUTE_COPIES, ROUTER_PARTS
from monoc.skeletons.expert_down import ExpertDownParams, down_row_tiles
from monoc.skeletons.expert_up import ExpertUpParams
from monoc.skeletons.picks import max_tiles
from monoc.skeletons.route import RouteParams
from monoc.skeletons.router import RouterParams
from monoc.spec.buildexpr import BuildInt
from monoc.spec.program import Layout, TensorDecl

__all__ = ["fuse_experts_down", "fuse_experts_up", "fuse_route", "fuse_router"]


def fuse_router(f: Fuser, op: Operation) -> bool:
    """A linear with a plain bf16 weight, whose result a route takes."""
    weight = f.names.program.tensor[f.operand(op, "w")]
    if weight.scale is not None:
        return False
    logits = op.writes[0]
    experts = f.dim(logits, 1)
    parts = _router_parts(f, logits)
    params = RouterParams(
        stage=f"{weight.name}_logits",
        rows=f.held(f.operand(op, "x"), "rows").region,
        logits=f.hold(logits, "parts", f"cdiv({experts}, 16) * {parts}"),
        gate=weight.name,
        hidden=f.width_of(weight.shape[1].size, op),
        experts=experts,
        parts=parts,
    )
    f.add(params.stage, params, [op])
    return True


def _router_parts(f: Fuser, logits: str) -> str:
    """Parts of K of ``logits``, by a name of the plan's."""
    return f.named(f"{f.short(logits)}_parts", ROUTER_PARTS.format(experts=f.dim(logits, 1)))


def fuse_route(f: Fuser, op: Operation) -> bool:
    """A routing, a token a task."""
    score = f.producer(f.operand(op, "score"))
    logits = score.reads[0]
    ids = op.writes[0]
    given, bias = f.op(op).operand("ids"), f.op(op).operand("bias")
    params = RouteParams(
        stage=f"{f.short(ids)}_route",
        logits=f.held(logits, "parts").region,
        route=f.hold(ids, "picks", "b.tokens"),
        bias=f.names.argument(bias) if bias else "",
        score=f.slot(f"{f.short(ids)}_score", score),
        weigh=f.function_slot(f"{f.short(ids)}_weigh", op, "weigh"),
        experts=f.dim(logits, 1),
        topk=f.dim(ids, 1),
        parts=_router_parts(f, logits),
        given=f.names.argument(given) if given else "",
        given_when=f.given_when(given),
        copies=ROUTE_COPIES,
    )
    f.add(params.stage, params, [score, op])
    return True


def fuse_experts_up(f: Fuser, op: Operation) -> bool:
    """An expert linear whose halves an activation takes and a quantisation follows."""
    activation = f.consumer(op.writes[0], ("map",))
    quantise = f.consumer(activation.writes[0], ("mxfp8",)) if activation is not None else None
    if activation is None or quantise is None:
        return False
    weight = _expert_weight(f, op)
    if weight.interleave != 16:
        raise f.error(op, f"needs {weight.name} with gate and up interleaved by 16-row tiles (interleave: 16)")
    parts = sorted(activation.reads, key=lambda v: f.graph.views[v].offset != BuildInt(0))
    ids, inter = f.operand(op, "ids"), f.dim(activation.writes[0], -1)
    assert weight.scale is not None
    params = ExpertUpParams(
        stage=f"{weight.name}_experts",
        route=f.held(ids, "picks").region,
        rows=f.held(f.operand(op, "x"), "mx").region,
        mid=f.hold(activation.writes[0], "picked", ""),
        weights=weight.name,
        scales=weight.scale.name,
        activation=f.slot(f"{weight.name}_activation", activation, order=(parts[0], parts[1])),
        hidden=f.dim(f.operand(op, "x"), -1),
        inter=inter,
        padded=f"({f.width_of(weight.stored[1].size, op)} // 2)",
        experts=f.width_of(weight.shape[0].size, op),
        topk=f.dim(ids, 1),
        groups=_groups(f, ids, inter),
        depth=f.named("expert_depth", EXPERT_DEPTH),
        tiles=_tiles(f, op),
        rule=str(f.attribute(quantise, "rule")),
        copies=ROUTE_COPIES,
    )
    f.also(quantise.writes[0], "picked", f.held(activation.writes[0], "picked"))
    f.add(params.stage, params, [op, activation, quantise])
    return True


def fuse_experts_down(f: Fuser, op: Operation) -> bool:
    """An expert linear whose weighted results are added up over a token's picks and pushed."""
    total = f.consumer(op.writes[0], ("reduce",))
    expr = total.map.expr if total is not None else None
    if total is None or not (isinstance(expr, Reduce) and expr.op is ReduceOp.ORDERED_SUM and len(expr.over) == 1):
        raise f.error(op, "has to be added up in pick order by its one reader: ordered_sum[p] ...")
    join = f.consumer(total.writes[0], ("map",))
    push = f.consumer((join or total).writes[0], ("push",))
    if push is None:
        raise f.error(total, "is a partial sum of this rank and has to reach an all_reduce")
    weight = _expert_weight(f, op)
    name, ids = f"{weight.name}_experts", f.operand(op, "ids")
    picked = next(v for v in total.reads if v != op.writes[0])
    shared = next((v for v in join.reads if v != total.writes[0]), "") if join is not None else ""
    hidden, inter = (f.width_of(extent.size, op) for extent in weight.shape[1:])
    assert weight.scale is not None
    params = ExpertDownParams(
        stage=name,
        route=f.held(ids, "picks").region,
        mid=f.held(f.operand(op, "x"), "picked").region,
        out=f.hold(push.writes[0].partition("@")[0], "ranks", f"({hidden} // 16)", "16"),
        weights=weight.name,
        scales=weight.scale.name,
        rank="rank",
        weigh=f.slot_of(f"{name}_weigh", total, expr.body, order=(op.writes[0], picked)),
        add=_add(name, total, expr.rounding),
        join=f.slot(f"{name}_join", join, order=(total.writes[0], shared)) if join else _join(name, total),
        hidden=hidden,
        inter=inter,
        padded=f.width_of(weight.stored[2].size, op),
        experts=f.width_of(weight.shape[0].size, op),
        topk=f.dim(ids, 1),
        shared=f.held(shared, "rows").region if shared else "",
        shared_columns=f.held(shared, "rows").columns if shared else "16",
        groups=_groups(f, ids, inter),
        row_tiles=f.named(f"{weight.name}_row_tiles", down_row_tiles(inter, _tiles(f, op))),
        tiles=_tiles(f, op),
        copies=ROUTE_COPIES,
        two_hop=f.two_hop,
    )
    f.add(name, params, [op, total, *([join] if join else []), push])
    return True


def _tiles(f: Fuser, op: Operation) -> str:
    """Tiles of picks at most, by a name of the picks'."""
    ids = f.operand(op, "ids")
    experts = f.width_of(_expert_weight(f, op).shape[0].size, op)
    return f.named(f"{f.short(ids)}_tiles", max_tiles("b.tokens", f.dim(ids, 1), experts))


def _add(name: str, total: Operation, rounding: DType | None) -> Slot:
    result: Expr = Binary(BinaryOp.ADD, Local("total"), Local("value"))
    if rounding is not None:
        result = Round(rounding, result)
    return Slot(f"{name}_add", (SlotInput("total"), SlotInput("value")), (), (result,), (total.statement.origin,))


def _join(name: str, total: Operation) -> Slot:
    """No shared expert: the routed sum as it is."""
    routed = Access(total.writes[0], tuple(IndexVar(v) for v in total.map.index))
    inputs = (SlotInput("routed", routed), SlotInput("shared"))
    return Slot(f"{name}_join", inputs, (), (Local("routed"),), (total.statement.origin,))


def _expert_weight(f: Fuser, op: Operation) -> TensorDecl:
    weight = f.names.program.tensor[f.operand(op, "w")]
    scale = weight.scale
    if weight.layout is not Layout.SHUFFLE16 or scale is None or scale.layout is not Layout.SHUFFLE_SCALE:
        raise f.error(op, f"needs {weight.name} shuffled by 16 x 16 bytes, its scales in shuffle_scale order")
    return weight


def _groups(f: Fuser, ids: str, inter: str) -> str:
    """32-column groups a task of the up projection takes: the spec's ``expert_groups``, else one.

    One as long as every group of every pick has a CTA of its own: a task of two would leave half of them idle while the
    others stream twice the weights.
    """
    knobs = dict(f.names.program.schedule.knobs)
    if "expert_groups" not in knobs:
        return "1"
    single = f"b.tokens * {f.dim(ids, 1)} * ({inter} // 32) <= GRID"
    return f.named("up_groups", f"1 if {single} else {f.names.text(knobs['expert_groups'])}")
