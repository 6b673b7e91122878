"""Stand-ins for the parts of `torch.cuda` that host code of a launch calls: streams, events, device properties.

Launches return when they have finished, so streams and events have nothing to order; they keep their interfaces.
"""

import functools
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from monoc.sim.errors import UsageError

__all__ = ["DeviceProperties", "Event", "Stream", "cuda_stand_ins"]


@dataclass(frozen=True)
class DeviceProperties:
    """What `torch.cuda.get_device_properties` tells of the simulated GPU. Sizes in bytes."""

    name: str
    gcnArchName: str  # noqa: N815 (torch's name)
    multi_processor_count: int
    total_memory: int
    shared_memory_per_block: int
    warp_size: int = 64
    major: int = 9
    minor: int = 5

    @classmethod
    def of(cls, arch: str, cus: int) -> "DeviceProperties":
        """The properties of `arch` with `cus` compute units."""
        lds = 160 * 1024 if arch == "gfx950" else 64 * 1024
        major, minor = (9, 5) if arch == "gfx950" else (9, 4)
        return cls(f"simulated {arch}", f"{arch}:sramecc+:xnack-", cus, 256 << 30, lds, major=major, minor=minor)


class Stream:
    """A stream: always idle, since every launch has finished when it returns."""

    cuda_stream = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device, self.priority = device, priority

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def query(self) -> bool:
        """True: nothing is outstanding."""
        return True

    def wait_stream(self, stream: "Stream") -> None:
        """The other stream's work has finished."""

    def wait_event(self, event: "Event") -> None:
        """The event's work has finished."""

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Records `event` (a new one when None) here."""
        event = event or Event(enable_timing=True)
        event.record(self)
        return event


class Event:
    """An event; its times are host times, of no meaning for the GPU."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Takes the host clock."""
        self._time = time.perf_counter()

    def query(self) -> bool:
        """True: recorded work has finished."""
        return True

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing is outstanding."""

    def elapsed_time(self, end: "Event") -> float:
        """Host milliseconds from this event to `end`; RuntimeError when either was not recorded."""
        if self._time is None or end._time is None:
            raise RuntimeError("both events must be recorded before elapsed_time")
        return (end._time - self._time) * 1e3


class Device:
    """`with torch.cuda.device(...)`: a rank's thread has one device, so there is nothing to switch."""

    def __init__(self, device: Any = None) -> None:
        self.idx = device

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _missing(name: str, reason: str) -> UsageError:
    return UsageError(
        f"torch.cuda.{name} has no stand-in in a simulation ({reason}); leave it out there, or see "
        "docs/simulator-host.md for what there is"
    )


def _explained() -> dict[str, Callable[..., Any] | type]:
    """Public functions of `torch.cuda` as they are, but a failure for want of a GPU says so; classes that need one."""
    found: dict[str, Callable[..., Any] | type] = {}
    for name in torch.cuda.__all__:
        function = getattr(torch.cuda, name, None)
        if inspect.isfunction(function):
            found[name] = _explained_function(name, function)
    for name in ("CUDAGraph", "ExternalStream", "MemPool", "graph"):

        def refuse(self: Any, *_: Any, name: str = name, **__: Any) -> None:
            raise _missing(name, "nothing is captured or shared with a GPU")

        found[name] = type(name, (), {"__init__": refuse})
    return found


def _explained_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UsageError:
            raise
        except (AssertionError, AttributeError, NotImplementedError, RuntimeError) as error:
            raise _missing(name, str(error).split("\n")[0]) from None

    return call


@contextmanager
def _stream_scope(stream: Stream | None) -> Iterator[None]:
    yield


def cuda_stand_ins(
    rank: Callable[[], int], ranks: int, properties: DeviceProperties
) -> dict[str, Callable[..., Any] | type]:
    """Attribute of `torch.cuda` -> its stand-in, for `ranks` devices of which each thread uses its own."""
    stream = Stream()

    def get_device_properties(device: Any = None) -> DeviceProperties:
        return properties

    def nothing() -> Callable[..., None]:
        """A new function each time: torch wants its attributes to be different objects."""

        def do_nothing(*_: Any, **__: Any) -> None:
            return None

        return do_nothing

    def seed() -> Callable[[int], None]:
        """Random numbers on "cuda" come from the CPU's generator."""

        def manual_seed(value: int) -> None:
            torch.default_generator.manual_seed(int(value))

        return manual_seed

    return {
        **_explained(),
        "Event": Event,
        "Stream": Stream,
        "current_device": rank,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "device_count": lambda: ranks,
        "device": Device,
        "empty_cache": nothing(),
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": get_device_properties,
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "ipc_collect": nothing(),
        "is_initialized": lambda: True,
        "manual_seed": seed(),
        "manual_seed_all": seed(),
        "mem_get_info": lambda device=None: (properties.total_memory, properties.total_memory),
        "reset_peak_memory_stats": nothing(),
        "set_device": nothing(),
        "set_stream": nothing(),
        "stream": _stream_scope,
        "synchronize": nothing(),
    }
