"""Launches of unmodified host code, taken over: what FlyDSL compiled is recorded and handed on.

`flyc.compile(...)`, its results and direct calls of `@flyc.jit` functions are wrapped while a simulation lasts. One
build is traced once in a simulation, however many ranks make it: results are kept by what the jit function is made
of (`sharing.py`) and what its arguments specialize. (FlyDSL itself traces at each plain call, to see changed closures.)
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flydsl.compiler as flyc
import torch
from flydsl._mlir import ir
from flydsl.compiler.jit_function import JitFunction
from flydsl.compiler.kernel_function import KernelFunction
from flydsl.expr.typing import Constexpr

from monoc.build.device import COMPILE_LOCK, DeviceLaunch, assembly_target, record_launches
from monoc.sim.host.sharing import build_key

__all__ = ["LaunchInterceptor"]

_COMPILE_CALLABLE = type(flyc.compile)


def _specialization(function: JitFunction, bound: inspect.BoundArguments) -> tuple[Any, ...] | None:
    """What the traced module depends on besides the function, or None when that cannot be told."""
    key: list[Any] = []
    for name, value in bound.arguments.items():
        annotation = bound.signature.parameters[name].annotation
        if annotation is not inspect.Parameter.empty and Constexpr.is_constexpr_annotation(annotation):
            key.append((name, value))
        elif getattr(annotation, "_is_stream_param", False):
            key.append((name, "stream"))
        elif isinstance(value, torch.Tensor):
            key.append((name, value.dtype, tuple(value.shape), value.stride(), value.is_cuda))
        elif hasattr(value, "__cache_signature__"):
            # A wrapped argument: what FlyDSL specializes on, and whether it is a placeholder.
            key.append((name, value.__cache_signature__(), _is_placeholder(value)))
        elif isinstance(value, (bool, int, float)):
            key.append((name, type(value)))
        else:
            key.append((name, value))
    try:
        hash(tuple(key))
    except TypeError:
        return None
    return tuple(key)


def _is_placeholder(wrapped: Any) -> bool:
    """Whether a wrapped argument stands for no memory: a null pointer, or a DLPack capsule that is of no device."""
    pointer, capsule = getattr(wrapped, "pointer", None), getattr(wrapped, "dladaptor", None)
    if capsule is not None:
        return not capsule.data_ptr or capsule.address_space != 1
    return pointer is not None and pointer.value is None


@contextmanager
def _decorating_alone(decorator: type) -> Iterator[None]:
    """One decoration at a time.

    FlyDSL rewrites a function when it is decorated and numbers the names it makes up: two ranks' threads decorating
    one function at once would get different code for the same build.
    """
    initialize = decorator.__init__  # type: ignore[misc]

    def locked(self: Any, *args: Any, **kwargs: Any) -> None:
        with COMPILE_LOCK:
            initialize(self, *args, **kwargs)

    decorator.__init__ = locked  # type: ignore[misc]
    try:
        yield
    finally:
        decorator.__init__ = initialize  # type: ignore[misc]


class LaunchInterceptor:
    """Wraps FlyDSL's entry points; `launch(DeviceLaunch)` is called for every kernel launch, in order."""

    def __init__(self, launch: Callable[[DeviceLaunch], None]) -> None:
        self._launch = launch
        self._compiled: dict[tuple[Any, ...], tuple[Any, bool]] = {}
        self._inside = threading.local()
        self.traces = 0

    @contextmanager
    def installed(self, arch: str, *, cache_dir: Path | None = None, debug: bool = False) -> Iterator[None]:
        """FlyDSL compiles to assembly for `arch` and its launches come here, until the scope ends."""
        jit_call, compile_call = JitFunction.__call__, _COMPILE_CALLABLE.__call__
        compiled_call = flyc.CompiledFunction.__call__
        interceptor = self

        def call_jit(function: JitFunction, *args: Any, **kwargs: Any) -> Any:
            if ir.Context.current is not None or interceptor._busy():
                return jit_call(function, *args, **kwargs)  # a helper inlined while tracing
            return interceptor._call(function, compile_call, args, kwargs)

        def call_compile(compile_: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            if (not args and not kwargs) or not isinstance(function, JitFunction) or interceptor._busy():
                return interceptor._record(lambda: compile_call(compile_, function, *args, **kwargs))
            hints = getattr(compile_, "_compile_hints", None)
            if hints:
                compile_call(compile_, function)  # stores the hints with the function
            return interceptor._compile(function, compile_call, args, kwargs)[0]

        def call_compiled(compiled: Any, *args: Any) -> Any:
            if interceptor._busy():
                return compiled_call(compiled, *args)
            return interceptor._record(lambda: compiled_call(compiled, *args))

        with (
            assembly_target(arch, cache_dir=cache_dir, debug=debug),
            _decorating_alone(JitFunction),
            _decorating_alone(KernelFunction),
        ):
            JitFunction.__call__ = call_jit
            _COMPILE_CALLABLE.__call__ = call_compile
            flyc.CompiledFunction.__call__ = call_compiled
            try:
                yield
            finally:
                JitFunction.__call__ = jit_call
                _COMPILE_CALLABLE.__call__ = compile_call
                flyc.CompiledFunction.__call__ = compiled_call

    def _busy(self) -> bool:
        return bool(getattr(self._inside, "depth", 0))

    def _flydsl(self, call: Callable[[], Any]) -> tuple[Any, list[DeviceLaunch]]:
        """(result, launches made) of FlyDSL's own code, during which nothing is intercepted."""
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            with record_launches() as launches:
                return call(), launches
        finally:
            self._inside.depth -= 1

    def _record(self, call: Callable[[], Any]) -> Any:
        """Runs FlyDSL's own code, then the launches it made."""
        result, launches = self._flydsl(call)
        for made in launches:
            self._launch(made)
        return result

    def _bind(self, function: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function._ensure_sig()
        if function._has_self_param:
            return None
        bound = function._sig.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound

    def _compile(
        self, function: JitFunction, compile_call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], bool]:
        """(compiled, positional arguments, launched): traced at most once a build.

        `flyc.compile` launches at once when its arguments are live (addresses, scalars), as on a GPU.
        """
        bound = self._bind(function, args, kwargs)
        values = args if bound is None else tuple(bound.arguments.values())
        specialization = None if bound is None else _specialization(function, bound)
        key = None
        if specialization is not None:
            key = (build_key(function), *specialization)
        with COMPILE_LOCK:
            found = None if key is None else self._compiled.get(key)
            if found is None:
                compiled, launches = self._flydsl(lambda: compile_call(flyc.compile, function, *args, **kwargs))
                self.traces += 1
                if key is not None:
                    self._compiled[key] = (compiled, bool(launches))
        if found is not None:
            compiled, live = found
            if live:
                compiled(*values)
            return compiled, values, live
        for made in launches:
            self._launch(made)
        return compiled, values, bool(launches)

    def _call(self, function: JitFunction, compile_call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A plain call of a jit function: compiled once, launched every time."""
        compiled, values, launched = self._compile(function, compile_call, args, kwargs)
        if not launched:  # placeholder arguments: FlyDSL compiled without launching
            compiled(*values)
