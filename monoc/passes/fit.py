"""fit: what the chosen stages need (:mod:`monoc.passes.needs`), held against every build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType

from monoc.passes.layer import FusedStage, Layer, PassError
from monoc.passes.names import PlanNames
from monoc.passes.needs import Need, needs
from monoc.schedule.bound import NameTakenError
from monoc.schedule.formula import Formula
from monoc.spec.buildexpr import BuildValue

__all__ = ["Fit"]


@dataclass(frozen=True)
class Fit:
    """Refuses sizes and targets that a chosen stage cannot take in some build it runs in."""

    name: str = "fit"

    def run(self, layer: Layer) -> Layer:
        program, names = layer.program, PlanNames(layer.program)
        constants = {**dict(names.constants), "GRID": program.target.ctas, "THREADS": program.target.threads}
        for own in ("GRID", "THREADS"):
            if own in dict(names.constants):
                raise NameTakenError("plan.py", own)
        properties = {n: _compiled(f) for n, f in (*names.properties, *layer.properties)}
        wanted = [
            (graph.launch, stage, need)
            for graph in layer.graphs
            for stage in layer.stages[graph.launch]
            for need in needs(stage.params)
        ]
        for build in program.space.builds():
            numbers = _Numbers(build.env, properties, constants)
            environment = program.environment(build)
            for launch, stage, need in wanted:
                if not stage.guard.evaluate(environment):
                    continue
                left, right = numbers.value(need.left), numbers.value(need.right)
                if not need.holds(left, right):
                    raise _refusal(layer, launch, stage, need, left, right)
        return layer


class _Numbers:
    """Values of formulas in one build: ``b`` of their ``b.name`` is this object."""

    def __init__(
        self, fields: Mapping[str, BuildValue], properties: Mapping[str, CodeType], constants: Mapping[str, int]
    ) -> None:
        self._fields, self._properties = dict(fields), properties
        self._names: dict[str, object] = {**_FUNCTIONS, **constants, "__builtins__": {}, "b": self}

    def __getattr__(self, name: str) -> BuildValue:
        if name not in self._fields:
            if name not in self._properties:
                raise AttributeError(name)
            self._fields[name] = eval(self._properties[name], self._names)
        return self._fields[name]

    def value(self, text: Formula) -> int:
        if text.isdigit():
            return int(text)
        return int(eval(_compiled(text), self._names))


_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "cdiv": lambda n, m: -(-n // m),
    "round_up": lambda n, m: -(-n // m) * m,
    "min": min,
    "max": max,
}


@cache
def _compiled(text: Formula) -> CodeType:
    """A formula's code: its syntax was checked against the whitelist when it was made."""
    return compile(text, "<formula>", "eval")


def _refusal(layer: Layer, launch: str, stage: FusedStage, need: Need, left: int, right: int) -> PassError:
    graph = next(g for g in layer.graphs if g.launch == launch)
    op = next(o for o in graph.operations if o.name == stage.operations[0])
    return PassError(
        f"{op.name} ({op.kind}): {need.what}, {left}, has to be {need.words} {right}: {need.why}", op.span, need.help
    )
