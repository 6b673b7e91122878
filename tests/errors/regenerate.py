"""Write the goldens of the bad specs beside this file anew. Read the diff before committing it."""

from __future__ import annotations

import os
from pathlib import Path

from monoc.diagnostics import CompileErrors
from monoc.spec.load import load_program


def main() -> None:
    here = Path(__file__).parent
    os.chdir(here)
    for spec in sorted(here.glob("*.yaml")):
        try:
            load_program(spec.name)
        except CompileErrors as e:
            spec.with_suffix(".stderr").write_text(f"{e}\n", encoding="utf-8")
        else:
            print(f"{spec.name}: no error")


if __name__ == "__main__":
    main()
