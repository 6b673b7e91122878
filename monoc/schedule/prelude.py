"""The fixed text of ``plan.py``: its records and the layout arithmetic every package shares."""

from __future__ import annotations

__all__ = ["EPILOGUE", "PRELUDE", "RECORDS"]

PRELUDE = '''
"""Plan of @NAME@: every number the launches, the runner and the proofs share, for every build.

A word is 32 bits; a unit is the part of a region one flag announces; sizes and offsets are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import NamedTuple
'''

RECORDS = '''
WORD_BYTES = 4
PAIR_BYTES = 8  # a (word, tag) pair
ALIGN = 256
MARKS_WORD = 64  # the epoch buffer: the epoch word, then from here a mark a CTA, then the counters
PAIR_FORMS = ("pair", "peer", "two_hop")
TICKS = 100  # of the GPUs' realtime clock in a microsecond
# Waits of no region, -1, -2, ... in a health record; whether for other ranks; how many stages before the wait's own
# the last one lies that had to run for it (None: none had to).
OTHER_WAITS: tuple[tuple[str, bool, int | None], ...] = (
    ("the grid barrier", False, 1),
    ("the epoch's marks", False, None),
    ("the end marks of its CTAs", False, 1),
    ("the end marks of the other ranks", True, 0),
)
LONGEST_WAIT = 20_000_000  # microseconds: differences of the clock's low word are right up to 42 s
DTYPE_BYTES = {"f32": 4, "i32": 4, "bf16": 2, "i64": 8, "u8": 1, "e4m3": 1, "e2m1x2": 1, "e8m0": 1}


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The smallest multiple of b that is not below a."""
    return cdiv(a, b) * b


class Units(NamedTuple):
    """Units first, first + stride, ... of a region, count of them."""

    first: int
    count: int = 1
    stride: int = 1


def own(i: int) -> Units:
    """Task i's own unit."""
    return Units(i)


def nothing(i: int) -> int:
    """No weights."""
    return 0


class Read(NamedTuple):
    """Task i waits for these units of ``region`` at ``step`` of its work and reads 1 / ``part`` of their
    words."""

    region: str
    units: Callable[[int], Units] = own
    part: int = 1
    step: int = 0


class Write(NamedTuple):
    """Task i stores and announces these units; all tasks together ``words`` words in ``total`` units.

    ``counted``: only as many exist in a step as its routing fills.
    """

    region: str
    words: int
    total: int
    units: Callable[[int], Units] = own
    step: int = 1
    counted: bool = False


class Lds(NamedTuple):
    """An LDS array of a stage."""

    name: str
    dtype: str
    count: int
    align: int = 16


class Stage(NamedTuple):
    """A task table: CTA c runs tasks (c - first_cta) mod GRID, + GRID, ... (``take``: placed), or past the
    first round takes them from an atomic counter in order (queue), or task GRID + r as the r-th to arrive
    (arrival)."""

    tasks: int
    first_cta: int
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    lds: tuple[Lds, ...] = ()
    weight_bytes: Callable[[int], int] = nothing
    take: str = "placed"
    counters: tuple[str, ...] = ()

    @property
    def lds_bytes(self) -> int:
        end = 0
        for member in self.lds:
            end = round_up(end, member.align) + member.count * DTYPE_BYTES[member.dtype]
        return round_up(end, 16)


class Region(NamedTuple):
    """What one stage hands to others: ``copies`` times ``words`` words in ``units`` units."""

    space: str
    scope: str
    form: str
    words: int
    units: int
    tag: int
    lifetime: tuple[str, str]
    copies: int = 1
    forms: tuple[str, ...] = ()  # other forms it has in builds that share the buffer: there is room for all

    @property
    def flags(self) -> int:
        """Byte offset of the units' flags inside the region (flag form)."""
        return round_up(self.words * self.copies * WORD_BYTES, ALIGN)

    def size(self, form: str) -> int:
        """Bytes in this form."""
        if form in PAIR_FORMS:
            return self.words * self.copies * PAIR_BYTES
        return self.flags + (self.units * PAIR_BYTES if form == "flag" else 0)

    @property
    def bytes(self) -> int:
        """Bytes used."""
        return self.size(self.form)

    @property
    def room(self) -> int:
        """Bytes reserved."""
        return max(self.size(form) for form in (self.form, *self.forms))


class Edge(NamedTuple):
    """``consumer`` reads what ``producer`` ("launch.stage" if of an earlier launch) wrote of ``region``."""

    region: str
    producer: str
    consumer: str


class HandOff(NamedTuple):
    """An edge of one build, as the simulator's checker wants it."""

    region: str
    writer: str
    readers: tuple[str, ...]
    form: str
    scope: str
    space: str
    tag: int


class Health(NamedTuple):
    """Where a launch of a build with a wait limit of ``ticks`` keeps what ends it: words of an area that starts
    at ``byte`` of every rank's peer buffer. The stop word; a word a rank (``ended``: the tag of the step it has done)
    and a CTA (``marks``: the same); a record for each CTA of each rank: 1 if it gave up, then launch, stage, region,
    tag awaited, tag seen, ticks waited.
    """

    ticks: int
    launch: int
    ranks: int
    grid: int
    byte: int
    stop: int = 0

    @property
    def ended(self) -> int:
        return 64

    @property
    def records(self) -> int:
        return round_up(self.ended + self.ranks, 64)

    @property
    def record_words(self) -> int:
        return 8

    @property
    def marks(self) -> int:
        return round_up(self.records + self.ranks * self.grid * self.record_words, 64)

    @property
    def words(self) -> int:
        return self.marks + self.grid


class Launch(NamedTuple):
    """A persistent launch; hand-offs carry tag TAGS_PER_EPOCH * epoch + ``tag``."""

    stages: Callable[[Plan], dict[str, Stage]]
    regions: Callable[[Plan], dict[str, Region]]
    edges: tuple[Edge, ...]
    barriers: Callable[[Plan], tuple[str, ...]]
    tag: int
    ends_epoch: bool
    runs: Callable[[Plan], bool]
'''

EPILOGUE = '''
def regions(b: Plan) -> dict[str, Region]:
    """Every region of the package, as "launch.region"."""
    return {f"{name}.{r}": region for name, launch in LAUNCHES.items() for r, region in launch.regions(b).items()}


def _place(b: Plan, slots: tuple[tuple[str, ...], ...]) -> tuple[dict[str, int], int]:
    table, at, end = regions(b), {}, 0
    for slot in slots:
        end = round_up(end, ALIGN)
        for name in slot:
            at[name] = end
        end += max(table[name].room for name in slot)
    return at, round_up(end, ALIGN)


def scratch(b: Plan) -> dict[str, int]:
    """Byte offset of every scratch region, as "launch.region"."""
    return _place(b, SCRATCH_SLOTS)[0]


def scratch_bytes(b: Plan) -> int:
    """Bytes of the scratch buffer of build b (and of every build with its SCRATCH_KEY)."""
    return _place(b, SCRATCH_SLOTS)[1]


def peer(b: Plan) -> dict[str, int]:
    """Byte offset of every peer region inside a half of the peer buffer."""
    return _place(b, PEER_SLOTS)[0]


@cache
def peer_half_bytes(tp: int) -> int:
    """Bytes of one half of the peer buffer, which all builds of this tp share."""
    return max((_place(b, PEER_SLOTS)[1] for b in builds() if b.tp == tp), default=0)


def peer_bytes(tp: int) -> int:
    """Bytes of a rank's peer buffer."""
    return PEER_HALVES * peer_half_bytes(tp)


def peer_half(epoch: int) -> int:
    """Which half of the peer buffer an epoch uses."""
    return epoch % PEER_HALVES


def next_epoch(epoch: int) -> int:
    """What CTA 0 stores when an epoch ends."""
    return (epoch + 1) % EPOCHS


def tag(epoch: int, launch: str) -> int:
    """The tag of a launch's hand-offs, 32 bits."""
    return (TAGS_PER_EPOCH * epoch + LAUNCHES[launch].tag) % 2**32


def counter_word(name: str) -> int:
    """First word of a counter in the epoch buffer."""
    return round_up(MARKS_WORD + GRID, 64) + COUNTERS.index(name) * COUNTER_SLOTS


def epoch_words() -> int:
    """Words of the epoch buffer."""
    return round_up(MARKS_WORD + GRID, 64) + len(COUNTERS) * COUNTER_SLOTS


def lds_bytes(b: Plan, launch: str) -> int:
    """Bytes of a launch's LDS: a union over its stages."""
    return max((stage.lds_bytes for stage in LAUNCHES[launch].stages(b).values()), default=0)


def runs(b: Plan, launch: str, stage: str) -> bool:
    """Whether build b has this stage of this launch ("launch.stage": of that one)."""
    where, _, name = stage.rpartition(".")
    return name in LAUNCHES[where or launch].stages(b)


def manifest(b: Plan, launch: str) -> tuple[HandOff, ...]:
    """The hand-offs of a launch in build b: region, writer stage, reader stages, form, scope, space, tag
    offset."""
    stages, table = LAUNCHES[launch].stages(b), LAUNCHES[launch].regions(b)
    readers: dict[tuple[str, str], list[str]] = {}
    for edge in LAUNCHES[launch].edges:
        if edge.consumer in stages and runs(b, launch, edge.producer):
            readers.setdefault((edge.region, edge.producer), []).append(edge.consumer)
    return tuple(
        HandOff(name, writer, tuple(who), table[name].form, table[name].scope, table[name].space, table[name].tag)
        for (name, writer), who in readers.items()
    )


def builds() -> Iterator[Plan]:
    """Every build the package serves, options apart."""
    for variant, fields in VARIANTS.items():
        for values in product(*fields.values()):
            try:
                yield Plan(**dict(zip(fields, values)), variant=variant)  # type: ignore[arg-type]
            except ValueError:
                continue  # a combination the spec rules out


def offsets(b: Plan, launch: str) -> dict[str, int]:
    """Byte offset of each region of a launch, in scratch or in a half of the peer buffer."""
    return {
        name.removeprefix(f"{launch}."): at
        for name, at in {**scratch(b), **peer(b)}.items()
        if name.startswith(f"{launch}.")
    }


def barrier_byte(k: int) -> int:
    """Where the pairs of a launch's k-th grid barrier start in the epoch buffer: one a CTA, then the
    release."""
    return round_up(epoch_words() * WORD_BYTES, ALIGN) + k * round_up((GRID + 1) * PAIR_BYTES, ALIGN)


def epoch_bytes() -> int:
    """Bytes of the epoch buffer: its words, then the grid barriers of the launch that has most."""
    return barrier_byte(GRID_BARRIERS)


def timeline_points(launch: str) -> int:
    """Clock stamps a CTA of a timeline build writes: the start, then one a stage, run or not."""
    return 1 + len(STAGES[launch])


def health(b: Plan, launch: str) -> Health | None:
    """The health words of a launch; None in a build without a wait limit."""
    if not b.wait_limit:
        return None
    at = round_up(peer_bytes(b.tp), ALIGN)
    return Health(b.wait_limit * TICKS, list(LAUNCHES).index(launch), b.tp, GRID, at)


def wait_place(launch: int, stage: int, wait: int) -> tuple[str, str, str, tuple[str, ...], bool, int]:
    """What the numbers of a health record stand for: launch, stage, region (or what else was awaited), the stages
    that write the region, whether every rank does, and the last stage (-1: none) that had to run for it."""
    name = list(LAUNCHES)[launch]
    at = (*STAGES[name], "the launch's end")[stage]
    if wait < 0:
        kind, other_ranks, back = OTHER_WAITS[-1 - wait]
        return name, at, kind, (), other_ranks, -1 if back is None else stage - back
    region, made = list(LAUNCHES[name].regions(next(builds())).items())[wait]
    made_here = (e.producer for e in LAUNCHES[name].edges if e.region == region and e.producer in STAGES[name])
    writers = tuple(dict.fromkeys(made_here))
    last = max((STAGES[name].index(writer) for writer in writers), default=-1)
    return name, at, f"region {region}", writers, made.space == "peer", last


def with_flags(b: Plan, **flags: int) -> Plan:
    """Build b with options (FLAGS) set."""
    return replace(b, **flags)


@cache
def canonical(b: Plan, launch: str) -> Plan:
    """The first build that shares b's kernel of ``launch``."""
    same = (*PARAMETERS[launch], "tokens", "tp")
    found = next(
        c for c in builds() if LAUNCHES[launch].runs(c) and all(getattr(c, n) == getattr(b, n) for n in same)
    )
    return replace(found, **{flag: getattr(b, flag) for flag in FLAGS})


def symbol(b: Plan, launch: str) -> str:
    """The symbol of b's kernel of a launch."""
    fields = [f"{name}{int(getattr(b, name))}" for name in PARAMETERS[launch]]
    flags = [name for name in FLAGS if getattr(b, name) is True]
    limit = [f"wait{b.wait_limit}"] if b.wait_limit else []
    return "_".join([NAME, launch, *fields, *flags, *limit])
'''
