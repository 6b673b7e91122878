"""A step's outputs end to end, from its inputs, as far as the layer's own noise lets them be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from monoc.expr.ir import DType
from monoc.spec.program import Entry, OpStatement, Program
from monoc.verify.noise import Ends, Picks

__all__ = ["End", "Rerouted", "compare_ends", "reroutes"]

Tensor = torch.Tensor
# What bounds a difference two kernels may have: each is as far from the stated rounding as another order of adding
# moves it, and they may move apart.
TIMES = 2.0
_FLOOR = {DType.BF16: 2.0**-8, DType.F32: 1e-4}  # one last bit; what stages of fp32 are allowed (compare.py)


@dataclass(frozen=True)
class End:
    """An output's largest distance from the reference's, of one token (relative L2 of its row), and the ``noise``:
    how far other orders of adding move a token's at most. ``token``: where it is furthest; ``limit``: of good ones."""

    error: float
    noise: float
    limit: float
    token: int = 0

    @property
    def good(self) -> bool:
        """Within what the layer's noise explains."""
        return self.error <= self.limit


@dataclass(frozen=True)
class Rerouted:
    """Tokens whose experts the kernel picked otherwise; ``unexplained`` those whose keys lie too far apart for that."""

    tokens: Tensor  # bool [t]
    unexplained: tuple[int, ...] = ()


def reroutes(kernel: Mapping[str, Tensor], ends: Ends, tokens: int) -> Rerouted:
    """Compares the kernel's picks, by the name of the route's ids, with the reference's.

    Another pick is explained where the keys of the experts exchanged lie no further apart than other orders of adding
    move two keys towards each other, ``TIMES`` the largest movement seen."""
    other = torch.zeros(tokens, dtype=torch.bool)
    unexplained: set[int] = set()
    for name, ids in kernel.items():
        picks = ends.picks[name]
        different = (ids.sort(dim=1).values != picks.ids[0].sort(dim=1).values).any(dim=1)
        other |= different
        unexplained |= {t for t in torch.nonzero(different).flatten().tolist() if not _explained(t, ids[t], picks)}
    return Rerouted(other, tuple(sorted(unexplained)))


def _explained(token: int, ids: Tensor, picks: Picks) -> bool:
    if picks.keys is None:
        return False  # the host gave them
    keys = picks.keys[:, token]
    mine, theirs = set(ids.tolist()), set(picks.ids[0, token].tolist())
    gained, lost = sorted(mine - theirs), sorted(theirs - mine)
    if not gained or not lost or not all(0 <= e < keys.shape[1] for e in gained):
        return False  # an expert twice, or none
    gap = float(keys[0, lost].amax() - keys[0, gained].amin())
    moved = (picks.keys[1:] - picks.keys[0]).abs()
    return gap <= 2 * TIMES * float(moved.nan_to_num(0.0, 0.0, 0.0).amax())


def compare_ends(
    program: Program, entry: Entry, kernel: Mapping[str, Tensor], ends: Ends, rerouted: Tensor
) -> dict[str, End]:
    """Every output, by token. Values behind a route are compared where kernel and reference picked the same experts."""
    behind = _behind_routes(entry)
    same_picks = torch.ones(next(iter(ends.outputs.values())).shape[:2], dtype=torch.bool)
    for picks in ends.picks.values():
        ids = picks.ids.sort(dim=2).values
        same_picks &= (ids == ids[0]).all(dim=2)
    found = {}
    for name, runs in ends.outputs.items():
        stated = runs[0].double()
        mine = kernel[name].double().reshape(stated.shape)
        away = _distances(mine, stated)
        moved = _distances(runs[1:].double(), stated)
        if name in behind:
            away = torch.where(rerouted, 0.0, away)
            moved = torch.where(same_picks[1:], moved, 0.0)
        noise = float(moved.max())
        token = int(away.argmax())
        limit = TIMES * noise + _FLOOR[program.type_of[name].dtype]
        found[name] = End(float(away[token]), noise, limit, token)
    return found


def _distances(values: Tensor, stated: Tensor) -> Tensor:
    """Relative L2 distance of every token's row of ``values`` [.., t, *] from ``stated`` [t, *]. Rows smaller than the
    rest are measured by a hundredth of the rows' root mean square; a NaN or infinity is where the other has one."""
    base = stated.reshape(len(stated), -1)
    flat = values.reshape(*values.shape[: values.dim() - stated.dim() + 1], base.shape[1])
    same = (flat == base) | (flat.isnan() & base.isnan())
    apart = torch.where(same, 0.0, flat - base).norm(dim=-1)
    size = base.nan_to_num(0.0, 0.0, 0.0).norm(dim=1)
    size = size.clamp(min=1e-2 * float(size.square().mean().sqrt()) + 1e-30)
    distances: Tensor = (apart / size).nan_to_num(torch.inf, torch.inf)
    return distances


def _behind_routes(entry: Entry) -> set[str]:
    """Values that depend on which experts were picked."""
    found: set[str] = set()
    for launch in entry.launches:
        for s in launch.statements:
            routes = isinstance(s, OpStatement) and s.op == "route"
            if routes or any(v in found for v in s.operands):
                found |= set(s.results)
    return found
