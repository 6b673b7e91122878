"""The emitted docking as a module, its package's other files replaced by ones that only record."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from monoc.emit.docking import emit_docking
from monoc.passes.names import PlanNames
from monoc.spec.docking import Docking
from monoc.spec.load import load_program
from monoc.spec.program import Program, WeightClass

__all__ = ["Docked", "Recorded"]


@dataclass
class Recorded:
    """What reached the fake runner: its constructions, and the calls of its methods."""

    runners: list[Any] = field(default_factory=list)
    calls: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list)
    checks: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class Docked:
    """``module``: the emitted mono_decode; ``runner``: the fake runner module beside it."""

    program: Program
    docking: Docking
    text: str
    module: Any
    runner: Any
    peer: Any
    recorded: Recorded

    @classmethod
    def load(cls, spec: Path) -> Docked:
        program = load_program(str(spec))
        assert program.docking is not None
        source = emit_docking(program)
        name = f"docked_{program.name}"
        recorded = Recorded()
        parts = {part: ModuleType(f"{name}.{part}") for part in ("plan", "runner", "peer", "mono_decode")}
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
        sys.modules.update({module.__name__: module for module in parts.values()})
        vars(parts["plan"]).update(_plan(program))
        vars(parts["runner"]).update(_runner(program, recorded))
        vars(parts["peer"]).update(default_heap=lambda: None)
        module = parts["mono_decode"]
        module.__package__ = name
        exec(compile(source, f"{name}/mono_decode.py", "exec"), vars(module))
        return cls(program, program.docking, source, module, parts["runner"], parts["peer"], recorded)

    def restart(self) -> None:
        """A fresh process: no runner made yet, nothing recorded."""
        self.module._runner.cache_clear()
        self.module._logger.cache_clear()
        for kept in vars(self.recorded).values():
            kept.clear()

    def create(self, layer: Any, config: Any) -> Any:
        return getattr(self.module, self.docking.class_name).create(layer, config)


def _plan(program: Program) -> dict[str, Any]:
    return {
        **dict(PlanNames(program).constants),
        "GRID": program.target.ctas,
        "TARGET": program.target.arch,
        "cdiv": lambda a, b: -(-a // b),
        "round_up": lambda a, b: -(-a // b) * b,
    }


def _runner(program: Program, recorded: Recorded) -> dict[str, Any]:
    class Runner:
        def __init__(self, tp: int, rank: int, group: Any, device: Any, **options: int) -> None:
            self.given = SimpleNamespace(tp=tp, rank=rank, group=group, device=device, options=options)
            recorded.runners.append(self)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("first_"):
                tensor = next(t for t, _ in program.runner.first if name == f"first_{t}")
                return lambda rows: (tensor, rows)
            entry = next(e for e in program.entries if e.name == name)
            outputs = tuple(f"{o}!" for o in entry.outputs)

            def call(weights: Any, **given: Any) -> tuple[str, ...]:
                recorded.calls.append((name, weights, given))
                return outputs

            return call

    def weights(c: WeightClass) -> type:
        def init(self: Any, **given: Any) -> None:
            assert set(given) == {f.name for f in c.fields}
            vars(self).update(given)

        def check(self: Any, *arguments: Any, **keywords: Any) -> None:
            recorded.checks.append((c.name, arguments, keywords))

        return type(c.name, (), {"__init__": init, "check": check})

    classes = {c.name: weights(c) for c in program.runner.weights}
    dims = type("Dims", (), {"__init__": lambda self, tp: setattr(self, "tp", tp)})
    return {program.runner.class_name: Runner, "BLOCKS": program.target.ctas, "Dims": dims, **classes}
