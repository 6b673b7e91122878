"""A launch of one build in numbers: every task's reads and writes as arrays, straight from ``plan.py``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monoc.schedule.loader import PlanModule
from monoc.schedule.regions import HandOffError

__all__ = ["AccessTable", "LaunchTable", "StageTable", "tabulate"]

Ints = NDArray[np.int64]
_MOST = 1 << 22  # tasks of a stage and units of a region: more are a wrong size in the spec, and would fill memory


@dataclass(frozen=True)
class AccessTable:
    """What the tasks of a stage read or write of ``region``: task i the units ``first[i] + k * stride[i]``,
    ``k < count[i]``. ``words`` and ``total`` are a write's (0 for a read), ``part`` a read's."""

    region: str
    step: int
    first: Ints
    count: Ints
    stride: Ints
    words: int = 0
    total: int = 0
    counted: bool = False
    part: int = 1

    @property
    def extremes(self) -> tuple[int, int]:
        """The lowest and the highest unit (0, -1 for none)."""
        some = self.count > 0
        if not some.any():
            return 0, -1
        first, last = self.first[some], (self.first + (self.count - 1) * self.stride)[some]
        return int(min(first.min(), last.min())), int(max(first.max(), last.max()))

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """(task, unit) of every access, tasks ascending."""
        task = np.repeat(np.arange(len(self.count)), self.count)
        within = np.arange(len(task)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        return task, self.first[task] + within * self.stride[task]


@dataclass(frozen=True)
class StageTable:
    """A stage of one build. ``position`` is its place in program order."""

    name: str
    position: int
    tasks: int
    first_cta: int
    take: str
    reads: tuple[AccessTable, ...]
    writes: tuple[AccessTable, ...]


@dataclass(frozen=True)
class LaunchTable:
    """A launch of one build: stages in program order, its regions (records of plan.py), barriers and
    edges."""

    name: str
    grid: int
    stages: dict[str, StageTable]
    regions: dict[str, Any]
    barriers: tuple[str, ...]
    edges: tuple[tuple[str, str, str], ...]
    carried: dict[str, AccessTable] = field(default_factory=dict)  # what earlier launches wrote of a region

    @cached_property
    def key(self) -> str:
        """Equal for builds whose tables are equal: their proofs are the same."""
        h = hashlib.sha256(repr((self.name, self.grid, self.barriers, self.edges)).encode())
        h.update(repr([(n, tuple(r)) for n, r in self.regions.items()]).encode())
        for stage in self.stages.values():
            h.update(repr((stage.name, stage.tasks, stage.first_cta % self.grid, stage.take)).encode())
            for access in (*stage.reads, *stage.writes, *self.carried.values()):
                h.update(repr((access.region, access.step, access.words, access.total, access.counted)).encode())
                for array in (access.first, access.count, access.stride):
                    h.update(array.tobytes())
        return h.hexdigest()

    def writers(self, region: str) -> list[tuple[StageTable, AccessTable]]:
        """The stages that write ``region``."""
        return [(s, w) for s in self.stages.values() for w in s.writes if w.region == region]

    def fenced(self, producer: StageTable, consumer: StageTable) -> bool:
        """Whether a grid barrier separates the two stages, in that order."""
        return any(producer.position < self.stages[b].position <= consumer.position for b in self.barriers)


def tabulate(plan: PlanModule, b: Any, launch: str) -> LaunchTable:
    """Launch ``launch`` of build ``b`` evaluated from the plan's own functions. Raises
    :class:`~monoc.schedule.regions.HandOffError` for one too large to schedule."""
    described = plan.LAUNCHES[launch]
    stages: dict[str, StageTable] = {}
    for position, (name, stage) in enumerate(described.stages(b).items()):
        if stage.tasks > _MOST or any(w.total > _MOST for w in stage.writes):
            raise HandOffError(
                f"launch {launch}: stage {name!r} has {stage.tasks} tasks, and regions of up to "
                f"{max((w.total for w in stage.writes), default=0)} units; more than {_MOST} of either cannot be "
                "scheduled: the sizes are too large",
                (launch, name),
            )
        tasks = np.arange(stage.tasks, dtype=np.int64)
        reads = tuple(AccessTable(r.region, r.step, *_units(r.units, tasks), part=r.part) for r in stage.reads)
        writes = tuple(_write(w, tasks) for w in stage.writes)
        stages[name] = StageTable(name, position, stage.tasks, stage.first_cta, stage.take, reads, writes)
    edges = [
        e
        for e in described.edges
        if e.consumer in stages and (e.producer in stages or ("." in e.producer and plan.runs(b, launch, e.producer)))
    ]
    return LaunchTable(
        launch,
        plan.GRID,
        stages,
        described.regions(b),
        tuple(n for n in described.barriers(b) if n in stages),
        tuple((e.region, e.producer, e.consumer) for e in edges),
        {e.region: w for e in edges if "." in e.producer for w in _carried(plan, b, e)},
    )


def _carried(plan: PlanModule, b: Any, edge: Any) -> list[AccessTable]:
    launch, _, name = edge.producer.rpartition(".")
    stage = plan.LAUNCHES[launch].stages(b)[name]
    return [_write(w, np.arange(stage.tasks, dtype=np.int64)) for w in stage.writes if w.region == edge.region]


def _write(w: Any, tasks: Ints) -> AccessTable:
    return AccessTable(w.region, w.step, *_units(w.units, tasks), w.words, w.total, w.counted)


def _units(units: Callable[[Any], Any], tasks: Ints) -> tuple[Ints, Ints, Ints]:
    try:
        parts = units(tasks)
    except ValueError:  # a formula that branches on the task index: one task at a time
        rows = np.array([units(int(i)) for i in tasks], dtype=np.int64).reshape(-1, 3)
        return rows[:, 0], rows[:, 1], rows[:, 2]
    first, count, stride = (p if isinstance(p, np.ndarray) else np.full(len(tasks), p, np.int64) for p in parts)
    return first, count, stride
