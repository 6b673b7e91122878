"""Weights of every rank as a loader leaves them: random numbers of a size that keeps activations near one.

A weight [n, k] has a standard deviation of about ``k ** -0.5``, its codes vary from block to block. A sharded weight
has numbers of its own on each rank. Experts are left zero, in memory never touched, until :meth:`Weights.materialise`,
and are that again when too many are there at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
import torch

from monoc.expr.ir import DType
from monoc.reference.layouts import interleave, shuffle16, shuffle_scale
from monoc.reference.weights import sizes
from monoc.spec.buildexpr import BuildExpr, BuildValue
from monoc.spec.program import Layout, Program, Role, ShardingKind, TensorDecl
from monoc.verify.inputs.pages import Pages
from monoc.verify.inputs.roles import Roles, op_statements

__all__ = ["Weights", "positions_of"]

Tensor = torch.Tensor
_POSITIONS = 4096  # rows of a RoPE table, where no key table needs more
_ROPE_BASE = 10000.0
_E4M3_STEP = 32.0  # standard deviation of e4m3 values: far from both ends of the format
_E2M1_RMS = 2.93  # of a uniformly random e2m1 code
_EXPERT_BYTES = 2 << 30  # of experts that a step does not need, at most
_ROWS_AT_ONCE = 1 << 16  # of a RoPE table
_TORCH = {DType.F32: torch.float32, DType.BF16: torch.bfloat16}


def positions_of(program: Program, env: Mapping[str, BuildValue]) -> int:
    """Positions of a build's contexts: as many as fill the widest key table whose width is the host's."""
    found = _POSITIONS
    for s in op_statements(program):
        picks = program.tensor.get(s.operand("picks") or "") if s.op == "key_table" else None
        if picks is not None and picks.shape[-1].at_most:
            width, ratio = picks.shape[-1].size, s.attribute("ratio")
            assert width is not None
            assert isinstance(ratio, BuildExpr)
            found = max(found, int(width.evaluate(env)) * int(ratio.evaluate(env)))
    return found


class Weights:
    """``tensors[rank]``: weights and scales by name. ``positions``: rows of a RoPE table (default: the build's)."""

    def __init__(
        self, program: Program, env: Mapping[str, BuildValue], ranks: int, seed: int, positions: int | None = None
    ) -> None:
        self.program, self.env, self.seed = program, env, seed
        self.positions = positions_of(program, env) if positions is None else positions
        self.roles = Roles.of(program)
        self.tensors: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
        self._experts: list[TensorDecl] = []
        self._pages: dict[tuple[str, int], Pages] = {}  # of experts' weights and scales, by name and rank
        self._present: set[int] = set()
        for k, decl in enumerate(t for t in program.tensors if t.role is Role.WEIGHT):
            shared: dict[str, Tensor] | None = None
            for rank in range(ranks):
                if decl.sharding.kind is ShardingKind.SPLIT or shared is None:
                    shared = self._make(decl, rank, np.random.default_rng([seed, k, rank]))
                self.tensors[rank].update(shared)

    def _make(self, decl: TensorDecl, rank: int, rng: np.random.Generator) -> dict[str, Tensor]:
        if decl.scale is None:
            return {decl.name: self._plain(decl, rng)}
        if len(decl.shape) == 3:
            return self._no_experts(decl, rank)
        n, k = (_known(v) for v in sizes(decl.stored, self.env))
        values = torch.from_numpy(_e4m3_table()[rng.integers(0, 256, (n, k), dtype=np.uint8)])
        down, along = decl.scale.block
        base = 127 - round(math.log2(_E4M3_STEP * math.sqrt(k)))
        codes = torch.from_numpy(rng.integers(base - 1, base + 2, (n // down, k // along), dtype=np.uint8))
        if decl.layout is Layout.SHUFFLE16:
            values = shuffle16(values)
        if decl.layout is Layout.ROWS_PAD256 and k % 512 == 0:
            values = torch.cat([values, torch.full((n, 256), 0x7F, dtype=torch.uint8)], dim=1)
        return {decl.name: values.contiguous().view(torch.float8_e4m3fn), decl.scale.name: codes}

    def _plain(self, decl: TensorDecl, rng: np.random.Generator) -> Tensor:
        shape = [self.positions if n is None else n for n in sizes(decl.shape, self.env)]
        if decl.name in self.roles.tensors("rope", "table"):
            return _rope_table(shape[0], shape[1])
        if any(e.at_least for e in decl.shape):
            shape[0] += 3
        values = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) > 1:
            values *= shape[-1] ** -0.5
        elif decl.dtype is DType.BF16:
            values = 1 + 0.2 * values  # the weights of a norm
        else:
            values *= 0.5
        return torch.from_numpy(values).to(_TORCH[decl.dtype])

    # -------------------------------------------------------------- experts

    def _no_experts(self, decl: TensorDecl, rank: int) -> dict[str, Tensor]:
        assert decl.scale is not None
        experts, n, k = (_known(v) for v in sizes(decl.stored, self.env))
        codes = tuple(int(e.evaluate(self.env)) for e in decl.scale.shape)
        if rank == 0:
            self._experts.append(decl)
        stored = self._pages[decl.name, rank] = Pages(experts * n * (k // 2))
        scales = self._pages[decl.scale.name, rank] = Pages(math.prod(codes))
        return {
            decl.name: stored.bytes.reshape(experts, n, k // 2).view(torch.float4_e2m1fn_x2),
            decl.scale.name: scales.bytes.reshape(codes),
        }

    def materialise(self, experts: Iterable[int]) -> None:
        """Give these experts numbers on every rank. Others keep theirs as long as there are not too many."""
        wanted = set(experts)
        if len(self._present | wanted) * self._expert_bytes() > _EXPERT_BYTES:
            self.forget(self._present - wanted)
        for expert in sorted(wanted - self._present):
            for decl in self._experts:
                for rank in range(len(self.tensors)):
                    rng = np.random.default_rng([self.seed, len(decl.name), rank, expert, *decl.name.encode()])
                    for (name, first, end), made in zip(
                        self._places(decl, expert), self._expert(decl, rng), strict=True
                    ):
                        self._pages[name, rank].bytes[first:end] = made.flatten()
        self._present |= wanted

    def forget(self, experts: Iterable[int] | None = None) -> None:
        """Make experts (default: all) zero again: they take no memory then."""
        gone = set(self._present if experts is None else experts) & self._present
        for expert in gone:
            for name, first, end in (place for decl in self._experts for place in self._places(decl, expert)):
                for rank in range(len(self.tensors)):
                    self._pages[name, rank].give_back(first, end)
        self._present -= gone

    def _places(self, decl: TensorDecl, expert: int) -> list[tuple[str, int, int]]:
        """Where an expert's bytes and codes lie: (name, first byte, end)."""
        assert decl.scale is not None
        _, n, k = (_known(v) for v in sizes(decl.stored, self.env))
        columns = int(decl.scale.shape[-1].evaluate(self.env))
        each = {decl.name: n * k // 2, decl.scale.name: n * columns}
        return [(name, expert * size, (expert + 1) * size) for name, size in each.items()]

    def _expert_bytes(self) -> int:
        """Of one expert on all ranks."""
        return len(self.tensors) * sum(end - first for d in self._experts for _, first, end in self._places(d, 0))

    def _expert(self, decl: TensorDecl, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Stored bytes [n, k / 2] and codes of one expert: zero weights where the loader pads."""
        assert decl.scale is not None
        n, k = (_known(v) for v in sizes(decl.stored[1:], self.env))
        real_n, real_k = (_known(v) for v in sizes(decl.shape[1:], self.env))
        values = torch.frombuffer(bytearray(rng.bytes(n * k // 2)), dtype=torch.uint8).reshape(n, k // 2)
        columns = int(decl.scale.shape[-1].evaluate(self.env))
        base = 127 - round(math.log2(_E2M1_RMS * math.sqrt(real_k)))
        codes = torch.from_numpy(rng.integers(base - 1, base + 2, (n, columns), dtype=np.uint8))
        if (real_n, real_k) == (n, k):
            return values, codes  # equally random in any layout
        values[:, real_k // 2 :] = 0
        halves = 2 if decl.interleave is not None else 1  # gate and up are padded each
        values.view(halves, n // halves, -1)[:, real_n // halves :] = 0
        if decl.interleave is not None:
            values, codes = interleave(values, decl.interleave), interleave(codes, decl.interleave)
        if decl.layout is Layout.SHUFFLE16:
            values = shuffle16(values)
        if decl.scale.layout is Layout.SHUFFLE_SCALE:
            codes = shuffle_scale(codes)
        return values, codes


def _known(size: int | None) -> int:
    assert size is not None
    return size


@cache
def _e4m3_table() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Byte -> e4m3 byte: the quantiles of a normal distribution, so that random bytes give normal weights."""
    at = (torch.arange(256, dtype=torch.float64) + 0.5) / 256
    values = torch.special.ndtri(at) * _E4M3_STEP
    table: np.ndarray[tuple[int], np.dtype[np.uint8]] = values.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return table


def _rope_table(rows: int, width: int) -> Tensor:
    """f32 [rows, width]: width / 2 cosines, then as many sines."""
    rates = _ROPE_BASE ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.empty(rows, width)
    for first in range(0, rows, _ROWS_AT_ONCE):
        some = table[first : first + _ROWS_AT_ONCE]
        angles = torch.arange(first, first + len(some), dtype=torch.float64)[:, None] * rates
        some[:, : width // 2], some[:, width // 2 :] = angles.cos(), angles.sin()
    return table
