"""Dimensions, guards and values of a program as the names of ``plan.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from monoc.passes.slots import identifier
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE
from monoc.spec.buildexpr import BuildCall, BuildExpr
from monoc.spec.program import Program

__all__ = ["PlanNames"]


@dataclass(frozen=True)
class PlanNames:
    """Prints expressions of ``program`` in plan.py's names: ``HIDDEN`` for a dimension that is the same in every
    build, ``b.heads`` for one that is not and for build parameters."""

    program: Program

    @cached_property
    def _fixed(self) -> Mapping[str, int]:
        """The dimensions no build parameter reaches."""
        env: dict[str, int] = {}
        for dim in self.program.dims:
            if dim.expr.names() <= env.keys():
                env[dim.name] = dim.expr.evaluate(env)
        return env

    @cached_property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """The constants of plan.py."""
        return tuple((name.upper(), value) for name, value in self._fixed.items())

    @cached_property
    def properties(self) -> tuple[tuple[str, Formula], ...]:
        """The properties of ``Plan``: dimensions that depend on the build."""
        return tuple((d.name, self.formula(d.expr)) for d in self.program.dims if d.name not in self._fixed)

    def name(self, name: str) -> str:
        """A dimension or build parameter."""
        return name.upper() if name in self._fixed else f"b.{name}"

    def text(self, expr: BuildExpr) -> str:
        """``expr``, safe inside any other expression."""
        printed = expr.text(self.name, python=True)
        simple = printed.replace(".", "").isidentifier() or printed.isdigit()
        return printed if simple or isinstance(expr, BuildCall) else f"({printed})"

    def formula(self, expr: BuildExpr) -> Formula:
        return formula(expr.text(self.name, python=True))

    def guard(self, expr: BuildExpr) -> Formula:
        """A guard as a formula; :data:`~monoc.schedule.model.TRUE` if it always holds."""
        printed = expr.text(self.name, python=True)
        return TRUE if printed in ("1", "True") else formula(printed)

    def number(self, expr: BuildExpr) -> int | None:
        """The value of ``expr`` if it is the same in every build."""
        return expr.evaluate(self._fixed) if expr.names() <= self._fixed.keys() else None

    @staticmethod
    def argument(value: str) -> str:
        """The kernel argument of a value in memory."""
        return identifier(value)
