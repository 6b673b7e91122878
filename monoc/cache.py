"""Where monoc keeps what it can work out again: proofs, parser tables, compiled templates."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["cache_directory", "writable_cache"]


def cache_directory(kind: str) -> Path:
    """The folder of one kind of cached things, under ``$XDG_CACHE_HOME`` or ``~/.cache``; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "monoc" / kind


def writable_cache(kind: str) -> Path | None:
    """:func:`cache_directory`, made; None where nothing can be written there (a read-only home)."""
    folder = cache_directory(kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None
