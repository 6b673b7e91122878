"""Which build parameters a launch depends on: builds that agree in them share its compiled kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable

from monoc.schedule.model import Launch, Schedule

__all__ = ["launch_parameters"]


def launch_parameters(schedule: Schedule, launches: Iterable[Launch]) -> tuple[str, ...]:
    """Build parameters that any formula of ``launches`` or of their regions names, through ``Plan``'s properties too.

    In the order of the variants' fields; formulas name a parameter as ``b.<parameter>``.
    """
    chosen = tuple(launches)
    names = {launch.name for launch in chosen}
    properties = {name: str(value) for name, value in schedule.properties}
    found: set[str] = set()
    todo = [repr(launch) for launch in chosen] + [repr(r) for r in schedule.regions if r.launch in names]
    while todo:
        for name in re.findall(r"\bb\.([a-z_][a-z0-9_]*)", todo.pop()):
            if name not in found:
                found.add(name)
                if name in properties:
                    todo.append(properties[name])
    fields = dict.fromkeys(f.name for v in schedule.variants for f in v.fields)
    return tuple(f for f in fields if f in found)
