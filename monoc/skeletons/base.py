"""What every skeleton has in common: a name, typed parameters and one template."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import jinja2

from monoc.cache import writable_cache
from monoc.expr.flydsl import flydsl_slot
from monoc.expr.slot import Slot
from monoc.schedule.formula import of_task

if TYPE_CHECKING:
    from monoc.schedule.model import StageShape

__all__ = ["SkeletonParams", "TensorArg", "render_stage"]


@dataclass(frozen=True)
class TensorArg:
    """A kernel argument a stage reads or writes: its name in the launch, element dtype and dimensions.

    ``shape``: a plan expression per dimension (``b.tokens``, ``HIDDEN``), row-major unless the params say otherwise.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]


class SkeletonParams(Protocol):
    """Parameters of one stage of a skeleton (a frozen dataclass)."""

    @property
    def stage(self) -> str:
        """The stage's name: the emitted function's."""

    @property
    def template(self) -> str:
        """The template's file name under ``templates/``, without ``.py.j2``."""

    def slots(self) -> tuple[Slot, ...]:
        """The scalar programs the template calls by name, printed before the stage's function."""

    def describe(self) -> StageShape:
        """Tasks, LDS, regions written and read, weight bytes: formulas over ``plan.py``'s names."""


@cache
def _environment() -> jinja2.Environment:
    kept = writable_cache("templates")
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=None if kept is None else jinja2.FileSystemBytecodeCache(str(kept)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python source; every name was validated as an identifier
    )
    made.filters["of_task"] = of_task
    return made


def render_stage(params: SkeletonParams) -> str:
    """The FlyDSL source of one stage: its slots' functions, its LDS struct, its function.

    Raises :class:`jinja2.UndefinedError` if the template names what its params lack.
    """
    slots = "\n\n".join(flydsl_slot(slot) for slot in params.slots())
    body = _environment().get_template(f"{params.template}.py.j2").render(p=params, s=params.describe())
    return f"{slots}\n\n{body}" if slots else body
