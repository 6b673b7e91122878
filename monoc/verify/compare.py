"""How far a kernel's value may be from the reference's, and how far it is.

Every limit follows from the roundings that lie between what the kernel left in memory before a value and the value,
with u = 2^-24 for one fp32 rounding and 2^-9 for one bf16 rounding (both relative, at most):

fp32 behind a sum
    A sum of n terms is added up in n / 32 steps or so, each off by u of a partial sum: together a normal deviate of u
    sqrt(n / 32) of the terms' root of squares, which is the size of the row. For n = 20480 (the residual streams of a
    token) six deviations are 9e-6 of the row's RMS: ``atol`` 1e-5. Behind gates the sum is an argument of exp2 or of a
    sigmoid of up to five times that size, normalised by a sum of such: ``rtol`` 1e-4. From the exact numbers: as far,
    and what splitting weights into two bf16 leaves (2^-17 each): ``relative`` 1e-5.
bf16 behind a sum
    An error of 8e-7 of the row's RMS (n = 5120) lies across a boundary of bf16, whose spacing is 2^-8 to 2^-7 of a
    value, for about one value in 1000, small ones more often; a few such roundings follow each other (gate, up, their
    product). In the shortest rows there are (256) one value or so; five are 2 %: ``share``. Such a value moves by one
    place: ``rtol`` 2^-7, ``atol`` 1e-3 for the smallest; by more where bf16 values before it, which the kernel does not
    leave in memory, were rounded to a neighbour as well: as far as moving those takes it (reach.py). From
    the exact numbers: four roundings of 2^-9 in a row: ``relative`` 2^-7.
attention
    Probabilities are rounded to bf16 against the maximum of their chunk in the kernel, of all keys in the reference;
    chunks' sums are rounded to bf16 before they are merged. Four roundings, each with a deviation of 2^-9 / sqrt(3) of
    the value (those of probabilities: of its size, for they are independent): 2.3e-3, six of which are 1.4e-2:
    ``atol`` 2e-2, beside the place of the last rounding, ``rtol`` 2^-7. On average that is 0.4 of bf16's spacing:
    ``share`` 60 %. From the exact numbers two roundings fewer: ``relative`` 6e-3, nearly four times their deviation.
MXFP8 of a bf16 value behind a sum
    There are 16 places of bf16 in one of e4m3, so one value in 16 of those above takes another code (two in
    a row of 256 are 1 %: ``share``), the next one: ``rtol`` 2^-3. Below the normal numbers of a group it is 2^-9 of its
    scale, at most 9e-6 of its largest value: ``atol`` 1e-3 for rows whose largest is a hundred times their RMS.
    Further where the bf16 value may be, if it is in no memory.
MXFP8 of attention
    Both together: 2.3e-3 of a value's size is 5 % of the spacing of e4m3: ``share`` 10 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from monoc.expr.ir import DType
from monoc.reference.formats import Mx

__all__ = ["Difference", "Nearness", "compare"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Nearness:
    """What is asked of a value. ``bits``: the same bits as the stated rounding. Else: ``relative`` L2 distance from the
    exact numbers (design: at most 2e-2), at most ``share`` of the elements with other bits than the stated ones, and
    every element within ``rtol`` of itself plus ``atol`` of the root mean square of its row (the last axis)."""

    bits: bool
    share: float = 1.0
    rtol: float = 0.0
    atol: float = 0.0
    relative: float = 2e-2


@dataclass(frozen=True)
class Difference:
    """``share``: of elements with other bits than the stated reference; ``relative``: L2 distance from the exact
    numbers; ``used``: how much of what is allowed the value takes, of its limits the one it is nearest to; ``index``:
    the element furthest out, with the kernel's and the reference's number there."""

    good: bool
    share: float
    relative: float
    index: tuple[int, ...] = ()
    kernel: float = 0.0
    reference: float = 0.0
    why: str = ""
    used: float = 0.0


def nearness(dtype: DType, exact_order: bool, quantised: bool, attention: bool) -> Nearness:
    """What is asked of a value of ``dtype``. ``exact_order``: no sum in an order of the kernel's choice lies between it
    and what the kernel left in memory; ``attention``: probabilities rounded by chunk do."""
    if exact_order:
        return Nearness(bits=True)
    if quantised and attention:
        return Nearness(bits=False, share=0.10, rtol=0.14, atol=0.025, relative=2e-2)
    if quantised:
        return Nearness(bits=False, share=0.01, rtol=2.0**-3, atol=1e-3, relative=2e-2)
    if attention:
        return Nearness(bits=False, share=0.60, rtol=2.0**-7, atol=2e-2, relative=6e-3)
    if dtype is DType.BF16:
        return Nearness(bits=False, share=0.02, rtol=2.0**-7, atol=1e-3, relative=2.0**-7)
    return Nearness(bits=False, rtol=1e-4, atol=1e-5, relative=1e-5)


def compare(kernel: Any, stated: Any, exact: Any, asked: Nearness, more: Tensor | None = None) -> Difference:
    """``kernel`` against the reference in both modes; ``more``: what every element may be further away (reach.py)."""
    if isinstance(stated, Mx):
        codes = torch.equal(kernel.codes, stated.codes)
        values = _changed(kernel.values, stated.values)
        if asked.bits and not codes:
            where = tuple(int(i) for i in torch.nonzero(kernel.codes != stated.codes)[0])
            k, r = int(kernel.codes[where]), int(stated.codes[where])
            share = float((kernel.codes != stated.codes).float().mean())
            return Difference(False, share, 0.0, where, k, r, "E8M0 codes differ")
        return _numbers(kernel.exact(), stated.exact(), exact.exact(), values, asked, more)
    if not stated.is_floating_point():
        changed = kernel != stated
        return _verdict(changed, kernel.double(), stated.double(), 0.0, not changed.any(), "integers differ")
    kernel = kernel.reshape(stated.shape)
    changed = _changed(kernel.float().contiguous().view(torch.int32), stated.contiguous().view(torch.int32))
    changed &= ~((kernel == 0) & (stated == 0))
    return _numbers(kernel.double(), stated.double(), exact.double(), changed, asked, more)


def _changed(a: Tensor, b: Tensor) -> Tensor:
    return a != b


def _numbers(
    kernel: Tensor, stated: Tensor, exact: Tensor, changed: Tensor, asked: Nearness, more: Tensor | None = None
) -> Difference:
    changed = changed & ~(kernel.isnan() & stated.isnan())
    norm = float(exact.nan_to_num(0.0, 0.0, 0.0).norm())
    apart = torch.where(kernel == exact, 0.0, kernel - exact)
    relative = float(apart.norm()) / norm if norm else float(apart.norm())
    share = float(changed.float().mean()) if changed.numel() else 0.0
    if asked.bits:
        return _verdict(changed, kernel, stated, relative, not changed.any(), "bits differ", share)
    rms = stated.nan_to_num(0.0, 0.0, 0.0).square().mean(dim=-1, keepdim=True).sqrt()
    allowed = asked.rtol * stated.abs() + asked.atol * rms + (0.0 if more is None else (1 + asked.rtol) * more) + 1e-30
    distance = torch.where(changed, (kernel - stated).abs(), 0.0) / allowed
    strange = (kernel.isfinite() != stated.isfinite()) | (kernel.isnan() != stated.isnan())
    out = changed & (strange | (distance > 1))
    used = max(
        float(distance.nan_to_num(torch.inf).amax()) if distance.numel() else 0.0,
        share / asked.share if asked.share < 1 else 0.0,
        relative / asked.relative,
    )
    if out.any():
        found = _verdict(out, kernel, stated, relative, False, "an element is too far from the stated rounding", share)
        return replace(found, used=used)
    if share > asked.share:
        why = f"{share:.1%} of the elements are rounded otherwise"
        return replace(_verdict(changed, kernel, stated, relative, False, why, share), used=used)
    good = relative <= asked.relative
    found = _verdict(changed, kernel, stated, relative, good, "too far from the exact numbers", share)
    return replace(found, used=used)


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
