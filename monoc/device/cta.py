"""A CTA's own coordinates and its kernel arguments, re-read where a stage starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, gpu

from monoc.device.frozen import Frozen
from monoc.device.intrinsics import (
    constant_load,
    end_wave,
    first_lane,
    kernel_arguments,
    opaque_scalar,
    opaque_vector,
)
from monoc.device.memory import lds_load

__all__ = ["Args", "Cta", "end_wave_if", "first_task", "run_tasks", "uniform"]


def uniform(v: Any) -> fx.Int32:
    """A value all lanes hold, as a scalar."""
    return first_lane(v)


@dataclass(frozen=True)
class Cta(Frozen):
    """Where this thread is: CTA ``bid`` of ``grid``, thread ``tid`` of ``threads``; ``lane`` of ``wave`` follow.

    ``lost``: in a build with a wait limit, the LDS word that says a wave of the CTA has given up.
    """

    bid: Any
    tid: Any
    grid: int
    threads: int
    lost: Any = None

    @property
    def lane(self) -> Any:
        return self.tid & 63

    @property
    def wave(self) -> Any:
        return uniform(self.tid >> 6)

    @property
    def waves(self) -> int:
        return self.threads // 64

    def fresh(self) -> Cta:
        """This CTA with an opaque thread id: lane arithmetic on it stays in the stage that asks."""
        return Cta(self.bid, opaque_vector(self.tid), self.grid, self.threads, self.lost)

    def meet(self) -> None:
        """All waves of the CTA have come here; in a build with a wait limit they end here if one of them gave up."""
        gpu.barrier()
        if self.lost is not None:
            end_wave_if(uniform(lds_load(self.lost, 0)))


@flyc.jit
def end_wave_if(reason: Any) -> None:
    """The wave ends here if ``reason`` (wave-uniform) is not 0."""
    if reason != 0:
        end_wave()


def first_task(cta: Cta, at: int) -> Any:
    """CTA ``cta``'s first task of a stage placed at CTA ``at``; its next ones are ``grid`` apart."""
    if at % cta.grid == 0:
        return fx.Int32(cta.bid)
    after = fx.Int32(cta.bid) + (cta.grid - at % cta.grid)  # below 2 grid: a select, not a division
    return fx.Int32((after >= cta.grid).select(after - cta.grid, after))


@flyc.jit
def run_tasks(cta: Any, at: int, tasks: int, task_of: Callable[[Any], None], live: Any = None) -> None:
    """This CTA's tasks of a stage of ``tasks`` placed at CTA ``at``, in order; of the first ``live``, if given.

    A stage that gives no CTA two tasks is a branch, not a loop: LLVM drains all loads at a loop's head, which would
    also wait for weights requested before it.
    """
    first = first_task(cta, at)
    end = tasks if live is None else live
    if const_expr(tasks <= cta.grid):
        if first < end:
            task_of(first)
    else:
        for task in range(first, end, cta.grid):
            task_of(task)


class Args(Frozen):
    """The kernel's arguments by name, loaded from the kernarg segment when asked for.

    ``names`` in launch order; every argument is an Int64, so argument i lies at byte 8 i. Each :meth:`stage` reads
    through an opaque copy of the segment's address: LLVM then keeps no argument in scalar registers from one
    stage to the next, where it would spill them.
    """

    def __init__(self, names: tuple[str, ...], base: Any = None) -> None:
        self._at = {name: 8 * i for i, name in enumerate(names)}
        self._names = names
        self._base = base

    def stage(self) -> Args:
        return Args(self._names, opaque_scalar(kernel_arguments()))

    def __getitem__(self, name: str) -> fx.Int64:
        return constant_load(self._base + fx.Int64(self._at[name]))
