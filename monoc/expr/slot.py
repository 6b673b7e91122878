"""Slots: the scalar programs a skeleton calls, each emitted as one small function."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.ir import Access, Expr

__all__ = ["Slot", "SlotInput"]


@dataclass(frozen=True)
class SlotInput:
    """A scalar fp32 parameter ``name`` of a slot; ``access``: the element it is, if the skeleton is to load it."""

    name: str
    access: Access | None = None


@dataclass(frozen=True)
class Slot:
    """``def name(inputs): lets; return results``, all in :class:`~monoc.expr.ir.Local` names and constants.

    ``statements``: the spec statements it was written as, for its docstring.
    """

    name: str
    inputs: tuple[SlotInput, ...]
    lets: tuple[tuple[str, Expr], ...]
    results: tuple[Expr, ...]
    statements: tuple[str, ...]
