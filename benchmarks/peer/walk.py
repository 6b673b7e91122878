"""The exact mode of the reference beside what both sides left in memory.

Two ways, both of one step:

- *same numbers*: the exact mode walks a launch from its inputs (of K2: what our K1 left, given to both K2), keeping
  the stated reference's quantised numbers and routing. Each side's values are held against the same exact numbers, so
  an fp8 number that a side rounded to the neighbour counts against that side all the way down.
- *own inputs*: each side is walked by itself, and every value it left takes the reference's place once it is judged:
  what a stage adds, whatever came before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from monoc.expr.ir import DType
from monoc.reference.formats import Mx, decode_records
from monoc.reference.interpret import Both, Reference, Trace
from monoc.reference.layouts import cache_rows
from monoc.spec.program import Build, Entry, OpStatement, Program, Statement
from monoc.verify.regions import Seen
from peer.errors import BF16_FLOOR, F32_FLOOR, ErrorRow, Parting
from peer.inputs import HEAD, ROPE

__all__ = ["Step", "walk_step"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Step:
    """One step of ``entry`` on every rank's ``given``. ``values``: what the sides ("ours", "theirs") left, by name;
    ``caches``: the KV cache (by name) of every rank after the step, by side; ``kind``: the layer kind's name."""

    program: Program
    build: Build
    entry: Entry
    kind: str
    given: Sequence[Mapping[str, Tensor]]
    values: Mapping[str, Mapping[str, Seen]]
    caches: Mapping[str, Mapping[str, Sequence[Tensor]]]

    def run(self, observer: "_Walk") -> Trace:
        """The reference over the step; a host call finds its results in the inputs."""
        reference = Reference(self.program, self.build)
        return reference.run(self.entry, self.given, lambda h: {n: self.given[0][n] for n in h.writes}, observer)

    @property
    def carried(self) -> frozenset[str]:
        """Values of K1 that both K2 were given as ours left them."""
        return frozenset(n for n in self.entry.carried if n in self.values["ours"])


@dataclass
class _Walk:
    """An observer of the reference. ``judged``: the sides whose errors are taken; ``place``: whose values take the
    reference's place (None: nobody's); ``rows``: tokens that count in what lies behind routing, of which those go that
    the reference sends elsewhere (with none left, nothing behind it is judged). What a launch hands to the next is ours
    in any case."""

    step: Step
    judged: Sequence[str]
    place: str | None
    rows: Tensor
    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    routed: bool = False

    def __call__(self, name: str, statement: Statement, both: Both) -> Sequence[Any] | None:
        if isinstance(statement, OpStatement) and not statement.results:
            return self._cache(name, statement, both)
        ours = self.step.values["ours"].get(name)
        if isinstance(statement, OpStatement) and statement.op == "route":
            if not self.routed and ours is not None:
                same = (ours.ranks[0] == both.stated[0]).all(dim=1)
                self.rows = self.rows[same[self.rows]]
            self.routed = True
        sides = self.step.values
        if all(name in side for side in sides.values()):
            if len(self.rows) or not self.routed:  # else the reference sends every token elsewhere
                self.errors[name] = {who: self._error(sides[who][name], both) for who in self.judged}
        elif name not in self.step.carried:
            return None
        seen = ours if name in self.step.carried else sides[self.place][name] if self.place else None
        return None if seen is None else [_as(v, s) for v, s in zip(seen.ranks, both.stated, strict=True)]

    def _cache(self, name: str, statement: OpStatement, both: Both) -> Sequence[Any]:
        """The records just written, as numbers; the cache goes on as ours."""
        slots = self.step.given[0][statement.operand("slots") or ""].long()
        slots = slots[slots >= 0]

        def written(cache: Tensor) -> Tensor:
            return decode_records(*cache_rows(cache, slots, HEAD + ROPE), ROPE)

        wanted = written(both.stated[0])
        caches = self.step.caches
        self.errors[name] = {w: max(_relative(written(c), wanted) for c in caches[w][name]) for w in self.judged}
        return [caches["ours"][name][0]]

    def _error(self, seen: Seen, both: Both) -> float:
        whole = not isinstance(both.exact[0], Mx) and not both.exact[0].is_floating_point()
        ranks = zip(seen.ranks, both.stated, both.exact, strict=True)
        pairs = [(_numbers(_as(v, s)), _numbers(e)) for v, s, e in ranks]
        kernel = torch.cat([self._counted(v).flatten() for v, _ in pairs])
        exact = torch.cat([self._counted(e).flatten() for _, e in pairs])
        return float((kernel != exact).double().mean()) if whole else _relative(kernel, exact)

    def _counted(self, x: Tensor) -> Tensor:
        return x[self.rows] if self.routed else x


def _numbers(value: Any) -> Tensor:
    return value.exact() if isinstance(value, Mx) else value.double()


def _as(value: Any, stated: Any) -> Any:
    """The value in the reference's shape: where a kernel keeps less of one (a row of the counts) the rest is the
    reference's, where it keeps more (a key table as wide as any layer's) that is left away."""
    if isinstance(value, Mx):
        return Mx(value.values.reshape(stated.values.shape), value.codes.reshape(stated.codes.shape))
    if value.numel() == stated.numel():
        return value.reshape(stated.shape)
    whole = stated.clone()
    both = tuple(slice(0, min(a, b)) for a, b in zip(value.shape, stated.shape, strict=True))
    whole[both] = value[both]
    return whole


def _relative(value: Tensor, exact: Tensor) -> float:
    """Relative L2 distance; the distance itself from nothing."""
    norm, apart = float(torch.linalg.norm(exact)), float(torch.linalg.norm(value - exact))
    return apart / norm if norm else apart


def walk_step(step: Step) -> tuple[list[ErrorRow], list[Parting]]:
    """A row for every value both sides left, in program order, those of the same numbers first; and where they part."""
    alike = _alike(step)
    same = _Walk(step, ("ours", "theirs"), None, alike)
    step.run(same)
    rows = list(_rows(step, "same", same.errors, alike))
    own: dict[str, dict[str, float]] = {}
    partings: list[Parting] = []
    for who in ("ours", "theirs"):
        walk = _Walk(step, (who,), who, alike)
        trace = step.run(walk)
        for name, found in walk.errors.items():
            own.setdefault(name, {}).update(found)
        if who == "ours":
            partings = list(_partings(step, trace))
    return rows + list(_rows(step, "own", own, alike)), partings


def _rows(step: Step, way: str, errors: Mapping[str, Mapping[str, float]], alike: Tensor) -> Iterator[ErrorRow]:
    launch_of = {n: la.name for la in step.entry.launches for s in la.statements for n in (s.results or s.operands[:1])}
    behind = False
    for name, found in errors.items():
        cache = name in step.caches["ours"]
        f32 = not cache and step.program.type_of[name].dtype is DType.F32
        behind |= name.rpartition(".")[2] == "ids"
        both = [step.caches[w][name] if cache else step.values[w][name].ranks for w in ("ours", "theirs")]
        ours, theirs = (torch.stack([_numbers(v) for v in side]) for side in both)
        theirs = _as(theirs, ours)
        if behind:
            ours, theirs = ours[:, alike], theirs[:, alike]
        apart = _relative(ours, theirs)
        floor = F32_FLOOR if f32 else BF16_FLOOR
        yield ErrorRow(
            launch_of[name],
            step.build["tokens"],
            step.kind,
            way,
            name,
            floor,
            (found["ours"],),
            (found["theirs"],),
            (apart,),
        )


def _partings(step: Step, trace: Trace) -> Iterator[Parting]:
    """``trace``: the reference on our inputs."""
    env = step.program.environment(step.build)
    for launch in step.entry.launches:
        for s in launch.statements:
            if not (isinstance(s, OpStatement) and s.op == "mxfp8" and s.guard.evaluate(env)):
                continue
            (name,) = s.results
            if not all(name in side for side in step.values.values()):
                continue
            exact = trace.values[s.operands[0]].exact
            ours, theirs = (
                torch.stack([_numbers(v).reshape(exact[0].shape) for v in step.values[w][name].ranks])
                for w in ("ours", "theirs")
            )
            differ = ours != theirs
            if differ.any():
                wanted = torch.stack(list(exact))[differ]
                ulp = torch.exp2(torch.floor(torch.log2(wanted.abs())) - 7)
                distance = ((wanted - (ours + theirs)[differ] / 2) / ulp).abs()
                yield Parting(
                    launch.name,
                    step.build["tokens"],
                    step.kind,
                    name,
                    int(differ.sum()),
                    differ.numel(),
                    float(distance.max()),
                )
                break


def _alike(step: Step) -> Tensor:
    """Tokens that both sides send to the same experts, in the same order."""
    env = step.program.environment(step.build)
    statements = [s for la in step.entry.launches for s in la.statements if s.guard.evaluate(env)]
    alike = torch.ones(step.build["tokens"], dtype=torch.bool)
    for s in statements:
        if isinstance(s, OpStatement) and s.op == "route":
            a, b = (side[s.results[0]].ranks[0] for side in step.values.values())
            alike &= (a == b).all(dim=1)
    return torch.nonzero(alike).flatten()
