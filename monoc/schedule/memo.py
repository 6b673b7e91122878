"""Evaluating a plan's functions once for all builds they cannot tell apart.

A function of a build reads some of its fields. Another build with the same values in those fields takes the same path
through the function and gets the same result, whatever its other fields are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["ByFields"]

T = TypeVar("T")


class _Reader:
    """A build that notes which of its fields and properties are read."""

    def __init__(self, build: Any) -> None:
        self._build = build
        self.read: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._build, name)
        self.read[name] = value
        return value


class ByFields(Generic[T]):
    """``function`` of a build, remembered by the values of the fields it read."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._known: dict[tuple[str, ...], dict[tuple[Any, ...], T]] = {}

    def __call__(self, build: Any) -> tuple[T, bool]:
        """(the result, whether it is a new one). Everything the function will ever read, it must read in the call."""
        for names, results in self._known.items():
            values = tuple(getattr(build, name) for name in names)
            if values in results:
                return results[values], False
        reader = _Reader(build)
        result = self._function(reader)
        names = tuple(reader.read)
        self._known.setdefault(names, {})[tuple(reader.read.values())] = result
        return result, True
