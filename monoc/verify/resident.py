"""How much memory this process takes."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

__all__ = ["forget_peak", "peak_bytes"]

_KIB = 1024


def forget_peak() -> None:
    """From now on :func:`peak_bytes` is the largest size since this call, where the system can do that (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The largest resident size of this process since :func:`forget_peak`, else since it started."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * _KIB
