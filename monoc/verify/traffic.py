"""Bytes of weights a launch asks for, beside the bytes the spec's dimensions and the routing imply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from monoc.expr.ir import DType, IndexSum, IndexTerm, IndexVar, accesses
from monoc.reference.weights import sizes
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Launch, OpStatement, Program, Role, Statement, TensorDecl

__all__ = ["WeightTraffic", "weight_traffic"]

_BYTES = {DType.F32: 4, DType.BF16: 2}


@dataclass(frozen=True)
class WeightTraffic:
    """``requested``: bytes all lanes of all ranks loaded of ``weight`` in ``launch``; ``implied``: its distinct bytes,
    of experts those that were picked; ``stored``: the same with the zeros the loader pads with; ``streamed``: a
    matrix a statement contracts with activations, of which every byte is to be asked for once."""

    launch: str
    weight: str
    requested: int
    implied: int
    stored: int
    streamed: bool

    @property
    def good(self) -> bool:
        """Asked for once; padding, which stays zero, once or not at all. Weights that are not streamed are vectors and
        a few numbers: lanes and tasks that share them ask for them again, and the caches have them."""
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
    statements = [s for s in launch.statements if s.guard.evaluate(env)]
    for s in statements:
        for name in (n for n in s.operands if n in weights and n not in found):
            decl = weights[name]
            streamed = any(_contracts(reader, name) for reader in statements)
            ids = s.operand("ids") if isinstance(s, OpStatement) and s.operand("w") == name else None
            share = _picked(picks, ids)
            implied, stored = (ranks * _bytes(decl, of, env, share) for of in ("shape", "stored"))
            if implied:
                found[name] = WeightTraffic(launch.name, name, loaded.get(name, 0), implied, stored, streamed)
    return list(found.values())


def _contracts(s: Statement, weight: str) -> bool:
    """Whether ``s`` sums products with the matrix ``weight``: an axis of it is summed over, another one is not."""
    if isinstance(s, OpStatement):
        return s.operand("w") == weight
    for reduction in s.reductions:
        over = set(reduction.over)
        for access in accesses(reduction.body):
            used = {name for term in access.index for name in _variables(term)}
            if access.tensor == weight and used & over and used - over:
                return True
    return False


def _variables(term: IndexTerm) -> tuple[str, ...]:
    match term:
        case IndexVar(name):
            return (name,)
        case IndexSum(terms):
            return tuple(name for name, _ in terms)
        case _:
            return ()


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
