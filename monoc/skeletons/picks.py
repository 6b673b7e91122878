"""What the expert stages keep in LDS of a step's picks (:class:`monoc.device.route.PickTiles`), as formulas."""

from __future__ import annotations

from monoc.schedule.formula import formula
from monoc.schedule.model import LdsMember

__all__ = ["max_tiles", "pick_members"]


def max_tiles(tokens: str, topk: str, experts: str) -> str:
    """Tiles of 16 picks at most: one an expert picked, and one more for every 16 picks; never more than picks."""
    picks = f"{tokens} * {topk}"
    return f"min({picks}, min({picks}, {experts}) + {picks} // 16)"


def pick_members(tokens: str, topk: str, experts: str, tiles: str) -> tuple[LdsMember, ...]:
    """The LDS arrays of a sorted pick table of at most ``tiles`` tiles."""
    picks = f"{tokens} * {topk}"
    counts = {
        "ids": picks,
        "weights": picks,
        "order": picks,
        "tile_expert": tiles,
        "tile_first": f"{tiles} + 1",
        "masks": f"{experts} * cdiv({tokens}, 32)",
        "starts": experts,
        "totals": f"cdiv({experts}, 64) + 1",
    }
    return tuple(LdsMember(name, "i32", formula(count)) for name, count in counts.items())
