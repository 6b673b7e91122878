"""The picked experts' gate and up projections and their activation."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import formula
from monoc.schedule.model import LdsMember, RegionRead, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.mxrows import mx_row_words
from monoc.skeletons.picks import max_tiles, pick_members

__all__ = ["ExpertUpParams"]


@dataclass(frozen=True)
class ExpertUpParams:
    """``mid[pick] = MXFP8(activation(gate[e] @ row, up[e] @ row))`` for every (token, expert e) the route picked.

    ``route``: :class:`~monoc.skeletons.route.RouteParams`'s region (``copies`` of it). ``rows``: region of MXFP8 rows
    (:class:`monoc.device.mxrows.MxRows` of ``hidden``), a unit a token. ``weights``: e2m1x2 [experts, 2 * padded,
    hidden / 2], gate and up interleaved by 16-row tiles, (16, 16)-shuffled; ``scales``: E8M0 [experts * 2 * padded,
    hidden / 32] in ``shuffle_scale`` order. ``inter``: a rank's real intermediate columns (a multiple of 32), stored
    as ``padded`` (a multiple of 128) with zero weights past them, which are not read.
    ``activation(gate, up)``: a slot of two inputs. ``rule``: the MXFP8 rule of the result, "V" or "M".
    ``mid``: region of one MXFP8 row of ``padded`` values a pick, in pick-table order; its units are (pick tile, part
    of the columns). Every CTA has one task, if only to sort the picks: units i, i + ``grid``, ... as far as there are.

    Knobs: ``groups`` (1, 2, 4: groups of 32 columns a unit; the waves split K ``waves / (2 * groups)`` ways), ``depth``
    (pairs of K steps a wave has in flight, 17 registers each; "": all it has of a unit up to 7, else 3, because pairs
    requested while others are multiplied take registers of their own).
    ``tiles``: tiles of picks at most, a formula ("": :func:`~monoc.skeletons.picks.max_tiles`).
    ``hidden``: a multiple of 256.
    """

    stage: str
    route: str
    rows: str
    mid: str
    weights: str
    scales: str
    activation: Slot
    hidden: str
    inter: str
    padded: str
    experts: str
    topk: str
    groups: str = "1"
    depth: str = ""
    rule: str = "M"
    copies: str = "1"
    tokens: str = "b.tokens"
    threads: str = "THREADS"
    tiles: str = ""
    grid: str = "GRID"
    template: str = "expert_up"

    def slots(self) -> tuple[Slot, ...]:
        return (self.activation,)

    @property
    def depth_text(self) -> str:
        """Pairs of K steps in flight."""
        turns = f"cdiv({self.hidden} // 256, {self.threads} // 64 // (2 * {self.groups}))"
        return f"({self.depth or f'7 if {turns} <= 7 else 3'})"

    @property
    def code_function(self) -> str:
        """The device function of :attr:`rule`."""
        return {"V": "mx_code", "M": "mx_code_floor"}[self.rule]

    @property
    def parts(self) -> str:
        """Units of one tile of picks."""
        return f"cdiv({self.inter} // 32, {self.groups})"

    def arguments(self) -> tuple[TensorArg, ...]:
        rows = f"2 * {self.padded}"
        return (
            TensorArg(self.weights, "e2m1x2", (self.experts, rows, f"{self.hidden} // 2")),
            TensorArg(self.scales, "e8m0", (f"{self.experts} * {rows}", f"{self.hidden} // 32")),
        )

    def describe(self) -> StageShape:
        tiles = self.tiles or max_tiles(self.tokens, self.topk, self.experts)
        units = f"({tiles} * {self.parts})"
        mine = f"max(0, cdiv({units} - i, {self.grid}))"
        row_words = f"(({mx_row_words(self.hidden)}) // 8 * 2 + 1) * 4"  # an odd number of 16-byte pieces
        everyone = Units(formula("0"), formula(self.tokens))
        return StageShape(
            tasks=formula(self.grid),
            lds=(
                *pick_members(self.tokens, self.topk, self.experts, tiles),
                LdsMember("rows", "i32", formula(f"min({self.tokens}, 16) * {row_words}")),
                LdsMember("sums", "f32", formula(f"{self.threads} * 8")),
            ),
            reads=(RegionRead(self.route, everyone), RegionRead(self.rows, everyone)),
            writes=(
                RegionWrite(
                    self.mid,
                    words=formula(f"{self.tokens} * {self.topk} * {mx_row_words(self.padded)}"),
                    units=formula(units),
                    task_units=Units(
                        formula("i", task=True),
                        formula(mine, task=True),
                        formula(self.grid),
                    ),
                    counted=True,
                ),
            ),
            weight_bytes=formula(
                f"64 * {self.groups} * ({self.hidden} // 2 + {self.hidden} // 32) * {mine}",
                task=True,
            ),
        )
