"""Bytes of weights a launch asks for, beside the bytes the spec's dimensions and the routing imply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from monoc.expr.ir import DType
from monoc.reference.weights import sizes
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Launch, OpStatement, Program, Role, TensorDecl

__all__ = ["WeightTraffic", "weight_traffic"]

_BYTES = {DType.F32: 4, DType.BF16: 2}


@dataclass(frozen=True)
class WeightTraffic:
    """``requested``: bytes all lanes of all ranks loaded of ``weight`` in ``launch``; ``implied``: its distinct bytes,
    of experts those that were picked; ``stored``: the same with the zeros the loader pads with; ``streamed``: a
    block-scaled operand of a contraction, of which every byte is to be asked for once."""

    launch: str
    weight: str
    requested: int
    implied: int
    stored: int
    streamed: bool

    @property
    def good(self) -> bool:
        """Asked for once; padding, which stays zero, once or not at all. Weights that are not streamed are small, and
        lanes and token tiles that share them ask for them again: they come from the caches."""
        return not self.streamed or self.implied <= self.requested <= self.stored

    @property
    def times(self) -> float:
        """How often every byte was asked for."""
        return self.requested / self.implied


def weight_traffic(
    program: Program,
    launch: Launch,
    env: Mapping[str, BuildValue],
    ranks: int,
    picks: Mapping[str, torch.Tensor],
    loaded: Mapping[str, int],
) -> list[WeightTraffic]:
    """Every weight the launch's statements read in this build. ``picks``: ids of routes by name; ``loaded``: bytes
    by buffer, of all ranks."""
    weights = {t.name: t for t in program.tensors if t.role is Role.WEIGHT and t.guard.evaluate(env)}
    found: dict[str, WeightTraffic] = {}
    for s in launch.statements:
        if not s.guard.evaluate(env):
            continue
        for name in (n for n in s.operands if n in weights and n not in found):
            decl = weights[name]
            streamed = isinstance(s, OpStatement) and s.operand("w") == name and decl.scale is not None
            ids = s.operand("ids") if isinstance(s, OpStatement) and s.operand("w") == name else None
            share = _picked(picks, ids)
            implied, stored = (ranks * _bytes(decl, of, env, share) for of in ("shape", "stored"))
            if implied:
                found[name] = WeightTraffic(launch.name, name, loaded.get(name, 0), implied, stored, streamed)
    return list(found.values())


def _picked(picks: Mapping[str, torch.Tensor], ids: str | None) -> int | None:
    return None if ids is None or ids not in picks else len(set(picks[ids].flatten().tolist()))


def _bytes(decl: TensorDecl, of: str, env: Mapping[str, BuildValue], experts: int | None) -> int:
    """Bytes of one rank's tensor; None: of all of its experts. 0 where the size is the host's."""
    extents = sizes(decl.shape if of == "shape" else decl.stored, env)
    if any(n is None for n in extents):
        return 0
    known = [n for n in extents if n is not None]
    if experts is not None:
        known[0] = experts
    count = math.prod(known)
    return count // 2 if decl.dtype is DType.E2M1X2 else count * _BYTES.get(decl.dtype, 1)
