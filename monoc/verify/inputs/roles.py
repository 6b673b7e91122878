"""What the program uses each tensor for: the rest of the inputs follows from that, not from names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monoc.spec.program import Entry, Launch, OpStatement, Program

__all__ = ["Roles", "op_statements"]


def op_statements(program: Program, entry: Entry | None = None) -> Iterator[OpStatement]:
    """Every structured operation of an entry, or of the program."""
    for e in program.entries if entry is None else (entry,):
        for step in e.steps:
            if isinstance(step, Launch):
                yield from (s for s in step.statements if isinstance(s, OpStatement))


@dataclass(frozen=True)
class Roles:
    """Tensors by what reads them: ``("rope", "table")`` -> the tensors some ``rope`` takes as its table."""

    uses: dict[tuple[str, str], tuple[str, ...]]

    @classmethod
    def of(cls, program: Program) -> Roles:
        """The roles of every tensor of ``program``."""
        found: dict[tuple[str, str], dict[str, None]] = {}
        for s in op_statements(program):
            for o in s.arguments:
                if o.value in program.tensor:
                    found.setdefault((s.op, o.param), {})[o.value] = None
        return cls({k: tuple(v) for k, v in found.items()})

    def tensors(self, op: str, param: str) -> tuple[str, ...]:
        """The tensors that operand ``param`` of some ``op`` is, in writing order."""
        return self.uses.get((op, param), ())

    def one(self, op: str, param: str) -> str | None:
        """The first of them."""
        return next(iter(self.tensors(op, param)), None)
