"""One step held against the reference, statement by statement, on the kernel's own inputs.

The program is walked in writing order. Where the kernel left a value in memory it is compared with what the reference
makes of the values before it, and then takes the reference's place: an error shows at the first value that has it, and
a number on the edge of an fp8 rounding is not carried on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from monoc.expr.ir import DType, Reduce, ReduceOp, Unary, UnaryOp, walk
from monoc.reference.formats import KV_GROUP, Mx
from monoc.reference.interpret import Both
from monoc.spec.buildexpr import BuildExpr, BuildValue
from monoc.spec.program import MapStatement, OpStatement, Program, ShardingKind, Statement
from monoc.verify.compare import Difference, Nearness, compare, nearness
from monoc.verify.ranks import rank_difference
from monoc.verify.reach import place, reach, roundings
from monoc.verify.regions import Seen

__all__ = ["Finding", "StageCheck"]

Tensor = torch.Tensor
_SUMS = ("linear", "grouped_linear", "expert_linear", "attend")


@dataclass(frozen=True)
class Finding:
    """One value of one rank, compared. ``origin``: the spec's statement; ``line``: where it stands."""

    value: str
    rank: int
    where: str
    origin: str
    line: str
    asked: Nearness
    difference: Difference


@dataclass
class StageCheck:
    """An observer of the reference: ``seen`` are the kernel's values by name."""

    program: Program
    seen: Mapping[str, Seen]
    caches: Mapping[str, Sequence[Tensor]]
    env: Mapping[str, BuildValue]
    findings: list[Finding] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)  # values behind a sum in the kernel's order
    attended: set[str] = field(default_factory=set)  # values behind probabilities rounded by chunk
    # How far values the kernel did not leave may be off for places of bf16 they or those before them were rounded by,
    # and the values: by name, a tensor a rank.
    off: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)
    hidden: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)

    def __call__(self, name: str, statement: Statement, both: Both) -> Sequence[Any] | None:
        """Compare value ``name`` if the kernel left it; give the kernel's."""
        if isinstance(statement, OpStatement) and not statement.results:
            return self._cache(name, statement, both)
        self._trace(name, statement)
        seen = self.seen.get(name)
        reached = self._reached(name, statement, both)
        if seen is None:
            self._hide(name, both.stated, reached)
            return None
        type_ = self.program.type_of[name]
        quantised = isinstance(both.stated[0], Mx)
        asked = nearness(type_.dtype, name not in self.loose, quantised, name in self.attended)
        values = [_like(v, s) for v, s in zip(seen.ranks, both.stated, strict=True)]
        alike = type_.sharding.kind is ShardingKind.REPLICATED and rank_difference(seen) is None
        for rank, value in enumerate(values[:1] if alike else values):
            more = None if reached is None else reached[rank]
            found = compare(value, both.stated[rank], both.exact[rank], asked, more)
            self._add(name, rank, seen.where, statement, asked, found)
        self.attended.discard(name)
        if seen.bits:
            self.loose.discard(name)
        else:  # put together from what is in memory: the kernel may have rounded it to a neighbour
            self.loose.add(name)
            if not isinstance(values[0], Mx) and type_.dtype is DType.BF16:
                self._hide(name, values, tuple(place(v) for v in values))
        return values

    def _reached(self, name: str, statement: Statement, both: Both) -> tuple[Tensor, ...] | None:
        """How far the value moves with its hidden operands and the roundings on the way to its last one; None if not
        at all. In a sum they average out."""
        if name not in self.loose or both.again is None or _adds(statement):
            return None
        if isinstance(both.stated[0], Mx):  # of a value not in memory: as far as that
            quantised = isinstance(statement, OpStatement) and statement.op == "mxfp8"
            return self.off.get(statement.operands[0]) if quantised else None
        moved = {n: self.off[n] for n in statement.operands if n in self.off}
        found = reach(both.again, both.stated, moved, self.hidden) if moved else None
        if isinstance(statement, MapStatement) and self.program.type_of[name].dtype is DType.BF16:
            own = roundings(both.again, both.stated)
            found = own if found is None else tuple(a + b for a, b in zip(own, found, strict=True))
        return found

    def _hide(self, name: str, values: Sequence[Any], off: tuple[Tensor, ...] | None) -> None:
        """Remember a value whose bits are in no memory, and how far it may be off."""
        if off is not None and not isinstance(values[0], Mx):
            self.off[name], self.hidden[name] = off, tuple(values)

    def _trace(self, name: str, statement: Statement) -> None:
        before = [v for v in statement.operands if v in self.loose]
        own = _adds(statement) or (
            isinstance(statement, MapStatement)
            and any(isinstance(n, Unary) and n.op is UnaryOp.EXP for n in walk(statement.expr))
        )
        if own or before:
            self.loose.add(name)
        attends = isinstance(statement, OpStatement) and statement.op == "attend"
        through = [v for v in statement.operands if v in self.attended]
        if attends or (through and not own):
            self.attended.add(name)

    def _cache(self, name: str, statement: OpStatement, both: Both) -> Sequence[Any] | None:
        kernels = self.caches.get(name)
        if kernels is None:
            return None
        wanted = both.stated[0]
        pads = self._pads(wanted, statement)
        asked = Nearness(bits=True)
        for rank, cache in enumerate(kernels):
            found = compare(torch.where(pads, wanted, cache).int(), wanted.int(), wanted.int(), asked)
            self._add(name, rank, "the cache", statement, asked, found)
        return [kernels[0]]

    def _pads(self, cache: Tensor, statement: OpStatement) -> Tensor:
        """Which bytes of [blocks, B, record] pad the codes: those of a block lie behind all its records."""
        _, size, record = cache.shape
        width = self.program.type_of[statement.operand("x") or ""].shape[-1].evaluate(self.env)
        rope_width = statement.attribute("rope")
        assert isinstance(rope_width, BuildExpr)
        rope = rope_width.evaluate(self.env)
        data, codes = width + rope, (width - rope) // KV_GROUP
        at = torch.arange(size * record) - size * data
        return ((at >= 0) & (at % (record - data) >= codes)).reshape(1, size, record)

    def _add(self, name: str, rank: int, where: str, statement: Statement, asked: Nearness, found: Difference) -> None:
        at = statement.span
        line = f"{at.file}:{at.line}" if at is not None else ""
        self.findings.append(Finding(name, rank, where, statement.origin, line, asked, found))


def _adds(statement: Statement) -> bool:
    """Whether it adds in an order of the kernel's choice."""
    if isinstance(statement, OpStatement):
        return statement.op in _SUMS
    return any(isinstance(n, Reduce) and n.op is ReduceOp.SUM for n in walk(statement.expr))


def _like(value: Any, stated: Any) -> Any:
    """The kernel's value in the reference's shape; where it keeps less of one (a count a token), the rest is the
    reference's."""
    if isinstance(value, Mx):
        return value
    if value.is_floating_point():
        return value.float().reshape(stated.shape)
    whole = stated.clone()
    both = tuple(slice(0, min(a, b)) for a, b in zip(value.shape, stated.shape, strict=True))
    whole[both] = value[both]
    return whole
