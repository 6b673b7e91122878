"""FlyDSL compiled down to assembly text, its host code linked against our device runtime.

FlyDSL ends its pipeline by linking a code object with ROCm's `ld.lld`, then loads that object with HIP.
Both are replaced here, and only inside `assembly_target()`:

- The last pass writes assembly (`format=isa`) in place of a code object. This changes the *pipeline
  fragments* a backend hands out, a public method of FlyDSL's `BaseBackend`. A stand-in linker (`ROCM_PATH`
  with a fake `ld.lld`) would need the text smuggled past the ELF writer and a subprocess a build; a backend
  registered under a name of its own would lose the `rocm` variants of FlyDSL's extension libraries, which are
  picked by backend name.
- The host function, compiled and run natively, calls `mgpuLaunchKernel` of `_device` instead of HIP's. So
  grids, blocks and arguments computed by launch code are FlyDSL's own results, never interpreted by us.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flydsl.compiler import jit_executor
from flydsl.compiler.backends.rocm import RocmBackend

from monoc.build import _device
from monoc.build.resources import Resources, parse_resources

__all__ = ["COMPILE_LOCK", "DeviceLaunch", "assembly_target", "record_launches", "resources_of"]

# FlyDSL's tracing state, LLVM's global options and the environment it reads are per process: one
# compilation at a time. Reentrant: a compilation may be asked for inside a target scope.
COMPILE_LOCK = threading.RLock()


@dataclass(frozen=True)
class DeviceLaunch:
    """One kernel launch as the host code made it.

    `kernarg` is the explicit part of the kernarg segment, without the hidden arguments behind it; `values` the same
    arguments as unsigned integers (little endian), in order; `lds` bytes of dynamic LDS.
    """

    text: str
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int
    stream: int
    kernarg: bytes
    values: tuple[int, ...]


class _Recorder(threading.local):
    """The launches and failures of this host thread's innermost `record_launches` scope."""

    def __init__(self) -> None:
        self.scopes: list[list[DeviceLaunch]] = []
        self.failure: BaseException | None = None


_RECORDER = _Recorder()


@lru_cache(maxsize=256)
def resources_of(text: str, symbol: str) -> Resources:
    """`parse_resources`, remembered by text: host code launches the same kernel many times."""
    return parse_resources(text, symbol)


def _on_launch(
    text: str,
    symbol: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    lds: int,
    stream: int,
    addresses: list[int],
) -> None:
    try:
        resources = resources_of(text, symbol)
        if len(addresses) != len(resources.arguments):
            raise RuntimeError(
                f"{symbol}: launched with {len(addresses)} arguments, its metadata declares {len(resources.arguments)}"
            )
        kernarg = bytearray(max((a.offset + a.size for a in resources.arguments), default=0))
        values = []
        for address, argument in zip(addresses, resources.arguments, strict=True):
            data = ctypes.string_at(address, argument.size)
            kernarg[argument.offset : argument.offset + argument.size] = data
            values.append(int.from_bytes(data, "little"))
        if not _RECORDER.scopes:
            raise RuntimeError(
                f"{symbol}: compiled for assembly only and launched outside every simulator scope; "
                "make the call inside monoc.sim.host.simulate(...)"
            )
        launch = DeviceLaunch(text, symbol, grid, block, lds, stream, bytes(kernarg), tuple(values))
        _RECORDER.scopes[-1].append(launch)
    except Exception as error:  # crosses a C frame: kept for the thread that made the call
        _RECORDER.failure = error


def _on_occupancy(text: str, symbol: str, threads: int, lds: int) -> int:
    try:
        return resources_of(text, symbol).ctas_per_cu(threads, lds)
    except Exception as error:  # as above
        _RECORDER.failure = error
        return 0


_device.set_sinks(_on_launch, _on_occupancy)


@contextmanager
def record_launches() -> Iterator[list[DeviceLaunch]]:
    """Collects the kernel launches this thread's host code makes, in order, instead of running them.

    Leaving the scope raises what went wrong while a launch was taken over.
    """
    launches: list[DeviceLaunch] = []
    _RECORDER.scopes.append(launches)
    try:
        yield launches
    finally:
        _RECORDER.scopes.pop()
    failure, _RECORDER.failure = _RECORDER.failure, None
    if failure is not None:
        raise failure


def _environment(arch: str, cache_dir: Path | None, debug: bool) -> dict[str, str]:
    values = {
        "ARCH": arch,
        "FLYDSL_GPU_ARCH": arch,
        "FLYDSL_COMPILE_BACKEND": "rocm",
        "COMPILE_ONLY": "0",
        # FlyDSL's cache is keyed by the traced module's text, the pipeline and the toolchain.
        "FLYDSL_RUNTIME_ENABLE_CACHE": "0" if cache_dir is None else "1",
        "FLYDSL_DEBUG_ENABLE_DEBUG_INFO": "1" if debug else "0",
    }
    if cache_dir is not None:
        values["FLYDSL_RUNTIME_CACHE_DIR"] = str(cache_dir)
    return values


@contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    try:
        before = getattr(owner, name)
    except AttributeError:
        raise RuntimeError(
            f"this FlyDSL has no {getattr(owner, '__name__', owner)}.{name}; monoc needs flydsl 0.5"
        ) from None
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def assembly_target(arch: str = "gfx950", *, cache_dir: Path | None = None, debug: bool = False) -> Iterator[None]:
    """Inside, everything FlyDSL compiles in this process becomes assembly text for `arch`, and launches go
    to `record_launches`. `cache_dir` keeps results across processes; `debug` adds `.loc` source lines.

    Holders that compile from several threads take COMPILE_LOCK around each compilation.
    """
    fragments = RocmBackend.pipeline_fragments

    def to_assembly(self: Any, *, compile_hints: dict[str, Any]) -> list[str]:
        passes: list[str] = fragments(self, compile_hints=compile_hints)
        if "format=fatbin" not in passes[-1]:
            return passes  # nested scopes: already replaced
        return [*passes[:-1], passes[-1].replace("format=fatbin", "format=isa")]

    environment = _environment(arch, cache_dir, debug)
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with (
            _patched(RocmBackend, "pipeline_fragments", to_assembly),
            _patched(jit_executor, "_resolve_runtime_libs", lambda: [_device.__file__]),
        ):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
