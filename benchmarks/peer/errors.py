"""Errors of both sides' values against the exact mode of the reference.

Two ways, both of one step:

- *same numbers*: the exact mode walks a launch from its inputs (of K2: what our K1 left, given to both K2), keeping
  the stated reference's quantised numbers and routing. Each side's values are held against the same exact numbers, so
  an fp8 number that a side rounded to the neighbour counts against that side all the way down.
- *own inputs*: each side is walked by itself, and every value it left takes the reference's place once it is judged:
  what a stage adds, whatever came before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from monoc.expr.ir import DType
from monoc.reference.formats import Mx
from monoc.reference.interpret import Both, Reference
from monoc.spec.program import Build, Entry, OpStatement, Program, Statement
from monoc.verify.regions import Seen

__all__ = ["BF16_FLOOR", "F32_FLOOR", "ErrorRow", "error_rows", "pooled"]

Tensor = torch.Tensor
BF16_FLOOR = 2.0**-8  # one bf16 ulp, where it is smallest beside its number
F32_FLOOR = 1e-6
WORST = 1.1


@dataclass(frozen=True)
class ErrorRow:
    """Relative L2 errors of a value of both sides, each a sequence of draws (input seeds).

    ``way``: "same" or "own" (see above); ``apart``: relative L2 distance between the two sides."""

    launch: str
    tokens: int
    kind: str
    way: str
    value: str
    floor: float
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    apart: tuple[float, ...]

    @property
    def mean(self) -> tuple[float, float]:
        """Root mean squares over the draws, ours and theirs."""
        return _rms(self.ours), _rms(self.theirs)

    @property
    def ratio(self) -> float:
        """Ours / theirs; 1 where both are nothing."""
        ours, theirs = self.mean
        return ours / theirs if theirs else (float("inf") if ours else 1.0)

    @property
    def good(self) -> bool:
        """At most 1.1 times theirs, or below the floor."""
        ours, theirs = self.mean
        return ours <= max(WORST * theirs, self.floor)


def _rms(draws: Sequence[float]) -> float:
    return float(torch.tensor(draws, dtype=torch.float64).square().mean().sqrt())


def pooled(draws: Iterable[Sequence[ErrorRow]]) -> list[ErrorRow]:
    """The rows of several draws, one a value."""
    found: dict[tuple[str, int, str, str, str], ErrorRow] = {}
    for rows in draws:
        for r in rows:
            key = (r.launch, r.tokens, r.kind, r.way, r.value)
            if (old := found.get(key)) is None:
                found[key] = r
            else:
                more = (old.ours + r.ours, old.theirs + r.theirs, old.apart + r.apart)
                found[key] = ErrorRow(*key, r.floor, *more)
    return list(found.values())


@dataclass
class _Walk:
    """An observer of the reference. ``sides``: values left, by side and name; ``place``: which side's values (of
    ``names`` only, or of all) take the reference's place; ``rows``: tokens that count in what lies behind routing, of
    which those go that the reference sends elsewhere."""

    sides: Mapping[str, Mapping[str, Seen]]
    place: str
    names: frozenset[str] | None
    rows: Tensor
    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    apart: dict[str, float] = field(default_factory=dict)
    routed: bool = False

    def __call__(self, name: str, statement: Statement, both: Both) -> Sequence[Any] | None:
        if isinstance(statement, OpStatement) and not statement.results:
            return None  # the cache: compared by bytes
        if isinstance(statement, OpStatement) and statement.op == "route":
            if not self.routed and name in self.sides[self.place]:
                picked = self.sides[self.place][name].ranks[0].sort(dim=1).values
                same = (picked == both.stated[0].sort(dim=1).values).all(dim=1)
                self.rows = self.rows[same[self.rows]]
            self.routed = True
        if all(name in side for side in self.sides.values()):
            self.errors[name] = {who: self._error(side[name], both) for who, side in self.sides.items()}
            first, *others = self.sides.values()
            for other in others:
                a, b = (torch.stack([_numbers(v) for v in s[name].ranks]) for s in (first, other))
                self.apart[name] = _relative(self._counted(a, 1), self._counted(b, 1))
        if self.names is not None and name not in self.names:
            return None
        seen = self.sides[self.place].get(name)
        return None if seen is None else [_as(v, s) for v, s in zip(seen.ranks, both.stated, strict=True)]

    def _counted(self, x: Tensor, axis: int = 0) -> Tensor:
        return x.index_select(axis, self.rows) if self.routed else x

    def _error(self, seen: Seen, both: Both) -> float:
        whole = not isinstance(both.exact[0], Mx) and not both.exact[0].is_floating_point()
        ranks = zip(seen.ranks, both.stated, both.exact, strict=True)
        pairs = [(_numbers(_as(v, s)), _numbers(e)) for v, s, e in ranks]
        kernel = torch.cat([self._counted(v.reshape(e.shape)).flatten() for v, e in pairs])
        return _relative(kernel, torch.cat([self._counted(e).flatten() for _, e in pairs]), whole)


def _numbers(value: Any) -> Tensor:
    return value.exact() if isinstance(value, Mx) else value.double()


def _as(value: Any, stated: Any) -> Any:
    """The value in the reference's shape (of counts a token, the kernels keep the first row)."""
    if isinstance(value, Mx):
        return Mx(value.values.reshape(stated.values.shape), value.codes.reshape(stated.codes.shape))
    if value.numel() == stated.numel():
        return value.reshape(stated.shape)
    whole = stated.clone()
    whole[: len(value)] = value
    return whole


def _relative(value: Tensor, exact: Tensor, whole: bool = False) -> float:
    if whole:  # integers: the share that differs
        return float((value.reshape(exact.shape) != exact).double().mean())
    norm = float(torch.linalg.norm(exact))
    apart = float(torch.linalg.norm(value.reshape(exact.shape) - exact))
    return apart / norm if norm else apart


def error_rows(
    program: Program,
    build: Build,
    entry: Entry,
    given: Sequence[Mapping[str, Tensor]],
    ours: Mapping[str, Seen],
    theirs: Mapping[str, Seen],
    kind: str,
) -> Iterator[ErrorRow]:
    """Every value both sides left, in program order, the same-numbers rows first."""
    both = {"ours": ours, "theirs": theirs}
    launch_of = {r: la.name for la in entry.launches for s in la.statements for r in s.results}
    reference = Reference(program, build)
    alike = _alike(reference, entry, given, both)

    def rows(way: str, errors: Mapping[str, Mapping[str, float]], apart: Mapping[str, float]) -> Iterator[ErrorRow]:
        for name, found in errors.items():
            type_ = program.type_of[name]
            floor = F32_FLOOR if type_.dtype is DType.F32 else BF16_FLOOR
            yield ErrorRow(
                launch_of[name],
                build["tokens"],
                kind,
                way,
                name,
                floor,
                (found["ours"],),
                (found["theirs"],),
                (apart[name],),
            )

    carried = frozenset(n for n in entry.carried if n in ours)
    same = _Walk(both, "ours", carried, alike)
    reference.run(entry, given, None, same)
    yield from rows("same", same.errors, same.apart)
    own: dict[str, dict[str, float]] = {}
    for who, side in both.items():
        walk = _Walk({who: {n: s for n, s in side.items() if n in ours and n in theirs}}, who, None, alike)
        reference.run(entry, given, None, walk)
        for name, found in walk.errors.items():
            own.setdefault(name, {}).update(found)
    yield from rows("own", own, same.apart)


def _alike(
    reference: Reference, entry: Entry, given: Sequence[Mapping[str, Tensor]], both: Mapping[str, Mapping[str, Seen]]
) -> Tensor:
    """Tokens that both sides send to the same experts."""
    env = reference.program.environment(reference.build)
    statements = [s for la in entry.launches for s in la.statements if s.guard.evaluate(env)]
    routes = [s.results[0] for s in statements if isinstance(s, OpStatement) and s.op == "route"]
    alike = torch.ones(reference.build["tokens"], dtype=torch.bool)
    for name in routes:
        a, b = (side[name].ranks[0].sort(dim=1).values for side in both.values())
        alike &= (a == b).all(dim=1)
    return torch.nonzero(alike).flatten()
