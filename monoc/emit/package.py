"""A schedule as a package: every file's final text."""

from __future__ import annotations

import ast
from pathlib import Path, PurePath

from monoc.emit.device import DeviceLibrary
from monoc.emit.docking import emit_docking
from monoc.emit.files import Header, finish
from monoc.emit.launch import LaunchSource, emit_launch
from monoc.emit.runner import emit_runner
from monoc.schedule.bound import NameTakenError, check_names
from monoc.schedule.model import Schedule
from monoc.schedule.printer import print_plan
from monoc.spec.program import Program

__all__ = ["emit_package"]

_HOST = Path(__file__).parent.parent / "host"


def _device(library: DeviceLibrary, launches: list[LaunchSource]) -> str:
    used = frozenset().union(*(source.device for source in launches))
    return '"""The device functions of the launches beside this file."""\n\n' + library.source(used)


def _init(program: Program) -> str:
    runner = program.runner
    names = ["BLOCKS", "MAX_TOKENS", "Dims", *(c.name for c in runner.weights), "WaitTimeoutError", runner.class_name]
    listed = "".join(f"    {name},\n" for name in names)
    if program.docking is not None:
        return _lazy_init(program, names)
    return (
        f'"""{program.name}: the persistent launches of one decode layer and their host side."""\n\n'
        f"from .runner import (\n{listed})\n\n__all__ = {names!r}\n"
    )


def _lazy_init(program: Program, names: list[str]) -> str:
    """The docking says what is missing where the runner cannot be imported: the package itself must not need it."""
    docked = program.docking.class_name if program.docking is not None else ""
    return (
        f'"""{program.name}: the persistent launches of one decode layer, their host side and its docking."""\n\n'
        "from importlib import import_module\nfrom typing import Any\n\n"
        f"from .mono_decode import {docked}\n\n__all__ = {[*names, docked]!r}\n\n\n"
        "def __getattr__(name: str) -> Any:\n"
        '    """The runner\'s names, imported when first asked for: they need FlyDSL."""\n'
        "    if name not in __all__:\n"
        '        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")\n'
        '    return getattr(import_module(".runner", __name__), name)\n'
    )


def emit_package(program: Program, schedule: Schedule) -> dict[str, str]:
    """File name -> text of the package of ``schedule``, formatted and headed. Deterministic. Raises
    :class:`~monoc.schedule.bound.NameTakenError` where a name of the spec is one of the generated code."""
    library = DeviceLibrary()
    launches = [emit_launch(schedule, launch, library) for launch in schedule.launches]
    spec = PurePath(program.path)
    said = spec.name if spec.is_absolute() else spec.as_posix()
    said = "".join(c if c.isprintable() else "?" for c in said)  # a line break in it would end the comment
    header = Header(said, program.digest[:16], program.licence)
    sources = {
        "__init__.py": _init(program),
        "checks.py": (_HOST / "checks.py").read_text(),
        "device.py": _device(library, launches),
        "peer.py": (_HOST / "peer.py").read_text(),
        "plan.py": print_plan(schedule),
        "runner.py": emit_runner(program, schedule),
        "waits.py": (_HOST / "waits.py").read_text(),
    }
    for source in launches:
        if f"{source.name}.py" in sources or source.name == "mono_decode":
            raise NameTakenError("package", source.name)
        sources[f"{source.name}.py"] = source.text
    for name in ("runner.py", *(f"{source.name}.py" for source in launches)):
        check_names(name, ast.parse(sources[name]))
    if program.docking is not None:
        sources["mono_decode.py"] = emit_docking(program)
    return finish(dict(sorted(sources.items())), header)
