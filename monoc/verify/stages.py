"""One step held against the reference, statement by statement, on the kernel's own inputs.

The program is walked in writing order. Where the kernel left a value in memory it is compared with what the reference
makes of the values before it, and then takes the reference's place: an error shows at the first value that has it, and
a number on the edge of an fp8 rounding is not carried on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from monoc.expr.ir import Reduce, ReduceOp, Unary, UnaryOp, walk
from monoc.reference.formats import KV_GROUP, Mx
from monoc.reference.interpret import Both
from monoc.spec.buildexpr import BuildExpr, BuildValue
from monoc.spec.program import MapStatement, OpStatement, Program, ShardingKind, Statement
from monoc.verify.compare import Difference, Nearness, compare, nearness
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
    turned: dict[str, int] = field(
        default_factory=dict
    )  # values whose last columns are pairs that were turned: of so many

    def __call__(self, name: str, statement: Statement, both: Both) -> Sequence[Any] | None:
        """Compare value ``name`` if the kernel left it; give the kernel's."""
        if isinstance(statement, OpStatement) and not statement.results:
            return self._cache(name, statement, both)
        self._trace(name, statement)
        seen = self.seen.get(name)
        if seen is None:
            return None
        type_ = self.program.type_of[name]
        quantised = isinstance(both.stated[0], Mx)
        asked = nearness(type_.dtype, name not in self.loose, quantised, name in self.attended)
        asked = replace(asked, pairs=self.turned.get(name, 0))
        values = [_like(v, s) for v, s in zip(seen.ranks, both.stated, strict=True)]
        replicated = type_.sharding.kind is ShardingKind.REPLICATED  # whether the ranks agree is asked elsewhere
        for rank, value in enumerate(values[:1] if replicated else values):
            found = compare(value, both.stated[rank], both.exact[rank], asked)
            self._add(name, rank, seen.where, statement, asked, found)
        self.attended.discard(name)
        if seen.bits:
            self.loose.discard(name)
        else:
            self.loose.add(name)
        return values

    def _trace(self, name: str, statement: Statement) -> None:
        before = [v for v in statement.operands if v in self.loose]
        own = (
            any(isinstance(n, Reduce) and n.op is ReduceOp.SUM for n in walk(statement.expr))
            or any(isinstance(n, Unary) and n.op is UnaryOp.EXP for n in walk(statement.expr))
            if isinstance(statement, MapStatement)
            else statement.op in _SUMS
        )
        if own or before:
            self.loose.add(name)
        if isinstance(statement, OpStatement) and statement.op in ("rope", "unrope"):
            table = self.program.type_of[statement.operand("table") or ""]
            self.turned[name] = int(table.shape[-1].evaluate(self.env))
        elif isinstance(statement, MapStatement) and len(statement.operands) == 1:
            self.turned[name] = self.turned.get(statement.operands[0], 0)  # rounded
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
