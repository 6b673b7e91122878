"""Scalar arithmetic as the language states it (docs/language.md, "Index notation"), elementwise on torch tensors.

``STATED``: every operation one IEEE fp32 rounding, values kept as fp32. ``EXACT``: fp64 throughout, roundings to
narrower types left out. The hardware's approximations (exp2, log2, rcp, rsq: about 1 ulp, no bits promised) are the
exact function rounded to nearest, denormal operands and results flushed (docs/simulator-alu.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from monoc.expr.ir import BinaryOp, CompareOp, DType, UnaryOp
from monoc.reference.noise import Reordered

__all__ = ["EXACT", "STATED", "Arithmetic", "bf16", "fma_f32"]

Tensor = torch.Tensor
_TINY = 2.0**-126  # smallest normal fp32


def bf16(x: Tensor) -> Tensor:
    """fp32 ``x`` rounded to bf16 (nearest even), as fp32."""
    return x.to(torch.bfloat16).to(torch.float32)


def fma_f32(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """``a * b + c`` of fp32 tensors, rounded once.

    The product is exact in fp64; the sum is rounded to odd there (its error comes from Knuth's TwoSum), so that
    rounding it to fp32 is as good as rounding the exact sum (S. Boldo and G. Melquiond, "Emulation of FMA and
    correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    p = a.double() * b.double()
    s = p + c
    part = s - p
    error = (p - (s - part)) + (c - part)
    bits = s.view(torch.int64)
    odd = (error != 0) & torch.isfinite(s) & torch.isfinite(error) & (bits & 1 == 0)
    away = torch.nextafter(s, torch.where(error > 0, torch.inf, -torch.inf).to(torch.float64))
    return torch.where(odd, away, s).float()


def _flushed(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        x = torch.where(x.abs() < _TINY, torch.copysign(torch.zeros_like(x), x), x)
        y = function(x.double()).float()
        return torch.where(y.abs() < _TINY, torch.copysign(torch.zeros_like(y), y), y)

    return call


def _rounded(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x.double()).float()


_HARDWARE = {
    UnaryOp.EXP2: torch.exp2,
    UnaryOp.LOG2: torch.log2,
    UnaryOp.RCP: torch.reciprocal,
    UnaryOp.RSQ: lambda x: torch.reciprocal(torch.sqrt(x)),
}
_ROUNDED = {UnaryOp.EXP: torch.exp, UnaryOp.SQRT: torch.sqrt}
_SIGNS: dict[UnaryOp, Callable[[Tensor], Tensor]] = {UnaryOp.NEG: torch.neg, UnaryOp.ABS: torch.abs}
_BINARY: dict[BinaryOp, Callable[[Tensor, Tensor], Tensor]] = {
    BinaryOp.ADD: torch.add,
    BinaryOp.SUB: torch.sub,
    BinaryOp.MUL: torch.mul,
    BinaryOp.DIV: torch.div,
    BinaryOp.MIN: torch.fmin,  # a NaN loses
    BinaryOp.MAX: torch.fmax,
}
_COMPARE: dict[CompareOp, Callable[[Tensor, Tensor], Tensor]] = {
    CompareOp.LT: torch.lt,
    CompareOp.LE: torch.le,
    CompareOp.GT: torch.gt,
    CompareOp.GE: torch.ge,
    CompareOp.EQ: torch.eq,
    CompareOp.NE: torch.ne,
}


@dataclass(frozen=True)
class Arithmetic:
    """How numbers are computed; ``exact`` picks fp64 without intermediate rounding; ``reordered``: some tokens' sums
    come out as another order of adding might make them; ``rounded``: what rounds to bf16 instead, for whom wants to
    know what becomes of a rounding."""

    exact: bool
    reordered: Reordered | None = None
    rounded: Callable[[Tensor], Tensor] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The type values are kept in."""
        return torch.float64 if self.exact else torch.float32

    def of(self, x: Tensor) -> Tensor:
        """``x`` (any float or integer type) as a value: exact in fp64, rounded once to fp32."""
        return x.to(self.dtype)

    def constant(self, value: float) -> Tensor:
        """A constant of the language: rounded to fp32 once in both modes, for it is part of what is asked for."""
        return torch.tensor(value, dtype=torch.float32).to(self.dtype)

    def unary(self, op: UnaryOp, x: Tensor) -> Tensor:
        """``op`` of every element."""
        if op in _SIGNS:
            return _SIGNS[op](x)
        function = _HARDWARE.get(op) or _ROUNDED[op]
        if self.exact:
            return function(x)
        return _flushed(function)(x) if op in _HARDWARE else _rounded(function)(x)

    def binary(self, op: BinaryOp, a: Tensor, b: Tensor) -> Tensor:
        """``op`` of two broadcast operands."""
        return _BINARY[op](a, b)

    def fma(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """``a * b + c``, rounded once."""
        return a * b + c if self.exact else fma_f32(a, b, c)

    def compare(self, op: CompareOp, a: Tensor, b: Tensor) -> Tensor:
        """bool."""
        return _COMPARE[op](a, b)

    def round(self, dtype: DType, x: Tensor) -> Tensor:
        """``x`` rounded to ``dtype``; in exact mode ``x`` itself."""
        if dtype is not DType.BF16 or self.exact:
            return x
        return bf16(x) if self.rounded is None else self.rounded(x)

    def sum(self, x: Tensor, axes: tuple[int, ...], other: Tensor | None = None) -> Tensor:
        """The sum over ``axes`` (kept, of extent 1): in fp64, rounded once. No order of adding is stated. ``other``:
        where another order may be taken."""
        x = x.double()
        total = x.sum(dim=axes, keepdim=True)
        if self.reordered is not None and other is not None:
            size = torch.maximum(total.abs(), x.square().sum(dim=axes, keepdim=True).sqrt())
            total += self.reordered.error(size, math.prod(x.shape[k] for k in axes), other)
        return self.of(total)

    def contracted(self, total: Tensor, terms: int) -> Tensor:
        """``total`` [t, .., n], each a sum of ``terms`` terms in no stated order. The terms' size is taken from the
        row: its sums are about as large as the root of their terms' squares."""
        if self.reordered is None:
            return total
        there = self.reordered.tokens(len(total)).reshape(-1, *[1] * (total.dim() - 1))
        size = torch.maximum(total.abs(), total.square().mean(dim=-1, keepdim=True).sqrt())
        return total + self.reordered.error(size, terms, there)


STATED = Arithmetic(exact=False)
EXACT = Arithmetic(exact=True)
