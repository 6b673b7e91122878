"""Compile a FlyDSL launch to final assembly text: no ROCm, no GPU, nothing run.

result = compile_isa(launch, (x.data_ptr(), y.data_ptr(), 1024))
result.text, result.symbol, result.resources.vgprs, result.launches[0].grid
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flydsl.compiler as flyc

from monoc.build.device import COMPILE_LOCK, DeviceLaunch, assembly_target, record_launches, resources_of
from monoc.build.resources import Resources

__all__ = ["CompileError", "IsaResult", "compile_isa"]


class CompileError(RuntimeError):
    """FlyDSL rejected the launch, or the launch started no kernel."""


@dataclass(frozen=True)
class IsaResult:
    """The compiled launch. `launches` are the kernel launches the host code makes for the given arguments;
    `text`, `symbol` and `resources` belong to the first of them."""

    text: str
    symbol: str
    resources: Resources
    launches: tuple[DeviceLaunch, ...]


def _with_defaults(launch: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """The positional arguments with the launch's own defaults (its stream) behind them."""
    function = getattr(launch, "func", None)
    if function is None:
        return tuple(args)
    bound = inspect.signature(function).bind(*args)
    bound.apply_defaults()
    return tuple(bound.arguments.values())


def compile_isa(
    launch: Any,
    args: Sequence[Any],
    arch: str = "gfx950",
    *,
    cache_dir: Path | None = None,
    debug: bool = False,
) -> IsaResult:
    """Trace and lower the `@flyc.jit` function `launch` once for `arch`.

    `args` are its positional arguments; scalars and addresses may be any int, since nothing is run, and a
    trailing stream may be left out. `debug` adds source lines (`.loc`). With `cache_dir` the lowered
    result is reused across processes (the key is the traced module's text). Raises CompileError.
    """
    name = getattr(getattr(launch, "func", launch), "__name__", repr(launch))
    with COMPILE_LOCK, assembly_target(arch, cache_dir=cache_dir, debug=debug):
        try:
            with record_launches() as launches:
                compiled = flyc.compile(launch, *args)
                if not launches:  # placeholder arguments: FlyDSL compiled without calling
                    compiled(*_with_defaults(launch, args))
        except Exception as error:
            raise CompileError(f"{name}: {type(error).__name__}: {error}") from error
    if not launches:
        raise CompileError(f"{name}: the function launches no kernel")
    first = launches[0]
    return IsaResult(first.text, first.symbol, resources_of(first.text, first.symbol), tuple(launches))
