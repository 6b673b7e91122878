"""How long `monoc compile` takes: proofs run and proofs cached, in fresh processes.

    python benchmarks/compile_time.py [SPEC] [--runs 5]

Prints seconds of each run, the best of each kind, and cold over warm.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _seconds(spec: str, out: Path, cache: Path) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "monoc", "compile", spec, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", nargs="?", default="layer_specs/dsv41.yaml")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out, cache = Path(folder) / "package", Path(folder) / "cache"
        cold = _seconds(options.spec, out, cache)
        warm = [_seconds(options.spec, out, cache) for _ in range(options.runs)]
    print(f"{options.spec}: cold {cold:.2f} s; warm {', '.join(f'{t:.2f}' for t in warm)} s")
    print(f"best warm {min(warm):.2f} s, cold / warm {cold / min(warm):.1f}")


if __name__ == "__main__":
    main()
