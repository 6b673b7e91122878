"""What a tensor must be before its address goes to a launch: the kernels read without bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["Want", "check_tensors", "require"]

# An axis: its size, (least, most) with None for no bound, or None for any.
Axis = int | tuple[int | None, int | None] | None
# dtype, axes, and the strides (in elements, None: any) if not contiguous.
Want = tuple[torch.dtype, Sequence[Axis], Sequence[int | None] | None]


def _axis_fits(size: int, want: Axis) -> bool:
    if want is None:
        return True
    least, most = want if isinstance(want, tuple) else (want, want)
    return (least is None or size >= least) and (most is None or size <= most)


def _axis_text(want: Axis) -> str:
    if want is None:
        return "any"
    if not isinstance(want, tuple):
        return str(want)
    return f">= {want[0]}" if want[1] is None else f"<= {want[1]}"


def require(condition: bool, what: str) -> None:
    """Raises :class:`AssertionError` with ``what`` (also under ``python -O``)."""
    if not condition:
        raise AssertionError(what)


def check_tensors(owner: str, tensors: Mapping[str, Any], wants: Mapping[str, Want]) -> None:
    """Each of ``tensors`` is a tensor of the dtype, shape and strides ``wants`` has under its name.

    Raises :class:`AssertionError` naming every tensor that is not, what it is and what was wanted.
    """
    wrong: list[str] = []
    for name, (dtype, axes, strides) in wants.items():
        t = tensors[name]
        shape = "[" + ", ".join(_axis_text(a) for a in axes) + "]"
        if not isinstance(t, torch.Tensor):
            wrong.append(f"{name} is {type(t).__name__}, want a {dtype} tensor {shape}")
        elif t.dtype != dtype or t.dim() != len(axes) or not all(map(_axis_fits, t.shape, axes)):
            wrong.append(f"{name} is {t.dtype} {list(t.shape)}, want {dtype} {shape}")
        elif strides is None and not t.is_contiguous():
            wrong.append(f"{name} is not contiguous (strides {list(t.stride())})")
        elif strides is not None and any(
            s is not None and s != have for s, have in zip(strides, t.stride(), strict=True)
        ):
            have = [s if w is not None else None for s, w in zip(t.stride(), strides, strict=True)]
            wrong.append(f"{name} has strides {have}, want {list(strides)}")
    require(not wrong, f"{owner}: " + "; ".join(wrong))
