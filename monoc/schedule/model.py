"""The schedule: what the passes decide about a package, as frozen data everybody downstream reads.

All numbers are :data:`~monoc.schedule.formula.Formula` texts in one build ``b`` (and, where a field says so,
the task index ``i``), because one package serves every build of its spec. Units: a *word* is 32 bits; a
*unit* is the part of a region that one flag announces in the flag form (a token, a row tile, a column slice);
sizes are bytes.

A skeleton's ``describe(params)`` returns a :class:`StageShape`; the passes make :class:`Stage` and
:class:`Launch` of them; the scheduler adds regions, hand-offs, barriers and offsets and returns the
:class:`Schedule` that ``monoc/schedule/printer.py`` prints as ``plan.py`` and ``monoc/emit/`` prints as
launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from monoc.schedule.formula import Formula

__all__ = [
    "ONE",
    "TRUE",
    "ZERO",
    "Barrier",
    "Carried",
    "Edge",
    "Field",
    "Form",
    "FormRule",
    "Launch",
    "LdsMember",
    "Lifetime",
    "Region",
    "RegionRead",
    "RegionWrite",
    "Schedule",
    "Scope",
    "Space",
    "Stage",
    "StageShape",
    "Take",
    "Units",
    "Variant",
]

ZERO, ONE, TRUE = Formula("0"), Formula("1"), Formula("True")


class Form(StrEnum):
    """How a region's words reach their readers (``monoc/device/handoff.py``)."""

    PAIR = "pair"  # (word, tag) pairs, polled
    FLAG = "flag"  # plain words, then a tagged flag a unit
    BARRIER = "barrier"  # plain words, a grid barrier between the stages
    PEER = "peer"  # (word, tag) pairs stored to every rank's copy
    TWO_HOP = "two_hop"  # (word, tag) pairs to the column's owner rank's copy; a PEER region carries the sums back
    LAUNCH = "launch"  # plain words, the launch boundary publishes them

    @property
    def tagged(self) -> bool:
        """Whether every word of the region carries a tag (a flag region's data words do not)."""
        return self in (Form.PAIR, Form.PEER, Form.TWO_HOP)


class Scope(StrEnum):
    """Cache scope of a region's stores and loads."""

    DEVICE = "device"
    SYSTEM = "system"


class Space(StrEnum):
    """Which buffer holds a region."""

    SCRATCH = "scratch"  # one a (step width, variant), this rank's
    PEER = "peer"  # symmetric, shared by all widths, two halves by epoch parity


class Take(StrEnum):
    """How a CTA comes by its tasks of a stage."""

    PLACED = "placed"  # CTA c: (c - first_cta) mod grid, + grid, ...
    QUEUE = "queue"  # the first round placed, later tasks from an atomic counter, in increasing order
    PACKED = "packed"  # as placed, of the tasks that have work, in order
    ARRIVAL = "arrival"  # the first round placed, task grid + r to the r-th CTA that arrives


@dataclass(frozen=True)
class LdsMember:
    """One LDS array of a stage: ``count`` elements of ``dtype`` (a DType value), aligned to ``align``
    bytes."""

    name: str
    dtype: str
    count: Formula
    align: int = 16


@dataclass(frozen=True)
class Units:
    """The units ``first, first + stride, ...`` (``count`` of them) of a region, in terms of the task index
    ``i``."""

    first: Formula
    count: Formula = ONE
    stride: Formula = ONE


@dataclass(frozen=True)
class RegionWrite:
    """What a stage's tasks write of a region.

    ``words``: 32-bit words of the whole region (of every source rank together for a peer region); ``units``:
    its units; ``task_units``: those task ``i`` announces, all of them by itself. ``default``: the form the
    scheduler starts from; ``forms``: those the skeleton can serve. ``step``: position inside the task; a
    task's reads at a smaller or equal step are waited for before the write. ``counted``: every unit exists
    only as far as runtime counts say (expert tasks). ``two_hop``: the builds in which a PEER write goes to the
    owner of its columns only.
    """

    region: str
    words: Formula
    units: Formula
    task_units: Units
    scope: Scope = Scope.DEVICE
    default: Form = Form.PAIR
    forms: tuple[Form, ...] = (Form.PAIR, Form.FLAG, Form.BARRIER)
    step: int = 1
    counted: bool = False
    copies: Formula = ONE
    two_hop: Formula = ZERO


@dataclass(frozen=True)
class RegionRead:
    """What a stage's tasks read of a region: task ``i`` waits for ``task_units`` before it reads them.

    ``step``: position inside the task (see :class:`RegionWrite`); a two-hop gather reads at step 2 what
    the same stage wrote at step 1. ``part``: a task reads one ``part``-th of its units' words (a norm of one
    token reads that token's columns of every slice).
    """

    region: str
    task_units: Units
    step: int = 0
    part: Formula = ONE


@dataclass(frozen=True)
class StageShape:
    """A skeleton's ``describe(params)``: everything the scheduler needs to know about a stage.

    ``weight_bytes``: bytes of weights task ``i`` streams; ``counters``: words of the epoch buffer the stage
    takes tasks or ranks from.
    """

    tasks: Formula
    lds: tuple[LdsMember, ...] = ()
    writes: tuple[RegionWrite, ...] = ()
    reads: tuple[RegionRead, ...] = ()
    weight_bytes: Formula = ZERO
    take: Take = Take.PLACED
    counters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One task table of a launch. ``params`` is the skeleton's params instance; ``guard`` says in which
    builds it runs.

    ``first_cta``: where the spec fixed its first task, modulo the grid; None: on the CTA after the last one the
    stages before it occupy.
    ``statements``: qualified names of the spec statements the stage computes.
    """

    name: str
    skeleton: str
    params: Any
    shape: StageShape
    first_cta: Formula | None = None
    guard: Formula = TRUE
    statements: tuple[str, ...] = ()
    placement_reason: str = ""


@dataclass(frozen=True)
class FormRule:
    """``form`` in the builds where ``when`` holds and no earlier rule did, and why."""

    form: Form
    when: Formula
    reason: str


@dataclass(frozen=True)
class Lifetime:
    """Stages (names, in launch order) between which a region's words matter: the first write to the last
    read."""

    first: str
    last: str


@dataclass(frozen=True)
class Region:
    """A hand-off region of one launch.

    ``rules``: its form, first match wins (the first is always the all-barrier build's). ``words`` and
    ``units`` as in :class:`RegionWrite`. ``shares``: the region whose bytes it reuses, "" for bytes of its
    own; the printed offset rule is "after the previous region in the list, aligned" otherwise. ``copies``:
    copies the writer stores (readers pick by CTA id to spread the polling).
    """

    name: str
    launch: str
    space: Space
    scope: Scope
    words: Formula
    units: Formula
    rules: tuple[FormRule, ...]
    lifetime: Lifetime
    guard: Formula = TRUE
    shares: str = ""
    copies: Formula = ONE


@dataclass(frozen=True)
class Edge:
    """One hand-off: ``consumer`` reads what ``producer`` wrote of ``region``; forms and reasons as the
    region's rules."""

    launch: str
    region: str
    producer: str
    consumer: str
    rules: tuple[FormRule, ...]


@dataclass(frozen=True)
class Barrier:
    """A grid barrier before ``before`` in the builds where ``when`` holds; it orders ``regions``."""

    before: str
    when: Formula
    regions: tuple[str, ...]


@dataclass(frozen=True)
class Carried:
    """Region ``region`` of launch ``source``, read in a later launch of the same step: its bytes stay, the launch
    boundary publishes them. The later launch may have a writer of its own in the builds where the source has none."""

    region: str
    source: str


@dataclass(frozen=True)
class Launch:
    """A persistent launch: its stages in program order. ``tag``: the launch's tag offset t in ``2 * epoch +
    t``.

    ``ends_epoch``: CTA 0 stores the next epoch once every CTA has marked the launch.
    """

    name: str
    stages: tuple[Stage, ...]
    barriers: tuple[Barrier, ...] = ()
    tag: int = 1
    ends_epoch: bool = False
    guard: Formula = TRUE
    carried: tuple[Carried, ...] = ()


@dataclass(frozen=True)
class Field:
    """A build parameter (a field of ``Plan``) and the values it takes, the first one its default."""

    name: str
    values: tuple[int | bool | str, ...]


@dataclass(frozen=True)
class Variant:
    """A named complete variant of the layer: the values its build parameters take."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Schedule:
    """A package's schedule.

    ``dims``: build-independent constants (upper case); ``properties``: build-dependent dimensions, printed as
    properties of ``Plan`` and defined in this order; ``variants`` and ``require``: the build space;
    ``scratch_key``: the fields that choose a scratch buffer (builds that agree in them share one, so their
    layouts must agree); ``flags``: boolean options every build takes (``barriers``, ``timeline``), besides
    ``wait_limit``; ``target``: the target's name.
    """

    name: str
    target: str
    grid: int
    threads: int
    dims: tuple[tuple[str, int], ...]
    properties: tuple[tuple[str, Formula], ...]
    variants: tuple[Variant, ...]
    require: tuple[Formula, ...]
    launches: tuple[Launch, ...]
    regions: tuple[Region, ...]
    edges: tuple[Edge, ...]
    scratch_key: tuple[str, ...] = ("tokens", "tp", "variant", "barriers")
    flags: tuple[str, ...] = ("barriers", "timeline")
    peer_halves: int = 2
    epochs: int = 2**31 - 256
    counter_slots: int = 256
    counter_ahead: int = 128
