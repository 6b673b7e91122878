"""A whole package: what it needs, that it is the same every time, and the compile command around it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from monoc.cli import make_app
from monoc.compiler import Package

ROOT = Path(__file__).parents[2]
TINY = ROOT / "layer_specs" / "tiny.yaml"


def _run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stands_alone(tiny_folder: Path) -> None:
    """Imports with flydsl and torch alone: no monoc, no aiter."""
    _run(
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('monoc', 'aiter', 'lark', 'jinja2', 'networkx'):\n"
        "            raise AssertionError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        f"sys.path.insert(0, {str(tiny_folder.parent)!r})\n"
        "import tiny\n"
        "assert tiny.MAX_TOKENS == 20\n"
        "assert not any(m.split('.')[0] == 'monoc' for m in sys.modules)\n"
    )


def test_no_file_names_a_machine(tiny_package: Package) -> None:
    for name, text in tiny_package.files.items():
        assert str(ROOT) not in text, name
        assert "monoc.device" not in text, name


def test_the_same_bytes_under_any_hash_seed() -> None:
    code = (
        "import hashlib\n"
        "from monoc.compiler import compile_spec\n"
        f"package = compile_spec({str(TINY)!r})\n"
        "print({n: hashlib.sha256(t.encode()).hexdigest() for n, t in package.files.items()})\n"
    )
    assert _run(code, PYTHONHASHSEED="1") == _run(code, PYTHONHASHSEED="2")


def test_compile_check_and_hand_edits(tmp_path: Path) -> None:
    runner, out = CliRunner(), tmp_path / "tiny"
    app = make_app(["compile"])

    def run(*more: str) -> tuple[int, str]:
        result = runner.invoke(app, ["compile", str(TINY), "--out", str(out), *more])
        return result.exit_code, result.output

    code, text = run("--check")
    assert code == 1
    assert "run `monoc compile" in text
    assert not out.exists()
    assert run()[0] == 0
    assert run("--check")[0] == 0
    (out / "k1.py").write_text((out / "k1.py").read_text() + "\n# tuned by hand\n")
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    code, text = run()
    assert code == 2
    assert "k1.py" in text
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == before
    code, text = run("--check")
    assert code == 1
    assert "-# tuned by hand" in text


def test_a_bad_spec_leaves_the_package_alone(tmp_path: Path, tiny_package: Package) -> None:
    out = tmp_path / "tiny"
    out.mkdir()
    (out / "plan.py").write_text(tiny_package.files["plan.py"])
    bad = tmp_path / "bad.yaml"
    bad.write_text(TINY.read_text().replace("hidden: 256", "hidden: 255"))
    for part in ("programs", "docking"):
        shutil.copytree(ROOT / "layer_specs" / part, tmp_path / part)
    done = subprocess.run(
        [sys.executable, "-m", "monoc", "compile", str(bad), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert [p.name for p in out.iterdir()] == ["plan.py"]
    assert (out / "plan.py").read_text() == tiny_package.files["plan.py"]
