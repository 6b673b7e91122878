"""One structured operation with the operands of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monoc.reference.arithmetic import Arithmetic
from monoc.spec.buildexpr import BuildExpr, BuildValue
from monoc.spec.program import OpStatement, ScalarFunction

__all__ = ["Call"]


@dataclass(frozen=True)
class Call:
    """``values``: the operands given in this build, by parameter; ``env``: build parameters and dimensions; ``stated``:
    the results of stated mode, when this is exact mode."""

    statement: OpStatement
    values: Mapping[str, Any]
    env: Mapping[str, BuildValue]
    arithmetic: Arithmetic
    stated: tuple[Any, ...] | None = None

    def size(self, name: str) -> int:
        """An integer attribute."""
        value = self.statement.attribute(name)
        assert isinstance(value, BuildExpr), (name, value)
        return int(value.evaluate(self.env))

    def sizes(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, None where it was left out."""
        value = next((a.value for a in self.statement.attributes if a.name == name), None)
        if not isinstance(value, tuple):
            return None
        return tuple(int(v.evaluate(self.env)) for v in value)

    def real(self, name: str) -> float:
        """A constant."""
        value = self.statement.attribute(name)
        assert isinstance(value, float), (name, value)
        return value

    def choice(self, name: str) -> str:
        """A word."""
        value = self.statement.attribute(name)
        assert isinstance(value, str), (name, value)
        return value

    def function(self, name: str) -> ScalarFunction:
        """A ``fn`` of the spec."""
        value = self.statement.attribute(name)
        assert isinstance(value, ScalarFunction), (name, value)
        return value
