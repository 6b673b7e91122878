"""How a stage's slots find their operands: element accesses of the spec against what a thread has loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monoc.expr.ir import IndexConst, IndexSum, IndexTerm, IndexVar
from monoc.expr.slot import Slot

__all__ = ["Operand", "SlotOperandError", "index_text", "slot_call"]


class SlotOperandError(ValueError):
    """A slot reads an element its skeleton does not have at hand."""


@dataclass(frozen=True)
class Operand:
    """Values a thread holds in the Python list ``variable``.

    ``axes``: the access's index positions that select the list element, outermost first, as (position, extent
    formula); the other positions are those the thread itself stands at (its token, its column). ``element``: what
    follows the list element, e.g. ``[v]``.
    """

    tensor: str
    variable: str
    axes: tuple[tuple[int, str], ...] = ()
    element: str = ""


def index_text(term: IndexTerm, variables: Mapping[str, str]) -> str:
    """An index term as Python; ``variables``: the template's name of each index variable. Raises ``KeyError``."""
    match term:
        case IndexConst(value=value):
            return str(value)
        case IndexVar(name=name):
            return variables[name]
        case IndexSum(terms=terms, offset=offset):
            named = [(variables[name], factor) for name, factor in terms]
            parts = [name if factor == 1 else f"{factor} * {name}" for name, factor in named]
            return " + ".join([*parts, *([str(offset)] if offset else [])])
    raise TypeError(f"not an index: {term!r}")


def _joined(outer: str, extent: str, inner: str) -> str:
    """``outer * extent + inner``, where ``outer`` is 0 or 1 without the needless."""
    if outer in ("", "0"):
        return inner
    return f"{extent if outer == '1' else f'{outer} * {extent}'} + {inner}"


def slot_call(slot: Slot, operands: tuple[Operand, ...], variables: Mapping[str, str]) -> str:
    """The call of ``slot`` with every input found among ``operands``.

    ``variables``: the template's names of the index variables that are not the thread's own position. Raises
    :class:`SlotOperandError` naming the slot and the input it cannot serve.
    """
    known = {o.tensor: o for o in operands}
    arguments = []
    for given in slot.inputs:
        if given.access is None or given.access.tensor not in known:
            have = ", ".join(sorted(known)) or "nothing"
            raise SlotOperandError(f"slot {slot.name}: input {given.name} is no element of {have}")
        operand = known[given.access.tensor]
        index = ""
        for position, extent in operand.axes:
            try:
                text = index_text(given.access.index[position], variables)
            except KeyError as error:
                raise SlotOperandError(
                    f"slot {slot.name}: input {given.name} indexes {given.access.tensor} by unknown {error}"
                ) from None
            index = _joined(index, extent, text)
        arguments.append(f"{operand.variable}{f'[{index}]' if operand.axes else ''}{operand.element}")
    return f"{slot.name}({', '.join(arguments)})"
