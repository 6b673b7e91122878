"""A program of the spec run in torch: every statement in writing order, in both modes, on all ranks.

Stated and exact mode go side by side, for the exact one keeps the stated one's quantised numbers and routing.
Replicated values are computed once (with the first rank's operands). An observer sees every value as it is computed and
may put another in its place: so each stage is held against the kernel on the kernel's own inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from monoc.expr.ir import DType
from monoc.reference.arithmetic import EXACT, STATED, Arithmetic
from monoc.reference.call import Call
from monoc.reference.evaluate import evaluate_map
from monoc.reference.formats import Mx
from monoc.reference.operations import OPERATIONS, ordered_rank_sum
from monoc.reference.weights import BlockWeight, sizes
from monoc.spec.program import (
    Build,
    Entry,
    HostCall,
    MapStatement,
    OpStatement,
    Program,
    Role,
    ShardingKind,
    Statement,
    TensorDecl,
)

__all__ = ["Both", "Host", "Observer", "Reference", "Trace"]

Tensor = torch.Tensor
Rounding = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Both:
    """A value of every rank, in stated and in exact mode; a replicated one is the same object on all ranks.

    fp32 / fp64 tensors, integer tensors or :class:`Mx`. ``again(rank, values)``: the value of a rank in stated mode
    with other ``values`` of some of its statement's operands, and another rounding to bf16 if one is given; of a
    statement of one rank alone."""

    stated: tuple[Any, ...]
    exact: tuple[Any, ...]
    again: Callable[..., Any] | None = None


Observer = Callable[[str, Statement, Both], "Sequence[Any] | None"]
Host = Callable[[HostCall], Mapping[str, Tensor]]


@dataclass
class Trace:
    """What one run computed: every value of the build by name, caches as they ended."""

    values: dict[str, Both] = field(default_factory=dict)
    caches: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """The reference of ``build`` of ``program``. ``arithmetic``: of stated mode; ``exact``: whether exact mode goes
    along (else its values are the stated ones)."""

    program: Program
    build: Build
    arithmetic: Arithmetic = STATED
    exact: bool = True

    def run(
        self,
        entry: Entry,
        given: Sequence[Mapping[str, Tensor]],
        host: Host | None = None,
        observer: Observer | None = None,
        wanted: Collection[str] | None = None,
    ) -> Trace:
        """Run ``entry``: ``given`` holds each rank's inputs, weights, scales and caches by name, as the host has them.

        ``host`` stands in for host calls: it gives the tensors they write. ``wanted``: the values the trace keeps, all
        if None; others go when nothing reads them any more. Nothing given is changed: caches are copied.
        """
        run = _Run(self, tuple(given), Trace(), observer)
        live = [s for la in entry.launches for s in la.statements if s.guard.evaluate(run.env)]
        last = {name: s for s in live for name in (*s.operands, *s.results)}
        for step in entry.steps:
            if isinstance(step, HostCall):
                if step.guard.evaluate(run.env):
                    assert host is not None, f"no host for {step.name}"
                    run.written.update(host(step))
                continue
            for statement in step.statements:
                if statement.guard.evaluate(run.env):
                    run.statement(statement)
                    if wanted is not None:
                        run.forget(
                            n
                            for n in (*statement.operands, *statement.results)
                            if last[n] is statement and n not in wanted
                        )
        return run.trace


@dataclass
class _Run:
    reference: Reference
    given: tuple[Mapping[str, Tensor], ...]
    trace: Trace
    observer: Observer | None
    written: dict[str, Tensor] = field(default_factory=dict)  # by host calls
    inputs: dict[tuple[str, int, bool], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = self.reference.program
        self.env = self.program.environment(self.reference.build)
        self.ranks = len(self.given)
        entry_statements = (s for e in self.program.entries for la in e.launches for s in la.statements)
        self.changed = {s.operands[0] for s in entry_statements if isinstance(s, OpStatement) and not s.results}

    def forget(self, names: Iterable[str]) -> None:
        """Values nothing reads any more."""
        for name in names:
            self.trace.values.pop(name, None)

    # -------------------------------------------------------------- operands

    def _has(self, name: str) -> bool:
        decl = self.program.tensor.get(name)
        if decl is None or decl.role is Role.OUTPUT:
            return name in self.trace.values
        return bool(decl.guard.evaluate(self.env))

    def _value(self, name: str, rank: int, arithmetic: Arithmetic) -> Any:
        if name in self.trace.values:
            both = self.trace.values[name]
            return (both.exact if arithmetic.exact else both.stated)[rank]
        decl = self.program.tensor[name]
        if decl.sharding.kind is ShardingKind.REPLICATED:
            rank = 0
        if decl.role is Role.CACHE:
            if name not in self.trace.caches:
                given = self.given[0][name]
                self.trace.caches[name] = _copy(given) if name in self.changed else given
            return self.trace.caches[name]
        key = (name, rank, arithmetic.exact)
        if key not in self.inputs or name in self.written:
            self.inputs[key] = self._input(decl, rank, arithmetic)
        return self.inputs[key]

    def _input(self, decl: TensorDecl, rank: int, arithmetic: Arithmetic) -> Any:
        tensor = self.written.get(decl.name, self.given[rank][decl.name])
        if decl.scale is not None:
            return BlockWeight(decl, tensor, self.given[rank][decl.scale.name], self.env)
        wanted = sizes(decl.shape, self.env)
        if tensor.dim() != len(wanted):
            tensor = tensor.reshape([n for n in wanted if n is not None])
        for axis, extent in enumerate(wanted):
            if extent is not None and decl.shape[axis].at_least:
                tensor = tensor.narrow(axis, 0, extent)
        if not tensor.is_floating_point() or wanted[0] is None:
            return tensor  # a table as long as the host's: numbers of the rows that are read, where they are
        return arithmetic.of(tensor)

    # -------------------------------------------------------------- statements

    def statement(self, statement: Statement) -> None:
        """Compute the statement's results on every rank in both modes, and let the observer see them."""
        stated: list[tuple[Any, ...]] = []
        exact: list[tuple[Any, ...]] = []
        alone = not (isinstance(statement, OpStatement) and statement.op == "all_reduce")
        if not alone:
            (operand,) = statement.operands
            for arithmetic, found in ((self.reference.arithmetic, stated), (EXACT, exact)):
                parts = [self._value(operand, r, arithmetic) for r in range(self.ranks)]
                total = arithmetic.round(
                    self.program.type_of[statement.results[0]].dtype, ordered_rank_sum(parts, arithmetic)
                )
                found.extend([(total,)] * self.ranks)
        else:
            once = all(self._replicated(r) for r in statement.results)
            for rank in range(1 if once else self.ranks):
                raw = self._one(statement, rank, self.reference.arithmetic, None)
                stated.append(tuple(self._kept(n, v) for n, v in zip(statement.results, raw, strict=True)))
                exact.append(self._one(statement, rank, EXACT, raw) if self.reference.exact else stated[rank])
            stated.extend(stated[:1] * (self.ranks - len(stated)))
            exact.extend(exact[:1] * (self.ranks - len(exact)))
        for k, name in enumerate(statement.results):
            again = partial(self._again, statement, k) if alone else None
            self._settle(name, statement, Both(tuple(v[k] for v in stated), tuple(v[k] for v in exact), again))
        if not statement.results:
            self._settle_cache(statement)

    def _replicated(self, name: str) -> bool:
        return self.program.type_of[name].sharding.kind is ShardingKind.REPLICATED

    def _kept(self, name: str, value: Any) -> Any:
        """A result as stated mode keeps it: numbers as fp32."""
        if isinstance(value, Mx) or self.program.type_of[name].dtype not in (DType.F32, DType.BF16):
            return value
        return value.float()

    def _again(
        self, statement: Statement, k: int, rank: int, values: Mapping[str, Any], rounded: Rounding | None = None
    ) -> Any:
        """Result ``k`` with other values of some operands, or another rounding."""
        arithmetic = replace(self.reference.arithmetic, rounded=rounded)
        return self._kept(statement.results[k], self._one(statement, rank, arithmetic, None, values)[k])

    def _one(
        self,
        s: Statement,
        rank: int,
        arithmetic: Arithmetic,
        stated: tuple[Any, ...] | None,
        instead: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Any, ...]:
        def value(name: str) -> Any:
            return instead[name] if name in instead else self._value(name, rank, arithmetic)

        if isinstance(s, MapStatement):
            extents = {n: int(e.evaluate(self.env)) for n, e in s.extents}
            values = {n: value(n) for n in s.operands}
            token = next((n for n, e in s.extents if e.names() == {"tokens"}), None)
            return (evaluate_map(s.expr, s.index, extents, values, arithmetic, token),)
        operands = {o.param: value(o.value) for o in s.arguments if self._has(o.value)}
        return OPERATIONS[s.op](Call(s, operands, self.env, arithmetic, stated))

    def _settle(self, name: str, statement: Statement, both: Both) -> None:
        seen = None if self.observer is None else self.observer(name, statement, both)
        if seen is not None:
            both = Both(tuple(seen), tuple(v.double() if _is_float(v) else v for v in seen))
        self.trace.values[name] = both

    def _settle_cache(self, statement: Statement) -> None:
        assert isinstance(statement, OpStatement)
        cache = statement.operands[0]
        now = self.trace.caches[cache]
        seen = None if self.observer is None else self.observer(cache, statement, Both((now,), (now,)))
        if seen is not None:
            self.trace.caches[cache] = seen[0]


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _copy(cache: Tensor) -> Tensor:
    """A copy with the blocks as far apart as they were."""
    copied = torch.empty_strided(cache.shape, cache.stride(), dtype=cache.dtype)
    copied.copy_(cache)
    return copied
