"""Compiling a FlyDSL launch to assembly without ROCm: text, launches, resources, cache, errors."""

import threading
from pathlib import Path

import flydsl.compiler as flyc
import flydsl.expr as fx
import pytest
import torch
from flydsl.expr.typing import Int32, Int64

from monoc.build import CompileError, IsaResult, MetadataError, compile_isa, parse_resources
from monoc.build.resources import instruction_bytes

_STREAM = fx.Stream(None)


@flyc.kernel(known_block_size=[64, 1, 1])
def nothing(a: Int64, n: Int32):
    pass


def make_launch():
    @flyc.jit
    def launch(a: Int64, n: Int32, stream: fx.Stream = _STREAM):
        nothing(a, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    return launch


launch = make_launch()


@flyc.jit
def launch_none(a: Int64, stream: fx.Stream = _STREAM):
    pass


@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_text_and_resources(arch: str) -> None:
    result = compile_isa(launch, (0x1234, 300), arch)
    assert f'.amdgcn_target "amdgcn-amd-amdhsa-unknown-{arch}"' in result.text
    assert result.symbol in result.text
    resources = result.resources
    assert [(a.offset, a.size) for a in resources.arguments] == [(0, 8), (8, 4)]
    assert (resources.lds_bytes, resources.scratch_bytes, resources.code_bytes) == (0, 0, 4)


def test_launch_geometry_is_computed_by_the_host_code() -> None:
    (made,) = compile_isa(launch, (0x1234, 300)).launches
    assert (made.grid, made.block) == ((5, 1, 1), (64, 1, 1))
    assert made.values == (0x1234, 300)
    assert made.kernarg[:12] == (0x1234).to_bytes(8, "little") + (300).to_bytes(4, "little")


def test_tensor_arguments_need_no_device() -> None:
    @flyc.kernel(known_block_size=[64, 1, 1])
    def touch(x: fx.Tensor):
        pass

    @flyc.jit
    def launch_tensor(x: fx.Tensor, stream: fx.Stream = _STREAM):
        touch(x).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    x = torch.zeros(8)
    assert compile_isa(launch_tensor, (x,)).launches[0].values[0] == x.data_ptr()


def test_quiet_and_source_lines_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    plain, debug = compile_isa(launch, (0, 1)), compile_isa(launch, (0, 1), debug=True)
    assert "\t.loc\t" not in plain.text
    assert "\t.loc\t" in debug.text
    assert capfd.readouterr() == ("", "")


def test_disk_cache_gives_the_same_text(tmp_path: Path) -> None:
    first = compile_isa(make_launch(), (0, 1), cache_dir=tmp_path)
    assert len(list(tmp_path.rglob("*.pkl"))) == 1
    assert compile_isa(make_launch(), (0, 1), cache_dir=tmp_path).text == first.text
    assert len(list(tmp_path.rglob("*.pkl"))) == 1


def test_threads_may_compile_at_once() -> None:
    results: dict[str, IsaResult] = {}

    def run(arch: str) -> None:
        results[arch] = compile_isa(launch, (0, 64), arch)

    threads = [threading.Thread(target=run, args=(arch,)) for arch in ("gfx950", "gfx942")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"unknown-{arch}" in result.text for arch, result in results.items())
    assert len(results) == 2


def test_errors_name_the_launch() -> None:
    with pytest.raises(CompileError, match="launch: ValueError: x to integer"):
        compile_isa(launch, ("x", 1))
    with pytest.raises(CompileError, match="launch_none: the function launches no kernel"):
        compile_isa(launch_none, (0,))


def test_metadata_errors() -> None:
    text = compile_isa(launch, (0, 1)).text
    with pytest.raises(MetadataError, match="final assembly"):
        parse_resources("s_endpgm")
    with pytest.raises(MetadataError, match="it has: nothing"):
        parse_resources(text, "other")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("s_mov_b32 s0, 64", 4),
        ("s_mov_b32 s0, 65", 8),
        ("v_add_f32_e32 v0, 1.0, v1", 4),
        ("v_add_f32_e32 v0, 0x3fb8aa3b, v1", 8),
        ("v_add3_u32 v0, v1, v2, v3", 8),
        ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[8:15], v[0:3], v16, v17", 16),
        ("s_waitcnt vmcnt(0)", 4),
        ("s_load_dwordx2 s[0:1], s[2:3], 0x10", 8),
        ("global_load_dword v0, v[0:1], off offset:16", 8),
    ],
)
def test_instruction_sizes(text: str, size: int) -> None:
    mnemonic, _, operands = text.partition(" ")
    assert instruction_bytes(mnemonic, operands) == size
