"""Specs of the tests: the committed ones, and variations of the small one."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from monoc.spec.load import load_program
from monoc.spec.program import Program

__all__ = ["ROOT", "program", "variation"]

ROOT = Path(__file__).parents[2] / "layer_specs"


@cache
def program(name: str) -> Program:
    """The committed spec ``name``."""
    return load_program(str(ROOT / f"{name}.yaml"))


def variation(folder: Path, *edits: tuple[str, str], program_edits: tuple[tuple[str, str], ...] = ()) -> Program:
    """tiny.yaml and its program with texts replaced, read from ``folder``."""
    spec = (ROOT / "tiny.yaml").read_text()
    for old, new in edits:
        assert old in spec, old
        spec = spec.replace(old, new)
    (folder / "programs").mkdir(exist_ok=True)
    shutil.copytree(ROOT / "docking", folder / "docking", dirs_exist_ok=True)
    texts = {path.name: path.read_text() for path in (ROOT / "programs").iterdir()}
    for old, new in program_edits:
        assert any(old in text for text in texts.values()), old
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
        (folder / "programs" / name).write_text(text)
    (folder / "spec.yaml").write_text(spec)
    return load_program(str(folder / "spec.yaml"))
