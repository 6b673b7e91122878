"""An emitted package on disk, loaded to compile its launches."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx

from monoc.build.isa import IsaResult, compile_isa

__all__ = ["EmittedPackage", "PackageError"]


class PackageError(Exception):
    """The folder holds no package monoc emitted."""


@dataclass(frozen=True)
class EmittedPackage:
    """The package in ``folder``, imported under a name of its own."""

    folder: Path
    module: ModuleType

    @classmethod
    def load(cls, folder: Path) -> EmittedPackage:
        """Raises :class:`PackageError` if ``folder`` is no emitted package."""
        for needed in ("__init__.py", "plan.py", "runner.py"):
            if not (folder / needed).is_file():
                raise PackageError(f"{folder} is no emitted package: it has no {needed}; run `monoc compile` first")
        name = f"monoc_package_{folder.resolve().name}_{abs(hash(str(folder.resolve()))):x}"
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return cls(folder, module)

    def part(self, name: str) -> ModuleType:
        """Module ``name`` of the package."""
        return importlib.import_module(f"{self.module.__name__}.{name}")

    @property
    def plan(self) -> Any:
        return self.part("plan")

    def kernels(self, **fixed: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
        """Every distinct (launch, build) whose parameters lie in ``fixed`` (name -> values; others: all)."""
        plan, seen = self.plan, set()
        for b in plan.builds():
            if any(getattr(b, name) not in values for name, values in fixed.items()):
                continue
            for name, launch in plan.LAUNCHES.items():
                if launch.runs(b) and (symbol := plan.symbol(b, name)) not in seen:
                    seen.add(symbol)
                    yield name, b

    def label(self, launch: str, b: Any) -> str:
        """What tells build ``b`` of a launch from its others: ``target tokens 8 tp 4 ratio 2``."""
        varies = self.plan.VARIANTS[b.variant]
        names = [n for n in self.plan.PARAMETERS[launch] if len(varies[n]) > 1]
        parts = [f"{n} {getattr(b, n)}" for n in names if not isinstance(getattr(b, n), bool)]
        parts += [n if getattr(b, n) else f"no {n}" for n in names if isinstance(getattr(b, n), bool)]
        return " ".join([b.variant, *parts, *(f for f in self.plan.FLAGS if getattr(b, f))])

    def compile(self, launch: str, b: Any, only: tuple[str, ...] | None = None, debug: bool = False) -> IsaResult:
        """Compile a launch of build ``b`` (``only``: these stages of it) to assembly.

        Raises :class:`~monoc.build.isa.CompileError`.
        """
        module = self.part(launch)
        build = getattr(module, f"build_{launch}")(b, only)
        null = flyc.from_c_void_p(fx.Int32, None)
        values = [null if name == "epoch" else 0 for name in module.ARGUMENTS]
        return compile_isa(build, [*values, fx.Stream(None)], self.plan.TARGET, debug=debug)
