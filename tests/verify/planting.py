"""Faults put into a copy of an emitted package."""

import re
import shutil
from pathlib import Path


def planted(folder: Path, to: Path, file: str, pattern: str, replacement: str) -> Path:
    """A copy of the package with the first match of ``pattern`` in ``file`` replaced."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("__pycache__"))
    text = (to / file).read_text()
    changed, count = re.subn(pattern, replacement, text, count=1)
    assert count == 1, f"{pattern} is not in {file}"
    (to / file).write_text(changed)
    return to
