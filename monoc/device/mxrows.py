"""MXFP8 rows in a region: how every stage that writes or reads quantised activations lays them out.

Row t holds ``k`` e4m3 values (four a word) and then their ``k / 32`` E8M0 codes (one a word), padded to a multiple of
four words so that a row starts on 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx

from monoc.device.frozen import Frozen
from monoc.device.numeric import clamp_e4m3, e4m3_pack

__all__ = ["MX_GROUP", "MxRows", "mx_words"]

MX_GROUP = 32  # values under one E8M0 code (OCP Microscaling Formats 1.0)


@dataclass(frozen=True)
class MxRows(Frozen):
    """Rows of ``k`` values (a multiple of 32); indices are the region's words."""

    k: int

    @property
    def values(self) -> int:
        """Words of values a row."""
        return self.k // 4

    @property
    def codes(self) -> int:
        """Words of codes a row."""
        return self.k // MX_GROUP

    @property
    def stride(self) -> int:
        """Words from one row to the next."""
        return -(-(self.values + self.codes) // 4) * 4

    def value(self, row: Any, word: Any) -> Any:
        """Where word ``word`` of row ``row``'s values is: values 4 word .. + 4."""
        return row * self.stride + word

    def code(self, row: Any, group: Any) -> Any:
        """Where the code of row ``row``'s values 32 group .. + 32 is."""
        return row * self.stride + (self.values + group)


def mx_words(values: list[Any], inverse: Any) -> list[fx.Int32]:
    """f32 ``values`` (a multiple of four) times ``inverse`` (2^(127 - code)), clamped to +-448, as e4m3, four a
    word.
    """
    q = [clamp_e4m3(v * inverse) for v in values]
    return [e4m3_pack(*q[i : i + 4]) for i in range(0, len(q), 4)]
