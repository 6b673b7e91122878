"""The examples, run as a reader would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# Example -> what it must have said.
SAID = {
    "01_own_layer.sh": ("streams_mlp: 16 builds", "2 kernels: no problems", "gate_up: value", "2 cells: none bad"),
    "02_other_fold.sh": ("constant_f32(0.5) * (post_mix * x)", "1 cells: none bad"),
    "03_flydsl_kernel.py": ("right; ", "bounds: access outside every registered buffer"),
    "04_planted_fault.sh": ("first wrong value: gate_up_mxfp8 (in y_mx_v, rank 0)", "1 cells: 1 bad"),
}


def test_every_example_is_run() -> None:
    assert sorted(SAID) == sorted(p.name for p in EXAMPLES.iterdir() if p.suffix in (".sh", ".py"))


@pytest.mark.parametrize("name", SAID)
def test_example(name: str, tmp_path: Path) -> None:
    runner = [sys.executable] if name.endswith(".py") else ["bash"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*runner, str(EXAMPLES / name)],
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in SAID[name]:
        assert text in done.stdout, done.stdout + done.stderr
