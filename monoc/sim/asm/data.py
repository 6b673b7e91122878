"""Data sections of the assembly text: constants a kernel reads through their symbol."""

from __future__ import annotations

import struct

from monoc.sim.asm.module import DataSymbol
from monoc.sim.asm.operands import split_top

__all__ = ["DataBuilder"]

_WIDTHS = {
    ".byte": 1,
    ".short": 2,
    ".2byte": 2,
    ".hword": 2,
    ".long": 4,
    ".4byte": 4,
    ".int": 4,
    ".quad": 8,
    ".8byte": 8,
}
_IGNORED = frozenset(
    [".size", ".type", ".globl", ".weak", ".hidden", ".protected", ".ident", ".addrsig", ".addrsig_sym", ".local",
     ".amdhsa_code_object_version", ".amdgpu_hsa_kernel", ".previous", ".popsection", ".pushsection", ".cfi_sections",
     ".p2alignl", ".fill", ".uleb128", ".sleb128"]
)  # fmt: skip


_MOST = 1 << 28  # bytes of one object


class DataBuilder:
    """Collects labelled bytes; debug sections' content is collected under their labels and never used."""

    def __init__(self) -> None:
        self._content: dict[str, bytearray] = {}
        self._align: dict[str, int] = {}
        self._current: bytearray | None = None
        self._next_align = 4

    def label(self, name: str) -> None:
        """Start the object `name`."""
        self._current = self._content.setdefault(name, bytearray())
        self._align[name] = self._next_align
        self._next_align = 4

    def directive(self, name: str, rest: str) -> None:
        """Append what one directive emits; raises ValueError for a malformed one."""
        if name in (".p2align", ".align"):
            power = int(rest.split(",")[0], 0)
            if not 0 <= power <= (16 if name == ".p2align" else 1 << 16):
                raise ValueError(f"alignment {power}")
            self._next_align = max(4, 1 << power if name == ".p2align" else power)
            return
        if self._current is None or name in _IGNORED:
            return
        if name in _WIDTHS:
            for part in split_top(rest):
                self._emit_number(part, _WIDTHS[name])
        elif name in (".zero", ".skip", ".space"):
            words = split_top(rest)
            fill = int(words[1], 0) if len(words) > 1 else 0
            count = int(words[0], 0)
            if not 0 <= count <= _MOST:
                raise ValueError(f"{count} bytes are no size of a data object")
            self._current += bytes([fill & 0xFF]) * count
        elif name in (".ascii", ".asciz", ".string"):
            text = rest.strip()[1:-1].encode().decode("unicode_escape").encode("latin-1")
            self._current += text + (b"" if name == ".ascii" else b"\0")

    def _emit_number(self, text: str, width: int) -> None:
        assert self._current is not None
        try:
            value = int(text, 0)
        except ValueError:
            value = 0  # a symbol difference of a debug section; kernels' constants are plain numbers
        self._current += struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)[:width]

    def symbols(self) -> dict[str, DataSymbol]:
        """The collected objects by name."""
        return {
            name: DataSymbol(name, bytes(content), self._align[name])
            for name, content in self._content.items()
            if content
        }
