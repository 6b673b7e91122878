"""Weights of every rank as a loader leaves them: random numbers of a size that keeps activations near one.

A weight [n, k] has a standard deviation of about ``k ** -0.5``, its codes vary from block to block. A sharded weight
has numbers of its own on each rank. Experts are left zero, in memory never touched, until :meth:`Weights.materialise`.
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
from monoc.verify.inputs.roles import Roles, op_statements

__all__ = ["Weights", "positions_of"]

Tensor = torch.Tensor
_POSITIONS = 4096  # rows of a RoPE table, where no key table needs more
_ROPE_BASE = 10000.0
_E4M3_STEP = 32.0  # standard deviation of e4m3 values: far from both ends of the format
_E2M1_RMS = 2.93  # of a uniformly random e2m1 code
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
    """``tensors[rank]``: weights and scales by name."""

    def __init__(self, program: Program, env: Mapping[str, BuildValue], ranks: int, seed: int) -> None:
        self.program, self.env, self.seed = program, env, seed
        self.roles = Roles.of(program)
        self.tensors: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
        self._experts: dict[str, set[int]] = {}
        for k, decl in enumerate(t for t in program.tensors if t.role is Role.WEIGHT):
            shared: dict[str, Tensor] | None = None
            for rank in range(ranks):
                if decl.sharding.kind is ShardingKind.SPLIT or shared is None:
                    shared = self._make(decl, np.random.default_rng([seed, k, rank]))
                self.tensors[rank].update(shared)

    def _make(self, decl: TensorDecl, rng: np.random.Generator) -> dict[str, Tensor]:
        if decl.scale is None:
            return {decl.name: self._plain(decl, rng)}
        if len(decl.shape) == 3:
            return self._empty_experts(decl)
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
        shape = [positions_of(self.program, self.env) if n is None else n for n in sizes(decl.shape, self.env)]
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

    def _empty_experts(self, decl: TensorDecl) -> dict[str, Tensor]:
        assert decl.scale is not None
        experts, n, k = (_known(v) for v in sizes(decl.stored, self.env))
        codes = tuple(int(e.evaluate(self.env)) for e in decl.scale.shape)
        self._experts[decl.name] = set()
        stored = torch.from_numpy(np.zeros((experts, n, k // 2), dtype=np.uint8))  # calloc: pages not touched
        return {
            decl.name: stored.view(torch.float4_e2m1fn_x2),
            decl.scale.name: torch.from_numpy(np.zeros(codes, dtype=np.uint8)),
        }

    def materialise(self, experts: Iterable[int]) -> None:
        """Give these experts numbers on every rank; those that have them keep them."""
        wanted = sorted(set(experts))
        for name, present in self._experts.items():
            decl = self.program.tensor[name]
            assert decl.scale is not None
            for expert in wanted:
                if expert in present:
                    continue
                for rank, tensors in enumerate(self.tensors):
                    rng = np.random.default_rng([self.seed, len(name), rank, expert, *name.encode()])
                    values, codes = self._expert(decl, rng)
                    tensors[name].view(torch.uint8)[expert] = values
                    rows = values.shape[0]
                    tensors[decl.scale.name][expert * rows : (expert + 1) * rows] = codes
                present.add(expert)

    def _expert(self, decl: TensorDecl, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Stored bytes [n, k / 2] and codes of one expert: zero weights where the loader pads."""
        assert decl.scale is not None
        n, k = (_known(v) for v in sizes(decl.stored[1:], self.env))
        real_n, real_k = (_known(v) for v in sizes(decl.shape[1:], self.env))
        values = torch.from_numpy(rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
        values[:, real_k // 2 :] = 0
        halves = 2 if decl.interleave is not None else 1  # gate and up are padded each
        values.view(halves, n // halves, -1)[:, real_n // halves :] = 0
        columns = int(decl.scale.shape[-1].evaluate(self.env))
        base = 127 - round(math.log2(_E2M1_RMS * math.sqrt(real_k)))
        codes = torch.from_numpy(rng.integers(base - 1, base + 2, (n, columns), dtype=np.uint8))
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
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()
