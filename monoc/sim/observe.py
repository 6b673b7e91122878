"""What a launch did: executed instructions by class, CTA and line, bytes by buffer and cache policy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monoc.sim.program import Program

__all__ = ["CLASSES", "BufferTraffic", "CtaCount", "Observations", "Report", "observations_of"]

# Order of OpClass in native/op.hpp.
CLASSES = (
    "salu", "smem", "branch", "wait", "sleep", "barrier", "nop", "message", "valu", "trans", "mfma", "lane", "lds_read",
    "lds_write", "lds_atomic", "lds_permute", "load", "store", "atomic", "scratch", "cache",
)  # fmt: skip
_POLICIES = ("", "sc0", "nt", "sc0 nt", "sc1", "sc0 sc1", "nt sc1", "sc0 nt sc1")


@dataclass(frozen=True, slots=True)
class BufferTraffic:
    """Bytes lanes moved to and from one buffer with one cache policy (`sc0`, `nt`, `sc1`; empty: plain)."""

    buffer: str
    policy: str
    loaded: int
    stored: int


@dataclass(frozen=True, slots=True)
class CtaCount:
    """One CTA's wave-instructions, poll loops apart, and bytes.

    `busiest`: instructions of its busiest wave, poll loops apart. `in_flight`: bytes of weights (`Simulator.watch`)
    its waves had requested and not yet waited for, each wave at its fullest wait up to the first one for another CTA's
    work: a `vmcnt` that a load of hand-off memory keeps up, a sleep, or a barrier at which another wave has waited so.
    """

    rank: int
    cta: int
    instructions: int
    polls: int
    loaded: int
    stored: int
    busiest: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Observations:
    """Counts of one launch.

    `classes` by instruction class and `polls` (the instructions of poll loops, in no class); `retries`: tries of poll
    loops that found what they wait for not there yet (a wave each); `mfma_macs`
    multiply-adds of MFMA; `lines` wave-instructions by `kernel:source line` (of the debug info, else of the
    assembly), polls apart; `line_bytes` bytes moved by the same keys.
    """

    classes: Mapping[str, int]
    polls: int
    mfma_macs: int
    traffic: tuple[BufferTraffic, ...]
    ctas: tuple[CtaCount, ...]
    lines: Mapping[str, int]
    line_bytes: Mapping[str, int]
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A finished launch: wave-instructions executed (polls included), host seconds, counts where observers were on."""

    instructions: int
    seconds: float
    thread_instructions: tuple[int, ...]
    observations: Observations | None = field(default=None)

    @property
    def rate(self) -> float:
        """Wave-instructions a second over all host threads."""
        return self.instructions / self.seconds if self.seconds else 0.0


def _keys(program: Program) -> list[str]:
    keys = []
    for instruction in program.kernel.instructions:
        place = program.source(*instruction.loc) or f"line {instruction.line}"
        keys.append(f"{program.name}:{place}")
    return [*keys, f"{program.name}:end"]


def observations_of(
    raw: Mapping[str, Any], programs: Sequence[tuple[int, Program]], names: Sequence[str]
) -> Observations:
    """Counts from the native result; `programs` are the launch's (rank, program), `names` the buffers' names."""
    by_rank = dict(programs)
    totals: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
    polls_of = {program.name: np.array(program.native.polls(), dtype=bool) for program in by_rank.values()}
    ctas = []
    for rank, cta, ops, loaded, stored, busiest, in_flight in raw["counts"]:
        program = by_rank[rank]
        counts = np.frombuffer(ops, dtype=np.uint32).astype(np.int64)
        if program.name in totals:
            totals[program.name] += counts
        else:
            totals[program.name] = counts.copy()
        polled = int(counts[polls_of[program.name]].sum())
        ctas.append(CtaCount(rank, cta, int(counts.sum()) - polled, polled, loaded, stored, busiest, in_flight))
    classes: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    line_bytes: defaultdict[str, int] = defaultdict(int)
    polls = macs = retries = 0
    for program in {program.name: program for program in by_rank.values()}.values():
        counts = totals[program.name]
        poll = polls_of[program.name]
        polls += int(counts[poll].sum())
        work = np.where(poll, 0, counts)
        kinds = np.array(program.native.classes())
        retries += int(counts[poll & (kinds == CLASSES.index("sleep"))].sum())
        for index, name in enumerate(CLASSES):
            classes[name] += int(work[kinds == index].sum())
        macs += int((counts * np.array(program.native.macs(), dtype=np.int64)).sum())
        for key, count in zip(_keys(program), work, strict=True):
            if count:
                lines[key] += int(count)
    for (_, program), data in zip(programs, raw["op_bytes"], strict=True):
        moved = np.frombuffer(data, dtype=np.uint64)
        keys = _keys(program)
        for position in np.flatnonzero(moved):
            line_bytes[keys[int(position)]] += int(moved[position])
    traffic = tuple(BufferTraffic(names[b], _POLICIES[p], loaded, stored) for b, p, loaded, stored in raw["bytes"])
    return Observations(
        {name: count for name, count in classes.items() if count},
        polls,
        macs,
        traffic,
        tuple(ctas),
        dict(lines),
        dict(line_bytes),
        retries,
    )
