"""A launch around rendered stages: the task loops, the regions in any form, the kernel arguments.

Conventions of a skeleton the launch relies on:

- ``params.describe()`` gives the regions: the function's region parameters are those read, then those written, each
  once, in that order; it takes its LDS struct, ``<stage>_lds(b)`` (rendered by ``templates/lds.j2``), if
  it has LDS members.
- ``params.arguments()`` gives the kernel arguments (:class:`TensorArg`) the function takes after its regions, in order.

``Form.BARRIER`` regions are published by the launch boundary here: a launch with one gets a kernel a stage.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import monoc.device
from monoc.build.isa import IsaResult, compile_isa
from monoc.schedule.model import Form, RegionWrite, StageShape
from monoc.sim.handoff import Kind, Manifest, Region, Scope
from monoc.sim.observe import Report
from monoc.sim.simulator import Launch, Simulator
from monoc.skeletons.base import render_stage

__all__ = ["TAG", "Bench", "Outcome", "Placed", "evaluate", "from_bits", "to_bits"]

TAG = 0x2B
_DEVICE = tuple(sorted(p.stem for p in Path(monoc.device.__file__).parent.glob("[a-z]*.py")))
_HEAD = """\
import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, gpu, range_constexpr, rocdl


def cdiv(a, b):
    return -(-a // b)


def round_up(a, b):
    return cdiv(a, b) * b
"""


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return cdiv(a, b) * b


def evaluate(text: str, dims: Mapping[str, int], build: Mapping[str, Any], task: int = 0) -> int:
    """A formula's value in one build."""
    names = {"cdiv": cdiv, "round_up": round_up, "min": min, "max": max, "b": SimpleNamespace(**build), "i": task}
    return int(eval(text, {"__builtins__": {}, **names, **dims}))


def to_bits(values: np.ndarray) -> np.ndarray:
    """f32 values rounded to bf16 (nearest even) as uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """bf16 bits (uint16) as f32."""
    return (np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Placed:
    """A stage and the CTA its first task runs on."""

    params: Any
    at: int = 0

    @property
    def name(self) -> str:
        return str(self.params.stage)

    @property
    def shape(self) -> StageShape:
        shape: StageShape = self.params.describe()
        return shape

    @property
    def regions(self) -> tuple[str, ...]:
        shape = self.shape
        return tuple(dict.fromkeys([r.region for r in shape.reads] + [w.region for w in shape.writes]))


@dataclass
class _Place:
    """Where a region lies in the scratch (or peer) buffer, in bytes."""

    form: Form
    words: int
    units: int
    offset: int

    @property
    def flags(self) -> int:
        return self.offset + round_up(4 * self.words, 256)

    @property
    def bytes(self) -> int:
        if self.form in (Form.PAIR, Form.PEER):
            return 8 * self.words
        return round_up(4 * self.words, 256) + (8 * self.units if self.form is Form.FLAG else 0)


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    places: Mapping[str, _Place]
    scratch: Sequence[np.ndarray]
    peers: Sequence[np.ndarray]
    reports: tuple[Report, ...]

    @property
    def executed(self) -> int:
        """Wave instructions, all ranks."""
        return sum(report.instructions for report in self.reports)

    def region(self, name: str, rank: int = 0) -> np.ndarray:
        """The words (uint32) of a region; every one must have been handed off."""
        place = self.places[name]
        memory = (self.peers if place.form is Form.PEER else self.scratch)[rank]
        at = place.offset // 4
        if place.form in (Form.PAIR, Form.PEER):
            pairs = memory[at : at + 2 * place.words].reshape(-1, 2)
            missing = np.flatnonzero(pairs[:, 1] != TAG)
            if missing.size:
                raise AssertionError(f"{name}: {missing.size} words never put, the first at {missing[0]}")
            return pairs[:, 0].copy()
        if place.form is Form.FLAG:
            flags = memory[place.flags // 4 : place.flags // 4 + 2 * place.units].reshape(-1, 2)
            missing = np.flatnonzero((flags != (1, TAG)).any(1))
            if missing.size:
                raise AssertionError(f"{name}: {missing.size} units never done, the first {missing[0]}")
        return memory[at : at + place.words].copy()


def _address(value: Any) -> int:
    return int(value.ctypes.data) if isinstance(value, np.ndarray) else int(value)


@dataclass
class Bench:
    """Stages in launch order, built for ``dims`` (constants) and ``build`` (fields of ``b``).

    ``forms``: the form of each region by name (default: :attr:`form`); ``external``: (words, units) of regions no
    stage here writes. ``tmp``: a directory for the module's source.
    """

    stages: Sequence[Placed]
    dims: Mapping[str, int]
    build: Mapping[str, Any]
    tmp: Path
    grid: int = 4
    threads: int = 512
    form: Form = Form.PAIR
    forms: Mapping[str, Form] = field(default_factory=dict)
    external: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tp = int(self.build.get("tp", 1))
        self.places = self._lay_out()
        self.arguments = tuple(dict.fromkeys(a.name for stage in self.stages for a in stage.params.arguments()))
        self.merged = all(place.form is not Form.BARRIER for place in self.places.values())
        self.source = self._source()
        self.module = self._load()

    # ------------------------------------------------------------ layout

    def number(self, text: str, task: int = 0) -> int:
        return evaluate(text, {"GRID": self.grid, "THREADS": self.threads, **self.dims}, self.build, task)

    def _lay_out(self) -> dict[str, _Place]:
        writes: dict[str, RegionWrite] = {w.region: w for s in self.stages for w in s.shape.writes}
        places: dict[str, _Place] = {}
        at = {False: 0, True: 0}
        for name in dict.fromkeys(r for s in self.stages for r in s.regions):
            if name in writes:
                copies = self.number(writes[name].copies)
                words, units = self.number(writes[name].words) * copies, self.number(writes[name].units)
                default = Form.PEER if writes[name].default is Form.PEER else self.form
            else:
                words, units = self.external[name]
                default = self.form
            place = _Place(self.forms.get(name, default), words, units, 0)
            peer = place.form is Form.PEER
            place.offset = at[peer]
            at[peer] += round_up(place.bytes, 256)
            places[name] = place
        self.scratch_bytes, self.peer_bytes = max(at[False], 256), max(at[True], 256)
        return places

    # ------------------------------------------------------------ source

    def _region(self, name: str) -> str:
        place = self.places[name]
        own = f'args["scratch"] + fx.Int64({place.offset})'
        match place.form:
            case Form.PAIR:
                return f"PairRegion({own}, tag)"
            case Form.FLAG:
                return f'FlagRegion(PlainRegion({own}), args["scratch"] + fx.Int64({place.flags}), tag)'
            case Form.BARRIER:
                return f"PlainRegion({own})"
            case Form.PEER:
                table = [f'constant_load(args["peers"] + fx.Int64({8 * r}))' for r in range(self.tp)]
                copies = ", ".join(f"{t} + fx.Int64({place.offset})" for t in table)
                return f'PeerRegion(({copies},), args["own"] + fx.Int64({place.offset}), tag)'
        raise AssertionError(place.form)

    def _source(self) -> str:
        out = [_HEAD]
        out += [f"from monoc.device.{module} import *" for module in _DEVICE]
        constants = {"GRID": self.grid, "THREADS": self.threads, **self.dims}
        out.append("\n".join(f"{k} = {v!r}" for k, v in constants.items()))
        fields = {"tokens": 1, "tp": 1, "grid": self.grid, "threads": self.threads, **self.build}
        # compare by value: FlyDSL keys a kernel's cache by what its closure holds
        out.append(
            "\n".join(["class Build(Frozen):", *(f"    {k} = {v!r}" for k, v in fields.items())]) + "\n\nB = Build()"
        )
        out += [render_stage(stage.params) for stage in self.stages]
        if self.merged:
            out.append(self._kernel("bench", self.stages))
        else:
            out += [self._kernel(f"bench_{stage.name}", [stage]) for stage in self.stages]
        return "\n\n".join(out) + "\n"

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels' arguments, in launch order."""
        return (*self.arguments, "scratch", "own", "peers", "tag")

    def _kernel(self, name: str, stages: Sequence[Placed]) -> str:
        signature = ", ".join(f"{a}: fx.Int64" for a in self.names)
        with_lds = [s for s in stages if s.shape.lds]
        lines = []
        if with_lds:
            lines.append("@fx.union\nclass Lds_" + name + ":")
            lines += [f"    {s.name}: {s.name}_lds(B)" for s in with_lds]
        lines += [
            "",
            f'@flyc.kernel(name="{name}", known_block_size=[{self.threads}, 1, 1])',
            f"def {name}({signature}):",
            f"    cta = Cta(fx.block_idx.x, fx.thread_idx.x, {self.grid}, {self.threads})",
        ]
        if with_lds:
            lines.append(f"    shared = fx.SharedAllocator().allocate(Lds_{name})")
        for s in stages:
            lines += [
                f"    args = Args({self.names!r}).stage()",
                '    tag = fx.Int32(args["tag"])',
                *([f"    lds_{s.name} = shared.{s.name}.peek()"] if s.shape.lds else []),
                *self._ready(s),
                f"    for task in range(first_task(cta, {s.at}), tasks, {self.grid}):",
                f"        {s.name}(",
                f"            cta, B, lds_{s.name}," if s.shape.lds else "            cta, B,",
                *[f"            {self._region(r)}," for r in s.regions],
                *[f'            args["{a.name}"],' for a in s.params.arguments()],
                "            task,",
                *(["            ready,"] if getattr(s.params, "ready", ()) else []),
                "        )",
                "    gpu.barrier()",
            ]
        lines += [
            "",
            "@flyc.jit",
            f"def launch_{name}({signature}, stream: fx.Stream = fx.Stream(None)):",
            f"    {name}({', '.join(self.names)}).launch(",
            f"        grid=({self.grid},), block=({self.threads},), stream=stream",
            "    )",
        ]
        return "\n".join(lines)

    def _ready(self, stage: Placed) -> list[str]:
        """``tasks``: how many the stage has; counted on the device where it says which of them there are."""
        given = "".join(f', args["{name}"]' for name in getattr(stage.params, "ready", ()))
        if not given:
            return [f"    tasks = {stage.shape.tasks.replace('b.', 'B.')}"]
        return [f"    ready = {stage.name}_ready(cta, B{given})", "    tasks = ready.total"]

    def _load(self) -> ModuleType:
        path = self.tmp / f"bench_{abs(hash(self.source)):x}.py"
        path.write_text(self.source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    # ------------------------------------------------------------ compiling

    def compile(self, arch: str = "gfx950") -> list[IsaResult]:
        """The kernels of the launch: one, or one a stage where a region is in barrier form."""
        launches = ["bench"] if self.merged else [f"bench_{s.name}" for s in self.stages]
        return [compile_isa(getattr(self.module, f"launch_{n}"), (0,) * len(self.names), arch) for n in launches]

    # ------------------------------------------------------------ running

    def run(
        self,
        inputs: Sequence[Mapping[str, Any]],
        given: Sequence[Mapping[str, np.ndarray]] = (),
        *,
        seed: int = 0,
        threads: int | None = None,
        chunks: Mapping[str, int] | None = None,
    ) -> Outcome:
        """The launch on the simulator: one mapping of kernel arguments (arrays, written in place, or ints) a rank.

        ``given``: the words (uint32) of regions no stage here writes, a mapping a rank, as if handed off in this
        launch. Peer regions of ``given`` hold what the ranks have pushed to that rank.
        """
        given = given or [{} for _ in inputs]
        simulator = Simulator("gfx950", ranks=len(inputs), seed=seed, threads=threads)
        scratch = [np.zeros(self.scratch_bytes // 4, np.uint32) for _ in inputs]
        peers = [np.zeros(self.peer_bytes // 4, np.uint32) for _ in inputs]
        table = np.array([p.ctypes.data for p in peers], np.uint64)
        simulator.register(None, table, name="peers")
        known: set[int] = {table.ctypes.data}
        for rank, arguments in enumerate(inputs):
            simulator.register(rank, scratch[rank], name="scratch")
            simulator.register(None, peers[rank], name=f"peer buffer {rank}")
            for name, value in arguments.items():
                if isinstance(value, np.ndarray) and value.ctypes.data not in known:
                    known.add(value.ctypes.data)
                    simulator.register(rank, value, name=name)
            for name, words in given[rank].items():
                self._hand_off(self.places[name], words, scratch[rank], peers[rank])
        if chunks is not None:
            simulator.set_manifest(self._manifest(chunks, scratch, peers))
        reports = []
        for result in self.compile():
            program = simulator.load(result.text)
            launches = {}
            for rank, arguments in enumerate(inputs):
                own = {"scratch": scratch[rank], "own": peers[rank], "peers": table, "tag": TAG, **arguments}
                values = [_address(own[name]) for name in self.names]
                launches[rank] = Launch(program, values, grid=(self.grid, 1, 1))
            reports.append(simulator.launch(launches))
        return Outcome(self.places, scratch, peers, tuple(reports))

    def _manifest(
        self, chunks: Mapping[str, int], scratch: Sequence[np.ndarray], peers: Sequence[np.ndarray]
    ) -> Manifest:
        regions = []
        for rank, (own, peer) in enumerate(zip(scratch, peers, strict=True)):
            for name, place in self.places.items():
                base = (peer if place.form is Form.PEER else own).ctypes.data
                at, size = base + place.offset, 4 * place.words
                if place.form is Form.FLAG:
                    flags, unit = f"{name} flags", 4 * chunks[name]
                    regions.append(Region(flags, base + place.flags, 8 * place.units, Kind.FLAG, rank=rank))
                    regions.append(Region(name, at, size, Kind.PLAIN, rank=rank, flag=flags, unit_bytes=unit))
                elif place.form is not Form.BARRIER:
                    scope = Scope.SYSTEM if place.form is Form.PEER else Scope.DEVICE
                    regions.append(Region(name, at, 2 * size, Kind.TAG, scope, rank))
        return Manifest(tuple(regions))

    def _hand_off(self, place: _Place, words: np.ndarray, scratch: np.ndarray, peers: np.ndarray) -> None:
        memory = peers if place.form is Form.PEER else scratch
        words = np.ascontiguousarray(words).reshape(-1).view(np.uint32)
        if words.size != place.words:
            raise ValueError(f"the region has {place.words} words, {words.size} were given")
        at = place.offset // 4
        if place.form in (Form.PAIR, Form.PEER):
            pairs = memory[at : at + 2 * place.words].reshape(-1, 2)
            pairs[:, 0], pairs[:, 1] = words, TAG
            return
        memory[at : at + place.words] = words
        if place.form is Form.FLAG:
            flags = memory[place.flags // 4 : place.flags // 4 + 2 * place.units].reshape(-1, 2)
            flags[:] = (1, TAG)
