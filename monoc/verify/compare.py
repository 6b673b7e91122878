"""How far a kernel's value may be from the reference's, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from monoc.expr.ir import DType
from monoc.reference.formats import Mx

__all__ = ["Difference", "Nearness", "compare"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Nearness:
    """What is asked of a value. ``bits``: the same bits as the stated rounding. Else: ``relative`` L2 distance from the
    exact numbers, at most ``share`` of the elements with other bits than the stated ones, and every element within
    ``rtol`` of itself plus ``atol`` of the value's root mean square (of the token's row, where it has one)."""

    bits: bool
    share: float = 1.0
    rtol: float = 0.0
    atol: float = 0.0
    relative: float = 2e-2


@dataclass(frozen=True)
class Difference:
    """``share``: of elements with other bits than the stated reference; ``relative``: L2 distance from the exact
    numbers; ``index``: the element furthest out, with the kernel's and the reference's number there."""

    good: bool
    share: float
    relative: float
    index: tuple[int, ...] = ()
    kernel: float = 0.0
    reference: float = 0.0
    why: str = ""


def nearness(dtype: DType, exact_order: bool, quantised: bool, attention: bool) -> Nearness:
    """What is asked of a value of ``dtype``. ``exact_order``: no sum in an order of the kernel's choice lies between it
    and what the kernel left in memory; ``attention``: probabilities rounded by chunk do."""
    if exact_order:
        return Nearness(bits=True)
    if quantised:
        return Nearness(bits=False, share=0.25 if attention else 0.03, rtol=0.15, atol=0.05)
    if attention:
        return Nearness(bits=False, rtol=0.02, atol=0.05)
    if dtype is DType.BF16:
        return Nearness(bits=False, share=0.05, rtol=2.0**-7, atol=1e-3)
    return Nearness(bits=False, rtol=1e-4, atol=1e-5)


def compare(kernel: Any, stated: Any, exact: Any, asked: Nearness) -> Difference:
    """``kernel`` against the reference in both modes."""
    if isinstance(stated, Mx):
        codes = torch.equal(kernel.codes, stated.codes)
        values = _changed(kernel.values, stated.values)
        if asked.bits and not codes:
            where = tuple(int(i) for i in torch.nonzero(kernel.codes != stated.codes)[0])
            k, r = int(kernel.codes[where]), int(stated.codes[where])
            share = float((kernel.codes != stated.codes).float().mean())
            return Difference(False, share, 0.0, where, k, r, "E8M0 codes differ")
        return _numbers(kernel.exact(), stated.exact(), exact.exact(), values, asked)
    if not stated.is_floating_point():
        changed = kernel != stated
        return _verdict(changed, kernel.double(), stated.double(), 0.0, not changed.any(), "integers differ")
    kernel = kernel.reshape(stated.shape)
    changed = _changed(kernel.float().contiguous().view(torch.int32), stated.contiguous().view(torch.int32))
    changed &= ~((kernel == 0) & (stated == 0))
    return _numbers(kernel.double(), stated.double(), exact.double(), changed, asked)


def _changed(a: Tensor, b: Tensor) -> Tensor:
    return a != b


def _numbers(kernel: Tensor, stated: Tensor, exact: Tensor, changed: Tensor, asked: Nearness) -> Difference:
    changed = changed & ~(kernel.isnan() & stated.isnan())
    norm = float(exact.nan_to_num(0.0, 0.0, 0.0).norm())
    apart = torch.where(kernel == exact, 0.0, kernel - exact)
    relative = float(apart.norm()) / norm if norm else float(apart.norm())
    share = float(changed.float().mean()) if changed.numel() else 0.0
    if asked.bits:
        return _verdict(changed, kernel, stated, relative, not changed.any(), "bits differ", share)
    rms = stated.nan_to_num(0.0, 0.0, 0.0).square().mean(dim=-1, keepdim=True).sqrt()
    out = (kernel - stated).abs() > asked.rtol * stated.abs() + asked.atol * rms + 1e-30
    out |= (kernel.isfinite() != stated.isfinite()) | (kernel.isnan() != stated.isnan())
    out &= changed
    if out.any():
        return _verdict(out, kernel, stated, relative, False, "an element is too far from the stated rounding", share)
    if share > asked.share:
        return _verdict(
            changed, kernel, stated, relative, False, f"{share:.1%} of the elements are rounded otherwise", share
        )
    good = relative <= asked.relative
    return _verdict(changed, kernel, stated, relative, good, "too far from the exact numbers", share)


def _verdict(
    wrong: Tensor, kernel: Tensor, stated: Tensor, relative: float, good: bool, why: str, share: float | None = None
) -> Difference:
    """``wrong`` marks the elements of which the furthest is shown."""
    if share is None:
        share = float(wrong.float().mean()) if wrong.numel() else 0.0
    if not wrong.any():
        return Difference(good, share, relative, why="" if good else why)
    distance = torch.where(wrong, (kernel - stated).abs().nan_to_num(torch.inf), -1.0)
    at = int(distance.flatten().argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), wrong.shape))
    k, r = float(kernel.flatten()[at]), float(stated.flatten()[at])
    return Difference(good, share, relative, index, k, r, "" if good else why)
