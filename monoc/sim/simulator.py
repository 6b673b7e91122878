"""`Simulator`: ranks, their device memory, launches of loaded programs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monoc.sim import _core
from monoc.sim.errors import Finding, HangError, SimulationError, UsageError, WaitingGroup
from monoc.sim.handoff import Kind, Manifest, Region, Scope
from monoc.sim.observe import Report, observations_of
from monoc.sim.program import Program, load_program

__all__ = ["Checks", "Launch", "Simulator"]

_ARCHS = ("gfx950",)
_REVISION = 2  # of the native core's interface: native/module.cpp
_ROLES = {"weight": 1, "handoff": 2}  # kRole... in native/memory.hpp
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Checks:
    """Which checks run. Bounds and alignment always do.

    `written`: never-written LDS and memory is poison; `vgprs`: registers are poison at kernel entry too.
    `lds_races`: two waves of a CTA touch a byte of LDS, one of them writes, and no barrier comes between.
    `lds_margin`: bytes behind a CTA's LDS that may be accessed (a GPU gives zeros there): never written at first.
    """

    written: bool = True
    vgprs: bool = False
    lds_margin: int = 0
    lds_races: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One rank's part of a launch: `args` in the kernel's order (see `Program.kernarg`) or the ready `kernarg` bytes.

    `grid` in CTAs, `block` in threads (None: the kernel's required size), `lds` bytes of dynamic LDS.
    """

    program: Program
    args: Sequence[Any] = ()
    grid: Dim3 = (1, 1, 1)
    block: Dim3 | None = None
    lds: int = 0
    kernarg: bytes | None = None


def _extent(memory: Any) -> tuple[int, int]:
    """(address, bytes) of a tensor's or array's storage span."""
    if isinstance(memory, np.ndarray):
        if not (memory.flags.c_contiguous or memory.flags.f_contiguous):
            raise UsageError("register a contiguous array; views into it then work by address")
        return int(memory.ctypes.data), int(memory.nbytes)
    if hasattr(memory, "untyped_storage"):
        storage = memory.untyped_storage()
        return int(storage.data_ptr()), int(storage.nbytes())
    raise UsageError(f"cannot register a {type(memory).__name__}: give a torch tensor or numpy array")


class Simulator:
    """A machine of `ranks` GPUs of `arch` in this process; device addresses are host addresses.

    `seed` orders the CTAs (0: as numbered) and, if not 0, their waves, which then run in slices it draws. `threads`
    host threads (None: one a core). Launches of one Simulator run one at a time. `observe` turns the counts of
    `Report.observations` on.
    """

    def __init__(
        self,
        arch: str = "gfx950",
        ranks: int = 1,
        *,
        seed: int = 0,
        threads: int | None = None,
        checks: Checks | None = None,
        observe: bool = False,
        instruction_limit: int = 0,
    ) -> None:
        if arch not in _ARCHS:
            raise UsageError(f"architecture {arch!r} is not modelled; choose one of {', '.join(_ARCHS)}")
        if ranks < 1:
            raise UsageError(f"ranks must be at least 1, not {ranks}")
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1, not {threads}")
        if not 0 <= seed < 1 << 64 or not 0 <= instruction_limit < 1 << 64:
            raise UsageError("seed and instruction_limit are 64-bit numbers, not negative")
        self.arch = arch
        self.ranks = ranks
        self.seed = seed
        self.threads = threads or len(os.sched_getaffinity(0))
        self.checks = checks or Checks()
        self.observe = observe
        self.instruction_limit = instruction_limit
        if getattr(_core, "REVISION", 1) != _REVISION:
            raise UsageError(
                "the simulator's native core was built from other sources than its Python side; build it again: "
                "pip install --no-build-isolation --no-deps -e ."
            )
        self._machine = _core.Machine(ranks)
        self._kept: dict[int, Any] = {}
        self._data: set[str] = set()
        self._watched: dict[int, int] = {}
        self._manifest: Manifest | None = None

    def load(self, source: str | Path, kernel: str | None = None) -> Program:
        """The program of an assembly text or of a `.s` file; `kernel` names one where there are several.

        Raises `AsmError` for text that cannot be executed, naming the line and the nearest known instruction.
        """
        if isinstance(source, Path) or ("\n" not in source and source.endswith(".s")):
            path = Path(source)
            if not path.is_file():
                raise UsageError(f"no file {path}")
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                raise UsageError(f"{path} is no assembly text") from None
            return load_program(text, str(path), kernel, self.arch)
        return load_program(source, "<asm>", kernel, self.arch)

    def register(
        self,
        rank: int | None,
        memory: Any,
        *,
        name: str = "",
        written: bool = True,
        output: bool = False,
    ) -> int:
        """Makes the storage of a torch tensor or numpy array device memory of `rank`, without a copy; its address.

        `rank` None: every rank may use it (peer memory). `written` False: its content counts as never written.
        `output`: storing a never-written value there is an error. The array is kept alive until `unregister`. A
        numpy array that is not writeable is read-only for kernels too.
        """
        address, size = _extent(memory)
        read_only = isinstance(memory, np.ndarray) and not memory.flags.writeable
        self._add(rank, address, size, name, written, output, read_only)
        self._kept[address] = memory
        return int(memory.ctypes.data) if isinstance(memory, np.ndarray) else int(memory.data_ptr())

    def register_memory(
        self,
        rank: int | None,
        address: int,
        nbytes: int,
        *,
        name: str = "",
        written: bool = True,
        output: bool = False,
        read_only: bool = False,
    ) -> None:
        """`register` by address and size; the caller keeps the memory alive."""
        self._add(rank, address, nbytes, name, written, output, read_only)

    def _add(
        self, rank: int | None, address: int, nbytes: int, name: str, written: bool, output: bool, read_only: bool
    ) -> None:
        if rank is not None and not 0 <= rank < self.ranks:
            raise UsageError(f"rank {rank} does not exist: the simulator has {self.ranks}")
        if nbytes <= 0:
            raise UsageError(f"buffer {name or hex(address)} is empty")
        label = name or f"buffer {address:#x}"
        try:
            self._machine.add_buffer(address, nbytes, label, -1 if rank is None else rank, written, output, read_only)
        except ValueError as error:
            raise UsageError(str(error)) from None
        for watched, role in self._watched.items():
            if address <= watched < address + nbytes:
                self._machine.set_role(watched, role)

    def watch(self, address: int, role: str) -> None:
        """Observers: the buffer that holds `address`, now or once it is registered, is `weight` or `handoff` memory."""
        if role not in _ROLES:
            raise UsageError(f"role {role!r} is none of {', '.join(_ROLES)}")
        self._watched[address] = _ROLES[role]
        self._machine.set_role(address, _ROLES[role])

    def unregister(self, address: int) -> None:
        """Forgets the buffer that starts at `address`; `UsageError` when there is none."""
        if not self._machine.remove_buffer(address):
            raise UsageError(f"no buffer starts at {address:#x}")
        self._kept.pop(address, None)

    def mark_written(self, address: int, nbytes: int) -> None:
        """The host wrote these bytes of a registered buffer."""
        try:
            self._machine.mark_written(address, nbytes)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def written(self, memory: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which bytes of a registered array were ever written: `bool[bytes of its storage]`."""
        address, size = _extent(memory)
        try:
            raw = self._machine.written(address)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if raw is None:
            return np.ones(size, dtype=bool)
        nibbles = np.frombuffer(raw, dtype=np.uint8)
        bits = (nibbles[:, None] >> np.arange(4, dtype=np.uint8)) & 1
        start = address % 4
        return np.asarray(bits.reshape(-1)[start : start + size].astype(bool))

    def set_manifest(self, manifest: Manifest | None, *, late: bool = False) -> None:
        """Turns the hand-off checks on for the regions of `manifest`; None turns them off.

        `late`: a store of a pair shows to another CTA's wave from its second look at the pair on, as if it were slow to
        arrive: every wait is met before what it waits for.
        """
        self._manifest = manifest
        regions = [] if manifest is None else [_region(manifest, region) for region in manifest]
        self._machine.set_regions(regions, late)

    def region_traffic(self) -> dict[tuple[int, str], tuple[int, int]]:
        """(rank, region) -> (words or pairs stored, those other CTAs read), since `set_manifest`."""
        regions = self._manifest or ()
        return {(r.rank, r.name): t for r, t in zip(regions, self._machine.region_traffic(), strict=True)}

    def launch(self, launches: Mapping[int, Launch] | Iterable[tuple[int, Launch]] | Launch) -> Report:
        """Runs one launch a rank, all together, until every CTA has ended.

        Raises `SimulationError` with what a check found, `HangError` when nothing can go on, `UsageError` for arguments
        that do not fit the kernel.
        """
        if isinstance(launches, Launch):
            launches = {0: launches}
        pairs = sorted(launches.items() if isinstance(launches, Mapping) else launches, key=lambda pair: pair[0])
        if not pairs:
            raise UsageError("no launch given")
        if len({rank for rank, _ in pairs}) != len(pairs):
            raise UsageError("two launches for one rank: give one launch a rank")
        native = [self._native(rank, launch) for rank, launch in pairs]
        programs = [(rank, launch.program) for rank, launch in pairs]
        start = time.perf_counter()
        try:
            raw = self._machine.launch(
                native,
                self.seed,
                self.threads,
                self.checks.written,
                self.checks.vgprs,
                self.observe,
                self.instruction_limit,
                **self._optional(),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        seconds = time.perf_counter() - start
        by_name = {program.name: program for _, program in programs}
        if raw["findings"]:
            raise SimulationError([_finding(entry, by_name) for entry in raw["findings"]])
        if raw["hang"]:
            raise HangError(self._groups(raw["waiting"], by_name, programs), raw["hang"])
        executed = tuple(raw["executed"])
        counts = observations_of(raw, programs, raw["buffer_names"]) if self.observe else None
        return Report(sum(executed), seconds, executed, counts)

    def _optional(self) -> dict[str, Any]:
        """What the core has to be told only where it is not the usual."""
        usual = Checks()
        names = ("lds_margin", "lds_races")
        return {n: getattr(self.checks, n) for n in names if getattr(self.checks, n) != getattr(usual, n)}

    def _native(self, rank: int, launch: Launch) -> tuple[int, Any, bytes, Dim3, Dim3, int]:
        if not isinstance(rank, int) or not 0 <= rank < self.ranks:
            raise UsageError(f"rank {rank} does not exist: the simulator has {self.ranks}")
        program = launch.program
        block = launch.block or program.kernel.workgroup
        if block is None:
            raise UsageError(f"kernel {program.name} has no required workgroup size: give Launch(block=...)")
        for name, extent in (("grid", launch.grid), ("block", block)):
            if len(extent) != 3 or not all(0 < int(number) < 1 << 32 for number in extent):
                raise UsageError(f"{name} {extent}: give three positive numbers")
        if not 0 <= launch.lds < 1 << 32:
            raise UsageError(f"lds {launch.lds}: give the bytes of dynamic LDS")
        if program.digest not in self._data:
            self._data.add(program.digest)
            for name, storage, start in program.data:
                size = len(storage) - (start - _address(storage)) - 8
                self._machine.add_buffer(start, size, f"constant {name}", -1, True, False, True)
        kernarg = program.kernarg(launch.args, launch.grid, block) if launch.kernarg is None else launch.kernarg
        wanted = program.kernel.descriptor.get("kernarg_size", 0)
        explicit = max((a.offset + a.size for a in program.kernel.explicit_arguments), default=0)
        if len(kernarg) < explicit:
            raise UsageError(f"kernarg has {len(kernarg)} bytes, the arguments of {program.name} take {explicit}")
        if len(kernarg) < wanted:
            hidden = program.kernarg([0] * len(program.kernel.explicit_arguments), launch.grid, block)
            kernarg = kernarg + hidden[len(kernarg) :]
        return rank, program.native, kernarg, launch.grid, block, launch.lds

    def _groups(
        self, waiting: list[tuple[Any, ...]], programs: Mapping[str, Program], launched: list[tuple[int, Program]]
    ) -> list[WaitingGroup]:
        """Waves that wait for the same location at the same instruction, together."""
        by_rank = dict(launched)
        found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for entry in waiting:
            rank, _, _, why, _, line, _, _, address, _, _ = entry
            found.setdefault((rank, line, why, address), []).append(entry)
        groups = []
        for (rank, line, why, address), entries in sorted(found.items()):
            text, file, loc, value, buffer = (entries[0][i] for i in (4, 6, 7, 9, 10))
            groups.append(
                WaitingGroup(
                    rank=rank,
                    ctas=tuple(sorted({entry[1] for entry in entries})),
                    waves=len(entries),
                    why=why,
                    line=line,
                    instruction=text,
                    source=by_rank[rank].source(file, loc),
                    address=address,
                    buffer=buffer,
                    region=self._region_at(address),
                    value=value,
                )
            )
        return groups

    def _region_at(self, address: int) -> str:
        for region in self._manifest or ():
            if region.address <= address < region.address + region.nbytes:
                return region.name
        return ""


def _address(storage: Any) -> int:
    import ctypes

    return ctypes.addressof(storage)


def _region(manifest: Manifest, region: Region) -> tuple[Any, ...]:
    """(name, address, bytes, rank, kind, scope, writers, readers, writer ranks, reads, flag index, unit bytes)."""
    kinds = {Kind.TAG: 0, Kind.FLAG: 1, Kind.PLAIN: 2, Kind.WORD: 3}
    return (
        region.name,
        region.address,
        region.nbytes,
        region.rank,
        kinds[region.kind],
        int(region.scope is Scope.SYSTEM),
        list(region.writers or ()),
        region.writers is not None,
        list(region.readers or ()),
        region.readers is not None,
        list(region.writer_ranks or ()),
        region.writer_ranks is not None,
        region.reads,
        manifest.flag_index(region),
        region.unit_bytes,
    )


def _finding(entry: tuple[Any, ...], programs: Mapping[str, Program]) -> Finding:
    kind, message, kernel, text, line, file, loc, rank, cta, wave, lane, address, buffer, *rest = entry
    details = dict(rest[0]) if rest else {}
    source = programs[kernel].source(file, loc)
    return Finding(kind, message, kernel, text, line, source, rank, cta, wave, lane, address, buffer, details)
