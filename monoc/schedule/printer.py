"""``plan.py``: the printout of a schedule's formulas, the one statement of every decision a package has.

The text is plain Python of the standard library alone, deterministic, and evaluated by three readers: the
emitted launches while they are traced, the emitted runner, and the proofs (``monoc/schedule/proofs/``).
``emit/`` puts its header in front and formats it.
"""

from __future__ import annotations

from monoc.schedule.formula import attributes, of_self
from monoc.schedule.model import (
    ONE,
    TRUE,
    ZERO,
    Field,
    FormRule,
    Launch,
    LdsMember,
    Region,
    RegionRead,
    RegionWrite,
    Schedule,
    Space,
    Stage,
    Take,
    Units,
)
from monoc.schedule.parameters import launch_parameters
from monoc.schedule.prelude import EPILOGUE, PRELUDE, RECORDS

__all__ = ["print_plan"]

_CHECK = """
    def __post_init__(self) -> None:
        served = VARIANTS.get(self.variant)
        if served is None:
            raise ValueError(f"variant {self.variant!r} is not one of {sorted(VARIANTS)}")
        for name, values in served.items():
            value = getattr(self, name)
            if value not in values:
                raise ValueError(f"{name} = {value} is not served by variant {self.variant}: {values}")
        if not 0 <= self.wait_limit <= LONGEST_WAIT:
            raise ValueError(f"wait_limit = {self.wait_limit} is not between 0 and {LONGEST_WAIT} microseconds")
"""


def print_plan(schedule: Schedule) -> str:
    """The source text of ``plan.py``."""
    parts = [
        PRELUDE.replace("@NAME@", schedule.name),
        _constants(schedule),
        RECORDS,
        _plan_class(schedule),
        *(text for launch in schedule.launches for text in _launch(schedule, launch)),
        _layout(schedule),
        EPILOGUE,
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _constants(schedule: Schedule) -> str:
    lines = [
        f"NAME = {schedule.name!r}",
        f"GRID = {schedule.grid}  # CTAs of every launch, all resident",
        f"THREADS = {schedule.threads}  # threads of a CTA",
        f"TARGET = {schedule.target!r}",
        "",
        "# The epoch word runs 0 .. EPOCHS - 1 and starts over: never a tag of 0, parities and counter slots stay",
        "# in step. A hand-off's tag is TAGS_PER_EPOCH * epoch + its launch's tag, as 32 bits.",
        f"EPOCHS = {schedule.epochs}",
        "TAGS_PER_EPOCH = 2",
        f"PEER_HALVES = {schedule.peer_halves}  # peer regions alternate by epoch modulo this",
        f"COUNTER_SLOTS = {schedule.counter_slots}  # a counter has a word for each of so many epochs",
        f"COUNTER_AHEAD = {schedule.counter_ahead}  # the word so many epochs ahead is cleared at an epoch's end",
        "",
        *(f"{name} = {value}" for name, value in schedule.dims),
    ]
    return "\n".join(lines)


def _plan_class(schedule: Schedule) -> str:
    names = list(dict.fromkeys(f.name for v in schedule.variants for f in v.fields))
    kinds = {f.name: "bool" if _boolean(f) else "int" for v in schedule.variants for f in v.fields}
    first = schedule.variants[0].name
    lines = ["VARIANTS: dict[str, dict[str, tuple[int | bool, ...]]] = {"]
    for variant in schedule.variants:
        lines.append(f"    {variant.name!r}: {{")
        lines += [f"        {f.name!r}: {_values(f)}," for f in variant.fields]
        lines.append("    },")
    lines += ["}", "", "", "@dataclass(frozen=True)", "class Plan:"]
    lines += ['    """One build: what the launches are traced for. Raises ValueError for a build not served."""', ""]
    lines += [f"    {name}: {kinds[name]}" for name in names]
    lines += [f"    variant: str = {first!r}"]
    lines += [f"    {flag}: bool = False" for flag in schedule.flags]
    lines += ["    wait_limit: int = 0  # microseconds a wait may take before the launch ends; 0: no limit"]
    lines += [""]
    lines += [_CHECK.strip("\n")]
    for rule in schedule.require:
        lines += [f"        if not ({of_self(rule)}):"]
        lines += [f'            raise ValueError("the build must satisfy: {rule}")']
    for name, value in schedule.properties:
        lines += ["", "    @property", f"    def {name}(self) -> int:", f"        return {of_self(value)}"]
    lines += ["", "", f"SCRATCH_KEY = {schedule.scratch_key!r}  # builds that agree in these share a scratch buffer"]
    return "\n".join(lines)


def _launch(schedule: Schedule, launch: Launch) -> list[str]:
    regions = [r for r in schedule.regions if r.launch == launch.name]
    stages = [f"def {launch.name}_stages(b: Plan) -> dict[str, Stage]:"]
    stages += [f'    """Launch {launch.name}: its stages in program order, each on the CTAs after the one before."""']
    stages += ["    out: dict[str, Stage] = {}", "    cta = 0"]
    for stage in launch.stages:
        stages += _stage(stage)
    stages += ["    return out"]
    table = [f"def {launch.name}_regions(b: Plan) -> dict[str, Region]:"]
    table += [f'    """Launch {launch.name}: what its stages hand over, whether or not build b runs them."""']
    table += [
        "    return {",
        *(line for region in regions for line in _region(region, launch, schedule.scratch_key)),
        "    }",
    ]
    upper = launch.name.upper()
    edges = [f"{upper}_EDGES: tuple[Edge, ...] = ("]
    edges += [
        f"    Edge({e.region!r}, {e.producer!r}, {e.consumer!r})," for e in schedule.edges if e.launch == launch.name
    ]
    edges += [")"]
    fences = [f"def {launch.name}_barriers(b: Plan) -> tuple[str, ...]:"]
    fences += [f'    """Launch {launch.name}: the stages a grid barrier comes before."""', "    out: list[str] = []"]
    for barrier in launch.barriers:
        fences += [f"    if {barrier.when}:  # {', '.join(barrier.regions)}", f"        out.append({barrier.before!r})"]
    fences += ["    return tuple(out)"]
    return ["\n".join(stages), "\n".join(table), "\n".join(edges), "\n".join(fences)]


def _stage(stage: Stage) -> list[str]:
    shape = stage.shape
    note = f"  # {stage.placement_reason}" if stage.placement_reason else ""
    lines = [
        f"out[{stage.name!r}] = Stage(",
        f"    tasks={shape.tasks},",
        f"    first_cta={'cta' if stage.first_cta is None else stage.first_cta} % GRID,{note}",
    ]
    if shape.reads:
        lines += ["    reads=(", *(f"        {_read(read)}," for read in shape.reads), "    ),"]
    if shape.writes:
        lines += ["    writes=(", *(f"        {_write(write)}," for write in shape.writes), "    ),"]
    if shape.lds:
        lines += ["    lds=(", *(f"        {_lds(member)}," for member in shape.lds), "    ),"]
    if shape.weight_bytes != ZERO:
        lines += [f"    weight_bytes=lambda i: {shape.weight_bytes},"]
    if shape.take is not Take.PLACED:
        lines += [f"    take={shape.take.value!r},"]
    if shape.counters:
        lines += [f"    counters=({''.join(f'{c!r}, ' for c in shape.counters)}),"]
    lines += [")", f"cta = out[{stage.name!r}].first_cta + out[{stage.name!r}].tasks"]
    if stage.statements:
        lines.insert(0, f"# {', '.join(stage.statements)}")
    if stage.guard != TRUE:
        return [f"    if {stage.guard}:", *(f"        {line}" for line in lines)]
    return [f"    {line}" for line in lines]


def _call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(a for a in arguments if a)})"


def _units(units: Units) -> str:
    """The units argument, left out where it is the default."""
    if (units.first, units.count, units.stride) == ("i", ONE, ONE):
        return ""
    count = units.count if units.count != ONE or units.stride != ONE else ""
    return f"lambda i: {_call('Units', units.first, count, units.stride if units.stride != ONE else '')}"


def _read(read: RegionRead) -> str:
    part = f"part={read.part}" if read.part != ONE else ""
    return _call("Read", repr(read.region), _units(read.task_units), part, f"step={read.step}" if read.step else "")


def _write(write: RegionWrite) -> str:
    step = f"step={write.step}" if write.step != 1 else ""
    counted = "counted=True" if write.counted else ""
    words, total = f"words={write.words}", f"total={write.units}"
    units = _units(write.task_units)
    return _call("Write", repr(write.region), words, total, f"units={units}" if units else "", step, counted)


def _lds(member: LdsMember) -> str:
    align = f"align={member.align}" if member.align != 16 else ""
    return _call("Lds", repr(member.name), repr(member.dtype), member.count, align)


def _region(region: Region, launch: Launch, scratch_key: tuple[str, ...]) -> list[str]:
    lines = [f"        {region.name!r}: Region("]
    lines += [f"            {region.space.value!r}, {region.scope.value!r},"]
    lines += [f"            form={_form(region.rules)},"]
    copies = f" copies={region.copies}," if region.copies != ONE else ""
    lines += [f"            words={region.words}, units={region.units},{copies} tag={launch.tag},"]
    lines += [f"            lifetime=({region.lifetime.first!r}, {region.lifetime.last!r}),"]
    if any(attributes(rule.when) - set(scratch_key) for rule in region.rules):
        forms = dict.fromkeys(rule.form.value for rule in region.rules)
        lines += [f"            forms={tuple(forms)!r},"]
    lines += ["        ),"]
    comments = [f"        # {rule.form.value}: {rule.reason}" for rule in region.rules[1:] or region.rules]
    return [*comments, *lines]


def _form(rules: tuple[FormRule, ...]) -> str:
    text = repr(rules[-1].form.value)
    for rule in reversed(rules[:-1]):
        text = f"{rule.form.value!r} if {rule.when} else {text}"
    return text


def _layout(schedule: Schedule) -> str:
    lines = ["LAUNCHES: dict[str, Launch] = {"]
    for launch in schedule.launches:
        n = launch.name
        lines.append(
            f"    {n!r}: Launch({n}_stages, {n}_regions, {n.upper()}_EDGES, {n}_barriers, tag={launch.tag}, "
            f"ends_epoch={launch.ends_epoch}, runs=lambda b: {launch.guard}),"
        )
    lines += ["}", ""]
    for space, comment in (
        (Space.SCRATCH, "Scratch in address order: each slot holds regions that never live at the same time."),
        (Space.PEER, "The same of one half of the peer buffer."),
    ):
        lines += [f"# {comment}", f"{space.value.upper()}_SLOTS: tuple[tuple[str, ...], ...] = ("]
        lines += [f"    ({''.join(f'{n!r}, ' for n in slot)})," for slot in _slots(schedule, space)]
        lines += [")", ""]
    counters = list(dict.fromkeys(c for la in schedule.launches for s in la.stages for c in s.shape.counters))
    lines += ["# Stages of a launch in program order, run or not."]
    lines += ["STAGES: dict[str, tuple[str, ...]] = {"]
    for la in schedule.launches:
        lines.append(f"    {la.name!r}: ({''.join(f'{s.name!r}, ' for s in la.stages)}),")
    lines += ["}"]
    lines += ["# The build parameters a launch depends on: builds that agree in them share its kernel."]
    lines += ["PARAMETERS: dict[str, tuple[str, ...]] = {"]
    for la in schedule.launches:
        used = "".join(f"{p!r}, " for p in launch_parameters(schedule, [la]))
        lines += [f"    {la.name!r}: ({used}),"]
    lines += ["}"]
    options = (*schedule.flags, "wait_limit")
    lines += [f"FLAGS: tuple[str, ...] = ({''.join(f'{f!r}, ' for f in options)})", ""]
    lines += ["# Atomic counters of the epoch buffer, COUNTER_SLOTS words each."]
    lines += [f"COUNTERS: tuple[str, ...] = ({''.join(f'{c!r}, ' for c in counters)})"]
    most = max((len(launch.barriers) for launch in schedule.launches), default=0)
    lines += [f"GRID_BARRIERS = {most}  # grid barriers of the launch that has most, in the barrier form"]
    return "\n".join(lines)


def _slots(schedule: Schedule, space: Space) -> list[list[str]]:
    slots: dict[str, list[str]] = {}
    for region in schedule.regions:
        if region.space is space:
            name = f"{region.launch}.{region.name}"
            slots.setdefault(region.shares or name, []).append(name)
    return list(slots.values())


def _boolean(field: Field) -> bool:
    return all(isinstance(v, bool) for v in field.values)


def _values(field: Field) -> str:
    values = field.values
    whole = [int(v) for v in values]
    if len(values) > 3 and whole == list(range(whole[0], whole[0] + len(whole))):
        return f"tuple(range({whole[0]}, {whole[-1] + 1}))"
    return repr(tuple(values))
