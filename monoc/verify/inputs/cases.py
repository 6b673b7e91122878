"""Hard inputs, by name: what layers meet in service and what kernels get wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from monoc.expr.ir import DType
from monoc.reference.formats import MX_GROUP
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.program import Entry, MapStatement, Program, Role
from monoc.verify.inputs.roles import Roles, op_statements
from monoc.verify.inputs.step import Contexts, StepInputs
from monoc.verify.inputs.weights import Weights

__all__ = ["CASES", "Case"]

Tensor = torch.Tensor


def _keep_weights(program: Program, weights: Weights) -> None:
    del program, weights


def _keep_step(program: Program, entry: Entry, step: StepInputs) -> None:
    del program, entry, step


@dataclass(frozen=True)
class Case:
    """``contexts(tokens)``: how the tokens lie; ``weights`` and ``step`` change what was drawn, in place; ``epoch``:
    the step number the runners start at (negative: so many before it starts over); ``poison``: scratch and peer memory
    hold NaN bytes at first."""

    about: str
    contexts: Callable[[int], Contexts] = lambda tokens: Contexts()
    weights: Callable[[Program, Weights], None] = _keep_weights
    step: Callable[[Program, Entry, StepInputs], None] = _keep_step
    epoch: int = 0
    poison: bool = False


def _rows(entry: Entry, program: Program, step: StepInputs, change: Callable[[Tensor], object]) -> None:
    """Changes bf16 inputs, which the ranks may share."""
    seen: set[int] = set()
    for tensors in step.tensors:
        for name in entry.arguments:
            tensor = tensors.get(name)
            if tensor is not None and tensor.dtype is torch.bfloat16 and id(tensor) not in seen:
                seen.add(id(tensor))
                change(tensor)


def _zero_rows(program: Program, entry: Entry, step: StepInputs) -> None:
    def change(tensor: Tensor) -> None:
        tensor[::2] = 0

    _rows(entry, program, step, change)


def _saturated(program: Program, entry: Entry, step: StepInputs) -> None:
    """Every value of a group as large as its largest: all e4m3 bytes are 0x7e or 0xfe."""

    def change(tensor: Tensor) -> None:
        tensor[:] = torch.where(tensor < 0, -1.75, 1.75).to(tensor.dtype)

    _rows(entry, program, step, change)


def _far_apart(program: Program, entry: Entry, step: StepInputs) -> None:
    """Rows of very different sizes, and within a row."""

    def change(tensor: Tensor) -> None:
        scale = torch.logspace(-18, 12, tensor.shape[-1], base=2.0)
        tensor.mul_(scale[torch.randperm(len(scale), generator=torch.Generator().manual_seed(1))].to(tensor.dtype))

    _rows(entry, program, step, change)


def _small_rows(program: Program, entry: Entry, step: StepInputs) -> None:
    """Rows whose mean squares are about 1, 2e-7, 6e-14 and 1e-20: what is added to them under a root counts."""

    def change(tensor: Tensor) -> None:
        sizes = 2.0 ** (-11.0 * (torch.arange(len(tensor)) % 4))
        tensor.mul_(sizes.reshape(-1, *[1] * (tensor.dim() - 1)).to(tensor.dtype))

    _rows(entry, program, step, change)


def _positive_rows(program: Program, entry: Entry, step: StepInputs) -> None:
    _rows(entry, program, step, lambda tensor: tensor.abs_())


def _each(weights: Weights, names: tuple[str, ...], change: Callable[[Tensor], object]) -> None:
    done: set[int] = set()
    for tensors in weights.tensors:
        for name in names:
            if id(tensors[name]) not in done:
                done.add(id(tensors[name]))
                change(tensors[name])


def _same_experts(program: Program, weights: Weights) -> None:
    """As many experts as a token picks are far ahead of the others: wide steps fill more than a tile of each."""
    picks = next(s.attribute("topk") for s in op_statements(program) if s.op == "route")
    assert isinstance(picks, BuildExpr)
    few = int(picks.evaluate(weights.env))

    def change(bias: Tensor) -> None:
        bias[-few:] += 100

    _each(weights, Roles.of(program).tensors("route", "bias"), change)


_FEW = 4  # scales of a mix: fewer than it has entries
_BLOCKS = 64  # of columns: a token's row lies mostly in one, the experts of a group listen to one


def _blocks(columns: int) -> Tensor:
    return torch.arange(columns) * _BLOCKS // columns


def _own_block(program: Program, entry: Entry, step: StepInputs) -> None:
    def change(tensor: Tensor) -> None:
        tokens = torch.arange(len(tensor)).reshape(-1, *[1] * (tensor.dim() - 1))
        tensor.abs_().mul_(torch.where(_blocks(tensor.shape[-1]) == tokens % _BLOCKS, 8, 0.01).to(tensor.dtype))

    _rows(entry, program, step, change)


def _own_experts(program: Program, weights: Weights) -> None:
    def change(gate: Tensor) -> None:
        group = torch.arange(len(gate)) // max(4, len(gate) // _BLOCKS)
        gate += torch.where(_blocks(gate.shape[1]) == group[:, None], 8 * gate.shape[1] ** -0.5, 0).to(gate.dtype)
        gate.copy_(torch.where(_blocks(gate.shape[1]) == group[:, None], gate.abs(), gate))

    def level(norm: Tensor) -> None:
        norm.fill_(1)

    def quiet(bias: Tensor) -> None:
        bias.mul_(0.01)

    _each(weights, _routers(program), change)
    _each(weights, _norms(program), level)
    _each(weights, Roles.of(program).tensors("route", "bias"), quiet)


def _norms(program: Program) -> tuple[str, ...]:
    """bf16 vectors: the weights of norms."""
    weights = [t for t in program.tensors if t.role is Role.WEIGHT and t.dtype is DType.BF16]
    return tuple(t.name for t in weights if len(t.shape) == 1)


def _routers(program: Program) -> tuple[str, ...]:
    """bf16 matrices of linear operations."""
    return tuple(n for n in Roles.of(program).tensors("linear", "w") if program.tensor[n].scale is None)


def _small_norms(program: Program, weights: Weights) -> None:
    """Normed rows of about 1e-10, and what is made of them: the norms of latents, keys below the least scale."""
    _each(weights, _norms(program), lambda norm: norm.mul_(2.0**-33))


def _mix_vectors(program: Program) -> tuple[str, ...]:
    """fp32 vectors in expressions: scales and bases of mixes."""
    vectors = {t.name for t in program.tensors if t.role is Role.WEIGHT and t.dtype is DType.F32 and len(t.shape) == 1}
    used = {
        name
        for e in program.entries
        for la in e.launches
        for s in la.statements
        if isinstance(s, MapStatement)
        for name in s.operands
    }
    return tuple(sorted(vectors & used))


def _steep(program: Program, weights: Weights) -> None:
    _each(weights, _mix_vectors(program), lambda vector: vector.mul_(24))


def _closed(program: Program, weights: Weights) -> None:
    """Gates near 1e-5: what is added to a gate counts."""

    def change(vector: Tensor) -> None:
        vector[:] = vector.mul(0.1) - 12 if len(vector) > _FEW else vector * 0.1

    _each(weights, _mix_vectors(program), change)


def _no_scores(program: Program, weights: Weights) -> None:
    """Router weights of one sign, rows of the other: every score is zero."""
    _each(weights, _routers(program), lambda gate: gate.abs_().mul_(-64))
    _each(weights, _norms(program), lambda norm: norm.abs_())


def _ties(program: Program, weights: Weights) -> None:
    roles = Roles.of(program)

    def equal(tensor: Tensor) -> None:
        tensor[:] = tensor[0].clone()

    _each(weights, roles.tensors("route", "bias") + _routers(program), equal)


def _nan_like(program: Program, weights: Weights) -> None:
    """Normed rows whose fourth and third codes of every four are 127 and 128: as an fp32 such a word is a NaN. (The
    e4m3 bytes of numbers never are: 0x7f and 0xff are NaNs of their own.)"""

    def change(norm: Tensor) -> None:
        groups = torch.arange(len(norm)) // MX_GROUP % 4
        norm.abs_().mul_(torch.tensor([1.0, 1.0, 256.0, 128.0])[groups].to(norm.dtype))

    _each(weights, _norms(program), change)


def _sinks(program: Program, weights: Weights) -> None:
    def change(sink: Tensor) -> None:
        values = torch.tensor([-torch.inf, torch.inf, -1e4, 1e4, 0.0, 88.0, -88.0, 3e38, -3e38])
        sink[:] = values.repeat(-(-len(sink) // len(values)))[: len(sink)]

    _each(weights, Roles.of(program).tensors("attend", "sink"), change)


CASES: Mapping[str, Case] = {
    "usual": Case("contexts of every length, some selected keys -1, poison wherever a kernel must not look"),
    "padded": Case(
        "rows of slot -1, their tables garbage", lambda tokens: Contexts(padded=tuple(range(tokens > 1, tokens, 2)))
    ),
    "all-padded": Case("a step of nothing but padded rows", lambda tokens: Contexts(padded=tuple(range(tokens)))),
    "short": Case(
        "contexts shorter than window and top-k", lambda tokens: Contexts(positions=(0, 1, 2, 5, 17, 30), window=9)
    ),
    "key-counts": Case(
        "no compressed key, one, a chunk of them, one more, a full table",
        lambda tokens: Contexts(keys=(0, 1, 127, 128, 129, 1024, 1 << 30), missing=0.0, narrow=0),
    ),
    "no-picks": Case("every selected key is -1", lambda tokens: Contexts(no_picks=True)),
    "zero-rows": Case("every second row is zero", step=_zero_rows),
    "saturated": Case("rows whose every fp8 value is the largest", step=_saturated),
    "nan-like": Case("rows whose scale codes have the bits of an fp32 NaN", weights=_nan_like),
    "far-apart": Case("rows whose values span thirty powers of two", step=_far_apart),
    "same-experts": Case("all tokens pick the same experts", weights=_same_experts),
    "different-experts": Case("as many tokens as can pick experts of their own", weights=_own_experts, step=_own_block),
    "ties": Case("every expert scores the same", weights=_ties),
    "sinks": Case("extreme sinks", weights=_sinks),
    "small-rows": Case("rows down to where the norms' epsilon decides", step=_small_rows),
    "small-norms": Case("norms so small that latents and keys are next to nothing", weights=_small_norms),
    "steep-gates": Case("gates and mixes at both ends of their range", weights=_steep),
    "closed-gates": Case("gates next to zero", weights=_closed),
    "no-scores": Case("every expert's score is zero", weights=_no_scores, step=_positive_rows),
    "blocks": Case("cache blocks of other sizes", lambda tokens: Contexts(blocks=(32, 16))),
    "wrap": Case("the epoch is about to start over", epoch=-2),
    "poison": Case("scratch and peer memory full of NaN at first", poison=True),
}
