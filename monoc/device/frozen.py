"""Objects that exist while a kernel is traced and are never changed by it."""

from __future__ import annotations

from typing import Any

__all__ = ["Frozen"]


class Frozen:
    """An immutable trace-time object whose methods may be called inside a traced loop or branch.

    FlyDSL carries every object whose method a traced region calls through that region as a list of IR values; this one
    has none to carry (``flydsl.compiler.protocol``): the values it holds were made before the region and dominate it.
    """

    def __extract_to_ir_values__(self) -> list[Any]:
        return []

    @classmethod
    def __construct_from_ir_values__(cls, values: list[Any], exemplar: Any = None) -> Any:
        return exemplar
