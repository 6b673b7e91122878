"""docs/language.md names every operation with its operands, every function and every code; its example is good."""

from __future__ import annotations

import re
from pathlib import Path

from monoc.diagnostics import Code
from monoc.spec.load import load_program
from monoc.spec.optable import OPS
from monoc.spec.scalars import SCALAR_FUNCTIONS

TEXT = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")


def test_operations() -> None:
    for op in OPS.values():
        operands = ", ".join(o.name + "?" * o.optional + "!" * o.written for o in op.operands)
        attributes = "".join(f", {a.name}=" for a in op.attributes)
        assert f"| `{op.name}({operands}{attributes})` |" in TEXT
        assert op.doc in TEXT


def test_functions_and_codes() -> None:
    for name in SCALAR_FUNCTIONS:
        assert f"`{name}`" in TEXT or f"`{name}(" in TEXT, name
    for code in Code:
        assert f"| `{code}` |" in TEXT


def test_example(tmp_path: Path) -> None:
    example = next(block for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.S) if block.startswith("layer:"))
    (tmp_path / "small.yaml").write_text(example)
    assert load_program(str(tmp_path / "small.yaml")).name == "small"
