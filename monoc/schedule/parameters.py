"""Which build parameters a launch depends on: builds that agree in them share its compiled kernel, or its scratch."""

from __future__ import annotations

import re
from collections.abc import Iterable

from monoc.schedule.model import Launch, Schedule, Space

__all__ = ["launch_parameters", "scratch_parameters"]


def launch_parameters(schedule: Schedule, launches: Iterable[Launch]) -> tuple[str, ...]:
    """Build parameters that any formula of ``launches`` or of their regions names, through ``Plan``'s properties too.

    In the order of the variants' fields; formulas name a parameter as ``b.<parameter>``.
    """
    chosen = tuple(launches)
    names = {launch.name for launch in chosen}
    found = _named(
        schedule, [repr(launch) for launch in chosen] + [repr(r) for r in schedule.regions if r.launch in names]
    )
    fields = dict.fromkeys(f.name for v in schedule.variants for f in v.fields)
    return tuple(f for f in fields if f in found)


def scratch_parameters(schedule: Schedule) -> tuple[str, ...]:
    """Build parameters that sizes of scratch regions name and neither the step width, tp nor the variant fixes."""
    sizes = [s for r in schedule.regions if r.space is Space.SCRATCH for s in (r.words, r.units, r.copies)]
    found = _named(schedule, [str(s) for s in sizes])
    free = dict.fromkeys(f.name for v in schedule.variants for f in v.fields if len(f.values) > 1)
    return tuple(f for f in free if f in found and f not in ("tokens", "tp"))


def _named(schedule: Schedule, texts: list[str]) -> set[str]:
    """What the formulas of ``texts`` name of a build, through ``Plan``'s properties too."""
    properties = {name: str(value) for name, value in schedule.properties}
    found: set[str] = set()
    todo = list(texts)
    while todo:
        for name in re.findall(r"\bb\.([a-z_][a-z0-9_]*)", todo.pop()):
            if name not in found:
                found.add(name)
                if name in properties:
                    todo.append(properties[name])
    return found
