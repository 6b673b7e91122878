"""MXFP8 rows in a region, as formulas; ``monoc/device/mxrows.py`` is the layout itself."""

from __future__ import annotations

__all__ = ["mx_row_words"]


def mx_row_words(k: str) -> str:
    """Words of one row of ``k`` values: a word a four values, a word a code, padded to a multiple of four."""
    return f"round_up(({k}) // 4 + ({k}) // 32, 4)"
