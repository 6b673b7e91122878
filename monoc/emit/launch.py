"""``k1.py``, ``k2.py``, ``ffn.py``: one persistent launch each, its stages as functions in program order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from monoc.cache import writable_cache
from monoc.emit.device import DeviceLibrary, names_in, parsed
from monoc.emit.tidy import without_needless_parentheses
from monoc.schedule.early import early_arguments, request_points
from monoc.schedule.model import Launch, Schedule, Stage
from monoc.skeletons.base import render_stage

__all__ = ["LAUNCH_ARGUMENTS", "LaunchSource", "emit_launch", "environment", "launch_arguments"]

# What every launch takes after its stages' tensors: addresses and numbers the runner owns.
LAUNCH_ARGUMENTS = ("scratch", "peers", "rank", "epoch", "timeline")

_ALWAYS = frozenset(
    {"Args", "Cta", "Regions", "begin_limited", "limited_cta", "read_epoch", "run_tasks", "stamp", "wait_limit"}
)


@dataclass(frozen=True)
class LaunchSource:
    """The text of a launch's module (unformatted, unheaded) and what it takes from the device library."""

    name: str
    text: str
    device: frozenset[str]


@dataclass(frozen=True)
class _Call:
    """A stage as the launch template sees it."""

    name: str
    has_lds: bool
    regions: tuple[str, ...]
    arguments: tuple[str, ...]
    what: str
    early: tuple[str, ...]  # arguments of its weight request, if an earlier stage makes it
    ready: tuple[str, ...]  # arguments of what says which of its tasks there are, if something does
    requests: tuple[str, ...]  # stages whose weights are requested before this one


@cache
def environment() -> jinja2.Environment:
    """The templates of whole files. Every value they print was validated as an identifier or made here."""
    kept = writable_cache("templates")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=None if kept is None else jinja2.FileSystemBytecodeCache(str(kept)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def launch_arguments(launch: Launch) -> tuple[str, ...]:
    """The kernel's arguments in order: its stages' tensors as they first appear, then :data:`LAUNCH_ARGUMENTS`."""
    tensors = dict.fromkeys(a.name for stage in launch.stages for a in stage.params.arguments())
    return tuple(dict.fromkeys((*tensors, *LAUNCH_ARGUMENTS)))


def _call(stage: Stage, points: Mapping[str, str]) -> _Call:
    shape = stage.shape
    regions = dict.fromkeys([r.region for r in shape.reads] + [w.region for w in shape.writes])
    return _Call(
        name=stage.name,
        has_lds=bool(shape.lds),
        regions=tuple(regions),
        arguments=tuple(a.name for a in stage.params.arguments()),
        what=", ".join(stage.statements),
        early=early_arguments(stage) if stage.name in points else (),
        ready=getattr(stage.params, "ready", ()),
        requests=tuple(name for name, before in points.items() if before == stage.name),
    )


def _plan_names(sources: Iterable[str], schedule: Schedule) -> tuple[str, ...]:
    """The constants and helpers of ``plan.py`` that stage code names."""
    known = {name for name, _ in schedule.dims} | {"cdiv", "round_up"}
    used = frozenset().union(*(names_in(source) for source in sources))
    return tuple(sorted(known & used))


def _defined(source: str) -> frozenset[str]:
    return frozenset(n.name for n in parsed(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef))


def _distinct(sources: list[str]) -> list[str]:
    """The sources, less definitions an earlier one made word for word (stages of one skeleton share helpers)."""
    seen: dict[str, str] = {}
    out: list[str] = []
    for source in sources:
        kept: list[str] = []
        lines = source.splitlines()
        body = parsed(source).body
        for position, node in enumerate(body):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            before = body[position - 1].end_lineno or 0 if position else 0
            text = "\n".join(lines[first - 1 : node.end_lineno])
            name = getattr(node, "name", None)
            if name is not None and seen.get(name) == text:
                continue
            if name is not None:
                if name in seen:
                    raise ValueError(f"two stages define {name} differently")
                seen[name] = text
            kept.append("\n".join(lines[before : first - 1]).strip("\n") + "\n" + text)
        out.append("\n\n".join(kept))
    return out


def emit_launch(schedule: Schedule, launch: Launch, library: DeviceLibrary) -> LaunchSource:
    """The module of ``launch``: its stages' functions, then ``build_<launch>(b)``, which traces a build's kernel.

    Raises :class:`ValueError` if two stages define one name differently.
    """
    sources = _distinct([render_stage(stage.params) for stage in launch.stages])
    own = frozenset().union(*(_defined(source) for source in sources))
    used = frozenset().union(*(names_in(source) for source in sources))
    device = frozenset(n for n in used - own if library.defines(n)) | _ALWAYS
    if launch.ends_epoch:
        device |= {"await_ranks", "mark_epoch", "end_epoch"}
    if launch.barriers:
        device |= {"grid_barrier"}
    points = request_points(launch)
    calls = [_call(stage, points) for stage in launch.stages]
    if points:
        device |= {"first_task"}
    context: dict[str, Any] = {
        "schedule": schedule,
        "launch": launch,
        "calls": calls,
        "by_name": {call.name: call for call in calls},
        "barriers": {b.before for b in launch.barriers},
        "arguments": launch_arguments(launch),
        "sources": sources,
        "plan_names": _plan_names(sources, schedule),
        "device_names": tuple(sorted(device)),
        "any_lds": any(c.has_lds for c in calls),
    }
    text = environment().get_template("launch.py.j2").render(context)
    return LaunchSource(launch.name, without_needless_parentheses(text), device)
