"""Reading a spec: files, includes, positions, the digest, hostile input."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from monoc.cli import run
from monoc.diagnostics import Code, CompileErrors
from monoc.spec.load import load_program

SPEC = """\
layer: small
target: {arch: gfx950, ctas: 8, threads: 256}
build:
  tokens: 1..8
  tp: [1, 2]
  deep: bool
constants: {eps: 1e-6}
dims:
  hidden: 128
  inter: 256 / tp
inputs:
  x: {dtype: bf16, shape: [tokens, hidden]}
weights:
  w_norm: {dtype: bf16, shape: [hidden]}
  w1: {dtype: mxfp8, shape: [inter, hidden], shard: rows, scale: {name: w1_s, block: [32, 32]}}
  w2: {dtype: mxfp8, shape: [hidden, inter], shard: columns, scale: {name: w2_s, block: [32, 32]}}
outputs:
  out: {dtype: bf16, shape: [tokens, hidden]}
runner:
  class: SmallLayer
  weights:
    Weights: [w_norm, w1, w1_s, w2, w2_s]
"""
PROGRAM = """\
fn silu(g) = g * rcp(1 + exp2(-g))
def norm(x, w):
  ss[t] = sum[c] x[t,c] * x[t,c]
  y[t,c] = bf16(x[t,c] * rsq(ss[t] / extent(c) + eps) * w[c])
  return y
entry forward(x) -> out:
  launch k1:
    y = norm(x, w_norm) when deep else x
    h = mxfp8(y, rule=V) @ w1
    a[t,i] = bf16(silu(h[t,i]))
    out = all_reduce(bf16(mxfp8(a, rule=V) @ w2))
"""
INLINE = SPEC + "program: |\n" + "".join(f"  {line}\n" for line in PROGRAM.splitlines())


def write(folder: Path, text: str, name: str = "s.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def errors(path: str) -> CompileErrors:
    with pytest.raises(CompileErrors) as caught:
        load_program(path)
    return caught.value


def test_included_and_inline_programs_are_alike(tmp_path: Path) -> None:
    write(tmp_path, PROGRAM, "p.monoc")
    included = load_program(write(tmp_path, SPEC + "include: p.monoc\n"))
    inline = load_program(write(tmp_path, INLINE, "i.yaml"))
    assert included.launch["k1"].statements == inline.launch["k1"].statements


def test_positions_in_an_included_file(tmp_path: Path) -> None:
    write(tmp_path, PROGRAM.replace("silu(h[t,i])", "silo(h[t,i])"), "p.monoc")
    (only,) = errors(write(tmp_path, SPEC + "include: p.monoc\n")).diagnostics
    assert Path(only.span.file).name == "p.monoc"
    assert (only.span.line, only.span.column) == (10, 19)


def test_positions_of_a_continued_line(tmp_path: Path) -> None:
    long = INLINE.replace("bf16(silu(h[t,i]))", "bf16(\n            silu(\n          h[t,j]))")
    (only,) = errors(write(tmp_path, long)).diagnostics
    assert (
        INLINE.replace("bf16(silu(h[t,i]))", "bf16(\n            silu(\n          h[t,j]))")
        .splitlines()[only.span.line - 1][only.span.column - 1 :]
        .startswith("h[t,j]" if only.code is Code.SHAPE else "j")
    )


def test_digest_ignores_comments_and_spacing(tmp_path: Path) -> None:
    plain = load_program(write(tmp_path, INLINE)).digest
    commented = INLINE.replace("hidden: 128", "hidden:   128   # columns").replace("return y", "return y  # normed")
    assert load_program(write(tmp_path, commented)).digest == plain
    assert load_program(write(tmp_path, INLINE.replace("eps: 1e-6", "eps: 1e-5"))).digest != plain
    assert load_program(write(tmp_path, INLINE.replace("exp2(-g)", "exp(-g)"))).digest != plain


def test_spans_do_not_change_what_is_equal(tmp_path: Path) -> None:
    moved = load_program(write(tmp_path, INLINE.replace("program:", "\n\nprogram:")))
    assert moved.launch["k1"].statements == load_program(write(tmp_path, INLINE)).launch["k1"].statements


def test_too_large(tmp_path: Path) -> None:
    (only,) = errors(write(tmp_path, INLINE + "#" * (1 << 20))).diagnostics
    assert only.code is Code.TOO_LARGE


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(b"layer: a\nlicence: \xff\n")
    (only,) = errors(str(tmp_path / "s.yaml")).diagnostics
    assert (only.code, only.span.line, only.span.column) == (Code.FILE, 2, 10)


@pytest.mark.parametrize("path", ["/etc", "nowhere.yaml", "a\0b", "/dev/zero"])
def test_unreadable(path: str) -> None:
    assert errors(path).diagnostics[0].code is Code.FILE


def test_pipes_and_loops_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for name in ("pipe.yaml", "loop.yaml"):
        (only,) = errors(str(tmp_path / name)).diagnostics
        assert only.code is Code.FILE


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["monoc", "check", write(tmp_path, INLINE.replace("rule=V) @ w1", "rule=W) @ w1"))])
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert "error[attribute]" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("nest", ["[", "{a: ", "- "])
def test_deeply_nested_yaml(tmp_path: Path, nest: str) -> None:
    assert errors(write(tmp_path, "x: " + nest * 3000)).diagnostics


def test_exponential_aliases(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert errors(write(tmp_path, bomb)).diagnostics[0].code is Code.YAML_FEATURE


@pytest.mark.parametrize("seed", range(4))
def test_damaged_specs_give_errors_not_tracebacks(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    words = "[ ] ( ) , = @ * 0 1e9 t tp hidden ' : { when else sum[c] max[t] split( mxfp8( all_reduce( - ** norm( .. #"
    tokens = [*words.split(), "\n", "  ", "/ 0"]
    for _ in range(60):
        text = INLINE
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            cut = rng.choice([0, 0, 1, 3, 12])
            text = text[:at] + rng.choice(tokens) * rng.randint(0, 1) + text[at + cut :]
        path = write(tmp_path, text)
        with contextlib.suppress(CompileErrors):  # anything else escapes and fails the test
            load_program(path)
