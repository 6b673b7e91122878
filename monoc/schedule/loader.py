"""Running a printed ``plan.py``: its functions over numbers, or over arrays of task indices at once.

The text is monoc's own printout (every formula in it passed :mod:`monoc.schedule.formula`), run as a module
of its own. ``min`` and ``max`` accept numpy arrays there, so that one call of a task formula answers for all
tasks.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import sys
from types import ModuleType
from typing import Any

import numpy as np

from monoc.schedule.bound import check_names

__all__ = ["PlanModule", "load_plan"]

PlanModule = Any  # the module of a plan.py; its names are those of monoc/schedule/prelude.py


def load_plan(text: str) -> PlanModule:
    """The module of plan text ``text``, executed once. Raises ``SyntaxError`` if it is not Python,
    :class:`~monoc.schedule.bound.NameTakenError` if a dimension or parameter has the name of something else in it."""
    name = f"_monoc_plan_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__dict__["__builtins__"] = {**builtins.__dict__, "min": _minimum, "max": _maximum}
    tree = ast.parse(text, f"<{name}>")
    check_names("plan.py", tree)
    code = compile(tree, f"<{name}>", "exec")
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _minimum(*args: Any, **options: Any) -> Any:
    if any(isinstance(a, np.ndarray) for a in args):
        return functools.reduce(np.minimum, args)
    return min(*args, **options)


def _maximum(*args: Any, **options: Any) -> Any:
    if any(isinstance(a, np.ndarray) for a in args):
        return functools.reduce(np.maximum, args)
    return max(*args, **options)
