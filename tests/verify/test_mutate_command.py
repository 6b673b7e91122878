"""`monoc mutate`: bad use is said before any work."""

import subprocess
import sys
from pathlib import Path

import pytest

from monoc.verify.mutants.outcome import kill_rate

SPEC = str(Path(__file__).parents[2] / "layer_specs" / "tiny.yaml")


def test_no_mutant_is_no_kill() -> None:
    assert kill_rate([]) == 0.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["none.yaml"], "cannot read `none.yaml`"),
        ([SPEC, "--operator", "wrong rounding,typo"], "--operator 'typo': there is hand-off dropped"),
        ([SPEC, "--save", "none/report.json"], "--save none/report.json: no file can be written there"),
        ([SPEC, "--out", "none"], "none"),
        ([SPEC, SPEC, "--out", "none"], "--out names the package of one spec"),
    ],
)
def test_bad_use(options: list[str], said: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "monoc", "mutate", *options], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr
