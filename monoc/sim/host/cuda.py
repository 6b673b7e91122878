"""Stand-ins for the parts of `torch.cuda` that host code of a launch calls: streams, events, device properties.

Launches return when they have finished, so streams and events have nothing to order; they keep their interfaces.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

    def nothing(*_: Any, **__: Any) -> None:
        return None

    return {
        "Event": Event,
        "Stream": Stream,
        "current_device": rank,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "device_count": lambda: ranks,
        "empty_cache": nothing,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": get_device_properties,
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "is_initialized": lambda: True,
        "mem_get_info": lambda device=None: (properties.total_memory, properties.total_memory),
        "set_device": nothing,
        "set_stream": nothing,
        "stream": _stream_scope,
        "synchronize": nothing,
    }
