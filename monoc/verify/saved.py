"""The saved report: written after every cell, so that a long run can be stopped and taken up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monoc.verify.cells import Cell

__all__ = ["Key", "SavedReport", "key_of", "package_digest", "write_report"]

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


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Replaces the file as a whole, so that it is never half a report."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(report, indent=1) + "\n")
    draft.replace(path)


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
        """The good cells the file holds, by key. Raises ValueError if it is no report, or one of another package."""
        if self.path is None or not self.path.is_file():
            return {}
        try:
            before = json.loads(self.path.read_text())
            known = {_saved_key(c): c for c in before["cells"] if c["good"] and c["steps"] and c["seconds"]}
            same = before["package"] == self.package
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is no report of monoc verify; save to another file") from error
        if not same:
            raise ValueError(
                f"{self.path} has the results of another package than {self.spec}'s as it is now; "
                "save to another file, or leave out --resume to write over it"
            )
        return known

    def add(self, cell: dict[str, Any]) -> None:
        """One more cell."""
        self.cells.append(cell)
        if self.path is not None:
            write_report(self.path, self.whole())

    def whole(self) -> dict[str, Any]:
        """The report as JSON."""
        good = all(c["good"] for c in self.cells)
        return {"good": good, "spec": self.spec, "package": self.package, "cells": self.cells}
