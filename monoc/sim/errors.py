"""Errors the simulator raises: bad input (`AsmError`), bad calls (`UsageError`), findings (`SimulationError`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["AsmError", "Finding", "HangError", "SimulationError", "SimulatorError", "UsageError", "WaitingGroup"]


class SimulatorError(Exception):
    """Base of everything the simulator raises on purpose."""


class UsageError(SimulatorError):
    """A call of the Python API that cannot work; the message names the argument and the remedy."""


class AsmError(SimulatorError):
    """Assembly the simulator cannot load.

    `line` is the 1-based line of the text, `source` its content without surrounding blanks.
    """

    def __init__(self, message: str, *, path: str = "<asm>", line: int = 0, source: str = "") -> None:
        self.path = path
        self.line = line
        self.source = source.strip()
        place = f"{path}:{line}: " if line else f"{path}: "
        shown = f"\n    {self.source}" if self.source else ""
        super().__init__(place + message + shown)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check found while a launch ran.

    `kind` is one of `bounds`, `misaligned`, `poison`, `handoff`, `trap`, `unsupported`; `line` the line of
    the assembly text; `source` the `file:line` of the debug info, or empty; `lane` is -1 where the whole wave is meant;
    `address` is 0 where no memory is involved.
    """

    kind: str
    message: str
    kernel: str = ""
    instruction: str = ""
    line: int = 0
    source: str = ""
    rank: int = -1
    cta: int = -1
    wave: int = -1
    lane: int = -1
    address: int = 0
    buffer: str = ""
    details: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"rank {self.rank} CTA {self.cta} wave {self.wave}"
        if self.lane >= 0:
            where += f" lane {self.lane}"
        text = f"{self.kind}: {self.message}\n    at {self.kernel} line {self.line}: {self.instruction}\n    {where}"
        if self.source:
            text += f", source {self.source}"
        if self.address:
            text += f"\n    address {self.address:#x}"
            text += f" in {self.buffer}" if self.buffer else " (no registered buffer)"
        return text


class SimulationError(SimulatorError):
    """A launch that stopped because a check found something; `findings` has at least one entry."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in findings))


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Waves of one rank that wait at one instruction for one location.

    `value` is the dword the first wave last read there (0 for barriers); `ctas` and `waves` count its members.
    """

    rank: int
    ctas: tuple[int, ...]
    waves: int
    why: str
    line: int
    instruction: str
    source: str
    address: int
    buffer: str
    region: str
    value: int

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.ctas[:8])) + (", ..." if len(self.ctas) > 8 else "")
        text = f"rank {self.rank}: {self.waves} waves of {len(self.ctas)} CTAs ({listed}) {self.why}"
        text += f" at line {self.line}: {self.instruction}"
        if self.source:
            text += f" [{self.source}]"
        if self.address:
            text += f"\n    polls {self.address:#x}, {self.buffer or 'no registered buffer'}"
            if self.region:
                text += f", region {self.region}"
            text += f", sees {self.value:#x}"
        return text


class HangError(SimulatorError):
    """Every live wave waits and no memory changes any more; `groups` says who waits for what."""

    def __init__(self, groups: list[WaitingGroup], reason: str) -> None:
        self.groups = tuple(groups)
        super().__init__("\n".join([f"hang: {reason}", *(str(group) for group in groups)]))
