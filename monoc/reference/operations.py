"""The structured operations (monoc/spec/optable.py), one function each, for one rank.

A function takes a :class:`Call` and gives the results in order: numbers as fp64 (the interpreter rounds them to fp32 in
stated mode), integers, :class:`~monoc.reference.formats.Mx`. ``all_reduce`` alone sees every rank: the interpreter has
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import torch

from monoc.expr.ir import UnaryOp
from monoc.reference.arithmetic import Arithmetic
from monoc.reference.attention import attend, key_table, kv_insert
from monoc.reference.call import Call
from monoc.reference.evaluate import evaluate_scalar, pairwise_sum
from monoc.reference.formats import Mx, quantise_mx
from monoc.reference.weights import BlockWeight

__all__ = ["OPERATIONS", "ordered_rank_sum"]

Tensor = torch.Tensor
Results = tuple[Any, ...]
LOG2E = 1.4426950408889634


def _numbers(x: Any) -> Tensor:
    return x.exact() if isinstance(x, Mx) else x.double()


def _reused(call: Call) -> Results | None:
    """A contraction of quantised operands is the same sum in both modes."""
    return call.stated if call.stated is not None and isinstance(call.values["x"], Mx) else None


def linear(call: Call) -> Results:
    """x [.., k] times w [n, k] transposed."""
    if (known := _reused(call)) is not None:
        return known
    x, w = _numbers(call.values["x"]), call.values["w"]
    total = w.times(x.flatten(0, -2)).reshape(*x.shape[:-1], -1) if isinstance(w, BlockWeight) else x @ w.double().T
    return (call.arithmetic.contracted(total, x.shape[-1]),)


def grouped_linear(call: Call) -> Results:
    """Each group's x [t, g, k] times its n rows of w [g n, k]."""
    if (known := _reused(call)) is not None:
        return known
    x, w = _numbers(call.values["x"]), call.values["w"]
    if isinstance(w, BlockWeight):
        total = w.grouped_times(x)
    else:
        total = torch.einsum("tgk,gnk->tgn", x, w.double().reshape(x.shape[1], -1, w.shape[1]))
    return (call.arithmetic.contracted(total, x.shape[-1]),)


def expert_linear(call: Call) -> Results:
    """x [t, k] (or [t, p, k]) times the rows of expert ids[t, p]."""
    if (known := _reused(call)) is not None:
        return known
    x, w, ids = _numbers(call.values["x"]), call.values["w"], call.values["ids"]
    rows = x[:, None].expand(*ids.shape, x.shape[-1]) if x.dim() == 2 else x
    n = (w.shape if isinstance(w, BlockWeight) else tuple(w.shape))[1]
    out = torch.empty(*ids.shape, n, dtype=torch.float64)
    for expert in ids.unique().tolist():
        picked = ids == expert
        some = rows[picked]
        out[picked] = w.times(some, expert) if isinstance(w, BlockWeight) else some @ w[expert].double().T
    return (call.arithmetic.contracted(out, x.shape[-1]),)


def mxfp8(call: Call) -> Results:
    """MXFP8 by the rule; the exact mode keeps the stated one's numbers."""
    if call.stated is not None:
        return call.stated
    return (quantise_mx(call.values["x"], call.choice("rule")),)


def _turned(call: Call, sign: int) -> Results:
    x, table = call.values["x"], call.values["table"]
    a = call.arithmetic
    rows = a.of(table[call.values["positions"].long()])
    rows = rows.reshape(rows.shape[0], *[1] * (x.dim() - 2), rows.shape[1])
    half = rows.shape[-1] // 2
    cos, sin = rows[..., :half], rows[..., half:]
    even, odd = x[..., -2 * half :: 2], x[..., 1 - 2 * half :: 2]
    turned = torch.empty_like(x)
    turned[..., : x.shape[-1] - 2 * half] = x[..., : x.shape[-1] - 2 * half]
    turned[..., -2 * half :: 2] = even * cos - odd * sin if sign > 0 else even * cos + odd * sin
    turned[..., 1 - 2 * half :: 2] = even * sin + odd * cos if sign > 0 else odd * cos - even * sin
    return (turned,)


def rope(call: Call) -> Results:
    """Pairs of the last columns turned by their position's row of the table."""
    return _turned(call, 1)


def unrope(call: Call) -> Results:
    """The inverse of rope."""
    return _turned(call, -1)


def sinkhorn(call: Call) -> Results:
    """Rows and columns of exp2(z - rowmax) scaled to sums of one, in turn."""
    a, z = call.arithmetic, call.values["z"]
    eps = a.constant(call.real("eps"))
    e = a.unary(UnaryOp.EXP2, (z - z.amax(dim=2, keepdim=True)) * a.constant(LOG2E))
    for turn in range(call.size("iterations")):
        rows = _pairwise(e, 2)
        e = a.fma(e, a.unary(UnaryOp.RCP, rows), eps) if turn == 0 else e * a.unary(UnaryOp.RCP, rows + eps)
        e = e * a.unary(UnaryOp.RCP, _pairwise(e, 1) + eps)
    return (e,)


def _pairwise(x: Tensor, axis: int) -> Tensor:
    return pairwise_sum([t.unsqueeze(axis) for t in x.unbind(axis)])


def route(call: Call) -> Results:
    """The picked experts and their weights; the exact mode keeps the stated one's picks."""
    a, topk = call.arithmetic, call.size("topk")
    score = torch.nan_to_num(call.values["score"], nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    if "ids" in call.values:
        ids, known = _distinct(call.values["ids"][:, :topk], score.shape[1])
        picked = torch.where(known, score.gather(1, ids.long()), 0)
    else:
        ids = _picks(score, call.values.get("bias"), topk) if call.stated is None else call.stated[0]
        picked = score.gather(1, ids.long())
    total = picked[:, 0]
    for p in range(1, topk):
        total = total + picked[:, p]
    weigh = call.function("weigh")
    arguments = dict(zip(weigh.params, (picked, total[:, None]), strict=True))
    return ids, evaluate_scalar(weigh.body, arguments, a).expand(picked.shape)


def _distinct(given: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """The given experts [t, topk], and which of them count; the others are the lowest their token does not have."""
    ids, known = given.clone(), torch.zeros(given.shape, dtype=torch.bool)
    for t, row in enumerate(given.tolist()):
        known[t] = torch.tensor([0 <= e < experts and e not in row[:k] for k, e in enumerate(row)])
        spare = (e for e in range(experts) if e not in row)
        ids[t] = torch.tensor([e if ok else next(spare) for e, ok in zip(row, known[t].tolist(), strict=True)])
    return ids, known


def _picks(score: Tensor, bias: Tensor | None, topk: int) -> Tensor:
    """By score + bias; ties: the lowest expert % 64, then the lowest expert. A NaN never wins."""
    key = score if bias is None else score + bias
    key = torch.where(key.isnan(), -torch.inf, key)
    experts = torch.arange(key.shape[1])
    order = torch.argsort(experts % 64, stable=True)
    ranked = torch.argsort(key[:, order], dim=1, descending=True, stable=True)
    return order[ranked[:, :topk]].to(torch.int32)


def _viewed(x: Any, shape: Callable[[Tensor], Tensor]) -> Any:
    return Mx(shape(x.values), shape(x.codes)) if isinstance(x, Mx) else shape(x)


def split(call: Call) -> Results:
    """The last axis cut into the sizes, or into equal parts."""
    x = call.values["x"]
    count = len(call.statement.results)
    width = (x.values if isinstance(x, Mx) else x).shape[-1]
    parts = call.sizes("sizes") or (width // count,) * count

    def cut(tensor: Tensor) -> list[Tensor]:
        ends = list(accumulate(p * tensor.shape[-1] // width for p in parts))
        return [tensor[..., a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    if isinstance(x, Mx):
        return tuple(Mx(v, c) for v, c in zip(cut(x.values), cut(x.codes), strict=True))
    return tuple(cut(x))


def group(call: Call) -> Results:
    """[.., d] as [.., into, d / into]."""
    into = call.size("into")
    return (_viewed(call.values["x"], lambda v: v.reshape(*v.shape[:-1], into, v.shape[-1] // into)),)


def flatten(call: Call) -> Results:
    """The last two axes as one."""
    return (_viewed(call.values["x"], lambda v: v.flatten(-2)),)


def concat(call: Call) -> Results:
    """Two values along the last axis."""
    a, b = call.values["a"], call.values["b"]
    if isinstance(a, Mx):
        return (Mx(torch.cat([a.values, b.values], -1), torch.cat([a.codes, b.codes], -1)),)
    return (torch.cat([a, b], -1),)


def ordered_rank_sum(parts: list[Tensor], arithmetic: Arithmetic) -> Tensor:
    """The ranks' parts added in rank order."""
    total = arithmetic.of(parts[0])
    for part in parts[1:]:
        total = total + arithmetic.of(part)
    return total


OPERATIONS: Mapping[str, Callable[[Call], Results]] = {
    f.__name__: f
    for f in (
        linear, grouped_linear, expert_linear, mxfp8, rope, unrope, kv_insert, key_table, attend, sinkhorn, route,
        split, group, flatten, concat,
    )
}  # fmt: skip
