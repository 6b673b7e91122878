"""`monoc sim`: arguments, reports, findings, bad input."""

import json
from pathlib import Path

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import pytest
import typer
from flydsl.expr.typing import Int32, Int64
from typer.testing import CliRunner

from monoc.build import compile_isa
from monoc.sim.command import register

_STREAM = fx.Stream(None)


def _at(address, index):
    kind = fx.PointerType.get(fx.Float32.ir_type, fx.AddressSpace.Global, 4)
    return fx.inttoptr(kind, fx.Int64(address) + fx.Int64(index) * fx.Int64(4))


@flyc.kernel(known_block_size=[64, 1, 1])
def axpy(a: fx.Float32, x: Int64, y: Int64, n: Int32):
    i = fx.block_idx.x * 64 + fx.thread_idx.x
    if i < n:
        fx.generic_store(_at(y, i), fx.generic_load(_at(x, i)) * a + fx.generic_load(_at(y, i)))


@flyc.jit
def launch(a: fx.Float32, x: Int64, y: Int64, n: Int32, stream: fx.Stream = _STREAM):
    axpy(a, x, y, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sim") / "axpy.s"
    path.write_text(compile_isa(launch, (1.0, 0, 0, 64)).text)
    return path


def run(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    result = CliRunner().invoke(app, ["sim", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def words(*args: str) -> list[str]:
    return [word for arg in args for word in ("--arg", arg)]


def test_a_launch_with_saved_output(assembly: Path, tmp_path: Path) -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones((10, 10), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    arguments = words("f32:2.5", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "100")
    code, out, _ = run(str(assembly), *arguments, "--grid", "2", "--save", f"2={tmp_path / 'out.npy'}", "--json")
    assert code == 0
    assert json.loads(out)["instructions"] > 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), (x * np.float32(2.5)).reshape(10, 10) + y)


def test_text_report_with_counts(assembly: Path) -> None:
    code, out, _ = run(str(assembly), *words("f32:2", "random:256", "zeros:256", "64"), "--observe", "--repeat", "2")
    assert code == 0
    assert "wave-instructions" in out
    assert "arg2" in out
    assert "instructions by class" in out


def test_ranks_have_their_own_buffers(assembly: Path, tmp_path: Path) -> None:
    saves = ["--save", f"0.2={tmp_path / 'a.npy'}", "--save", f"1.2={tmp_path / 'b.npy'}"]
    code, _, _ = run(str(assembly), *words("f32:1", "zeros:256", "zeros:256", "64"), "--ranks", "2", *saves)
    assert code == 0
    assert np.load(tmp_path / "a.npy").nbytes == np.load(tmp_path / "b.npy").nbytes == 256


def test_out_of_bounds_is_a_finding(assembly: Path) -> None:
    arguments = words("f32:1", "zeros:128", "zeros:256", "64")
    code, _, err = run(str(assembly), *arguments)
    assert code == 1
    assert "bounds" in err
    code, out, _ = run(str(assembly), *arguments, "--json")
    assert code == 1
    (finding, *_) = json.loads(out)["findings"]
    assert finding["kind"] == "bounds"
    assert finding["kernel"].startswith("axpy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (words("1"), "takes 4 arguments, 1 were given"),
        (words("f32:x", "0", "0", "0"), "'x' is no 32-bit float"),
        (words("f32:1", "zeros:-3", "0", "0"), "positive size"),
        (words("f32:1", "zeros:4:1", "0", "0"), "only random buffers have a seed"),
        (words("f32:1", "nothing.npy", "0", "0"), "nothing.npy"),
        (words("f32:1", "what", "0", "0"), "neither an integer"),
        (words("f32:1", "peer:0", "0", "0"), "argument 0 is no buffer"),
        (words("f32:1", "zeros:256", "zeros:256", "0x1ffffffff"), "has 4 bytes"),
        ([*words("1", "1", "1", "1"), "--grid", "0"], "--grid 0: give one to three"),
        ([*words("1", "1", "1", "1"), "--save", "0=x.npy"], "argument 0 is no buffer"),
        ([*words("1", "1", "1", "1"), "--save", "x"], "INDEX=FILE"),
        (["--arch", "gfx90a"], "gfx90a"),
        (["--kernel", "other"], "other"),
    ],
)
def test_bad_input_is_named(assembly: Path, arguments: list[str], message: str) -> None:
    code, _, err = run(str(assembly), *arguments)
    assert code == 2
    assert message in err


def test_missing_file() -> None:
    code, _, err = run("nowhere.s")
    assert code == 2
    assert "no file nowhere.s" in err
