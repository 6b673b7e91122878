"""What is verified: kinds of a layer, widths, ranks, steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from monoc.spec.program import Build, Entry, HostCall, Program

__all__ = ["Cell", "Kind", "kinds", "mixes", "step_widths"]


@dataclass(frozen=True)
class Kind:
    """One way to run an entry: the build parameters but tokens and tp. ``name``: what differs from the usual way."""

    name: str
    entry: str
    variant: str
    fixed: tuple[tuple[str, int], ...]

    def build(self, program: Program, tokens: int, tp: int) -> Build | None:
        """The build of so many tokens and ranks, None if the spec has none."""
        for b in program.space.builds(tokens=tokens, tp=tp, **dict(self.fixed)):
            if b.variant == self.variant:
                return b
        return None


@dataclass(frozen=True)
class Cell:
    """One run: steps of ``widths`` rows one after the other on ``tp`` ranks, inputs by ``seed`` and ``case``.

    ``barriers``: the all-barrier form. ``order``: the seed of the simulator's scheduling. ``turns``: other kinds of the
    same entry that take turns with ``kind`` from step to step, on the same runners. ``traffic``: whether the bytes of
    weights are counted."""

    kind: Kind
    widths: tuple[int, ...]
    tp: int
    seed: int = 0
    barriers: bool = False
    case: str = "usual"
    order: int = 0
    turns: tuple[Kind, ...] = ()
    traffic: bool = False

    def builds(self, program: Program) -> list[Build]:
        """Of the steps in order. Raises LookupError if the spec has none of a step."""
        found = []
        taking = (self.kind, *self.turns)
        for k, width in enumerate(self.widths):
            kind = taking[k % len(taking)]
            build = kind.build(program, width, self.tp)
            if build is None:
                raise LookupError(f"{self.name}: the spec has no build of {width} rows of {kind.name}")
            found.append(build)
        return found

    @property
    def name(self) -> str:
        """Short, unique within a matrix."""
        parts = [
            "+".join(k.name for k in (self.kind, *self.turns)),
            f"tokens {self.widths[0]}",
            f"tp {self.tp}",
            "barriers" if self.barriers else "",
        ]
        return " ".join([p for p in parts if p] + ([] if self.case == "usual" else [self.case]))


def kinds(program: Program, runner: Any) -> Iterator[Kind]:
    """Every value of every build parameter at least once: each combination of those with several values that are no
    switch, then each switch turned the other way. ``runner``: the emitted class, whose keywords say the usual way."""
    for entry in program.entries:
        usual, switches = _switches(program, entry, runner)
        for variant in program.space.variants:
            first = variant is program.space.variants[0]
            seen: set[tuple[tuple[str, int], ...]] = set()
            varied = [(n, v) for n, v in variant.values if len(v) > 1 and n in _used(program, entry)]
            for combo in _product(varied):
                for turned in ({}, *({s: 1 - usual[s]} for s in switches)):
                    fixed = tuple({**usual, **combo, **turned}.items())
                    kind = Kind(
                        _name(program, entry, variant.name, first, combo, turned), entry.name, variant.name, fixed
                    )
                    served = any(b.variant == variant.name for b in program.space.builds(**dict(fixed)))
                    if served and fixed not in seen and (first or not turned):
                        seen.add(fixed)
                        yield kind


def mixes(program: Program, chosen: Iterable[Kind]) -> list[tuple[Kind, ...]]:
    """``chosen`` in groups whose kinds the same runners serve: of one entry, with the same options."""
    found: dict[tuple[object, ...], list[Kind]] = {}
    for kind in chosen:
        build = next(b for b in program.space.builds(**dict(kind.fixed)) if b.variant == kind.variant)
        options = tuple(build[o.sets] for o in program.runner.options)
        found.setdefault((kind.entry, *options), []).append(kind)
    return [tuple(group) for group in found.values()]


def _used(program: Program, entry: Entry) -> frozenset[str]:
    """Names the entry's guards and sizes mention."""
    found: set[str] = set()
    for launch in entry.launches:
        for s in launch.statements:
            found |= s.guard.names()
            for a in getattr(s, "attributes", ()):
                if hasattr(a.value, "names"):
                    found |= a.value.names()
    for step in entry.steps:
        if isinstance(step, HostCall):
            found |= step.guard.names()
    for name in entry.arguments:
        found |= program.tensor[name].guard.names()
        found |= {n for e in program.tensor[name].shape if e.at_most and e.size is not None for n in e.size.names()}
    return frozenset(found)


def _switches(program: Program, entry: Entry, runner: Any) -> tuple[dict[str, int], list[str]]:
    used = _used(program, entry)
    signature = inspect.signature(getattr(runner, entry.name)).parameters
    usual = {}
    for p in program.space.params:
        if p.boolean:
            default = signature[p.name].default if p.name in signature else False
            usual[p.name] = int(bool(default))
    return usual, [n for n in usual if n in used]


def _product(varied: list[tuple[str, tuple[int, ...]]]) -> Iterator[dict[str, int]]:
    if not varied:
        yield {}
        return
    (name, values), *rest = varied
    for value in values:
        for more in _product(rest):
            yield {name: value, **more}


def _name(
    program: Program, entry: Entry, variant: str, first: bool, combo: Mapping[str, int], turned: Mapping[str, int]
) -> str:
    parts = [] if entry is program.entries[0] else [entry.name]
    parts += [] if first else [variant]
    parts += [f"{n}{v}" for n, v in combo.items()]
    parts += [n if v else f"no-{n}" for n, v in turned.items()]
    return "-".join(parts) or entry.name


def step_widths(program: Program, tokens: int, steps: int) -> tuple[int, ...]:
    """Widths of ``steps`` steps of a cell: ``tokens`` and a neighbour in turn, so that both scratch buffers and both
    halves of the peer buffer are met again with other data in between."""
    widths = next(p.values for p in program.space.params if p.name == "tokens")
    other = max((w for w in widths if w < tokens), default=min((w for w in widths if w != tokens), default=tokens))
    return tuple(tokens if k % 3 != 1 else other for k in range(steps))
