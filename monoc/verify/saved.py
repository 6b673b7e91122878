"""The saved report: written after every cell, so that a long run can be stopped and taken up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monoc.verify.cells import Cell

__all__ = ["Key", "SavedReport", "key_of", "package_digest"]

Key = tuple[Any, ...]


def package_digest(folder: Path) -> str:
    """Of every Python file of a package: a cell's result is that of these."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def key_of(cell: Cell, orders: int) -> Key:
    """What makes a cell's result: its name does not say seed, steps and schedules."""
    return (cell.name, tuple(cell.widths), cell.seed, orders, cell.traffic)


def _saved_key(cell: Mapping[str, Any]) -> Key:
    return (cell["cell"], tuple(cell["widths"]), cell["seed"], cell["orders"], cell["traffic"])


@dataclass
class SavedReport:
    """A report in the making: ``cells`` as report.py gives them. ``path``: where it is kept, None if nowhere."""

    spec: str
    package: str
    path: Path | None = None
    cells: list[dict[str, Any]] = field(default_factory=list)

    def resume(self) -> dict[Key, dict[str, Any]]:
        """The good cells a file of the same package holds, by key. Raises ValueError if it is no report."""
        if self.path is None or not self.path.is_file():
            return {}
        try:
            before = json.loads(self.path.read_text())
            known = {_saved_key(c): c for c in before["cells"] if c["good"]}
            same = before["package"] == self.package
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is no report of monoc verify; save to another file") from error
        return known if same else {}

    def add(self, cell: dict[str, Any]) -> None:
        """One more cell; the file is replaced as a whole, so that it is never half a report."""
        self.cells.append(cell)
        if self.path is not None:
            draft = self.path.with_name(self.path.name + ".part")
            draft.write_text(json.dumps(self.whole(), indent=1) + "\n")
            draft.replace(self.path)

    def whole(self) -> dict[str, Any]:
        """The report as JSON."""
        good = all(c["good"] for c in self.cells)
        return {"good": good, "spec": self.spec, "package": self.package, "cells": self.cells}
