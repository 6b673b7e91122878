"""When two jit functions are the same build: each rank's runner makes its own, one trace serves them all.

A jit function is compared by what its trace can depend on: its code, its defaults, and the values its closures hold,
looked into as far as their kind is known (numbers, texts, containers, frozen dataclasses, functions, kernels, FlyDSL
structs). Everything else, module globals included, counts as equal only to itself: a comparison can miss a match, but
not invent one.
"""

import dataclasses
import enum
import types
from collections.abc import Hashable
from typing import Any

from flydsl.compiler.jit_function import JitFunction
from flydsl.compiler.kernel_function import KernelFunction

__all__ = ["build_key"]

_ATOMS = (type(None), bool, int, float, complex, str, bytes)


class _Same:
    """Equal to a wrapper of the same object only; keeps it alive, so that its identity stays its own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class _Fingerprint:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def of(self, value: Any) -> Hashable:
        """A hashable stand-in for `value`."""
        if isinstance(value, enum.Enum):
            return _Same(value)
        if isinstance(value, _ATOMS):
            return (type(value).__name__, value)
        if id(value) in self._seen:
            return ("seen", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, *map(self.of, value))
        if isinstance(value, dict):
            return ("dict", *((self.of(k), self.of(v)) for k, v in value.items()))
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, JitFunction):
            return ("jit", self.of(value.func), repr(sorted(value.compile_hints.items())))
        if isinstance(value, KernelFunction):
            return ("kernel", self.of(value._func), value._name, self.of(value._known_block_size))
        if isinstance(value, type) and "__dsl_field_defs__" in vars(value):
            kind, fields = vars(value)["__dsl_composite_kind__"], vars(value)["__dsl_field_defs__"]
            return ("struct", value.__name__, _Same(kind), *((f.name, self.of(f.type_spec)) for f in fields))
        parameters = getattr(type(value), "__dataclass_params__", None)
        if parameters is not None and parameters.frozen:
            values = (self.of(getattr(value, field.name)) for field in dataclasses.fields(value))
            return ("dataclass", _Same(type(value)), *values)
        return _Same(value)

    def _function(self, function: types.FunctionType) -> Hashable:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.of(cell.cell_contents))
            except ValueError:  # a name not bound yet
                cells.append(("empty",))
        return (
            "function",
            _Same(function.__globals__),  # the module, not its name: packages are emitted again under the same one
            function.__code__,
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            *cells,
        )


def build_key(function: JitFunction) -> Hashable:
    """Equal for jit functions whose traces are the same for the same arguments."""
    return _Fingerprint().of(function)
