"""What a parsed assembly text consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monoc.sim.asm.parse import Instruction

__all__ = ["Argument", "AsmModule", "DataSymbol", "Kernel"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A kernel argument of the code object metadata: byte offset and size in the kernarg segment."""

    offset: int
    size: int
    kind: str
    name: str = ""

    @property
    def hidden(self) -> bool:
        """True for the arguments the runtime fills (`hidden_*`)."""
        return self.kind.startswith("hidden_")


@dataclass(frozen=True, slots=True)
class DataSymbol:
    """A constant object of a data section: its bytes, as emitted."""

    name: str
    content: bytes
    align: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: instructions, labels (index of the next instruction) and its descriptor.

    `descriptor` holds the `.amdhsa_*` directives by name without the prefix; `metadata` the scalars of the
    kernel's entry in `amdhsa.kernels` by key.
    """

    name: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    descriptor: Mapping[str, int]
    arguments: tuple[Argument, ...]
    metadata: Mapping[str, int]
    workgroup: tuple[int, int, int] | None

    @property
    def lds_bytes(self) -> int:
        """Static LDS of a CTA in bytes."""
        return self.descriptor.get("group_segment_fixed_size", 0)

    @property
    def scratch_bytes(self) -> int:
        """Private (scratch) memory of one lane in bytes."""
        return self.descriptor.get("private_segment_fixed_size", 0)

    @property
    def explicit_arguments(self) -> tuple[Argument, ...]:
        """The arguments a caller passes, in order."""
        return tuple(argument for argument in self.arguments if not argument.hidden)


@dataclass(frozen=True, slots=True)
class AsmModule:
    """A whole `.s` text: `files` maps the numbers of `.file` to paths."""

    path: str
    target: str
    kernels: Mapping[str, Kernel]
    files: Mapping[int, str]
    data: Mapping[str, DataSymbol]
