"""The picked experts' down projections, summed a token, plus the shared expert's row."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import ZERO, Form, LdsMember, RegionRead, RegionWrite, Scope, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.picks import max_tiles, pick_members
from monoc.skeletons.rank_reduce import owner_text

__all__ = ["ExpertDownParams", "down_row_tiles"]


def down_row_tiles(inter: str, tiles: str, threads: str = "THREADS") -> str:
    """16-row tiles a task, as a formula: two share their scales and the picks' rows, and fewer CTAs have a second task;
    with more than 6 K steps and more tiles of picks than waves their weights alone would take over 200 registers."""
    return f"2 if cdiv({inter}, 128) <= 6 or {tiles} <= {threads} // 64 else 1"


@dataclass(frozen=True)
class ExpertDownParams:
    """``out[rank][t] = join(sum over t's picks in pick order of weigh(down[e] @ mid[pick], weight), shared[t])``.

    ``route``, ``mid``: as :class:`~monoc.skeletons.expert_up.ExpertUpParams` reads and writes them (``groups``: that
    stage's). ``weights``: e2m1x2 [experts, hidden, padded / 2], (16, 16)-shuffled; ``scales``: E8M0
    [experts * hidden, padded / 32 rounded up to 8] in ``shuffle_scale`` order. ``inter`` real columns, a multiple
    of 32, are used. ``shared``: region of bf16 rows, ``hidden / 2`` words a token, a unit ``shared_columns`` of every
    token ("" for none). ``out``: region of bf16 rows [source rank][token][hidden / 2], a unit 16 columns of every
    token; ``rank``: a scalar argument.

    Slots: ``weigh(value, weight)``; ``add(total, value)`` for the second pick on; ``join(routed, shared)``.
    ``kept`` (a formula): the picks lie sorted in LDS already, because an expert_up stage of the same tokens, topk and
    experts ran on every CTA just before: both LDS structs begin with the same arrays.
    Knob: ``row_tiles`` (1 or 2: 16-row tiles a task; "": :func:`down_row_tiles`; a wave holds the weights
    of two tiles of picks, ``row_tiles`` * 20 + 3 registers each at 640 columns).
    ``tiles``: tiles of picks at most, a formula ("": :func:`~monoc.skeletons.picks.max_tiles`).
    ``two_hop``: the builds in which only the columns' owner gets them (:class:`~monoc.skeletons.rank_reduce.TwoHop`).
    """

    stage: str
    route: str
    mid: str
    out: str
    weights: str
    scales: str
    rank: str
    weigh: Slot
    add: Slot
    join: Slot
    hidden: str
    inter: str
    padded: str
    experts: str
    topk: str
    shared: str = ""
    groups: str = "1"
    row_tiles: str = ""
    copies: str = "1"
    kept: str = "False"
    shared_columns: str = "16"
    two_hop: Formula = ZERO
    tokens: str = "b.tokens"
    tp: str = "b.tp"
    threads: str = "THREADS"
    tiles: str = ""
    template: str = "expert_down"

    @property
    def owner(self) -> str:
        """The rank that owns a task's columns on two hops."""
        return owner_text(f"task * 16 * {self.row_tiles_text}", self.hidden, self.tp)

    def slots(self) -> tuple[Slot, ...]:
        return (self.weigh, self.add, self.join) if self.shared else (self.weigh, self.add)

    @property
    def row_tiles_text(self) -> str:
        """16-row tiles a task."""
        return self.row_tiles or f"({down_row_tiles(self.inter, self.max_tiles, self.threads)})"

    @property
    def max_tiles(self) -> str:
        """Tiles of picks at most."""
        return self.tiles or max_tiles(self.tokens, self.topk, self.experts)

    @property
    def built_when(self) -> str:
        """The builds in which this stage sorts the picks itself, "" for none."""
        return "" if self.kept == "True" else f"not ({self.kept})"

    @property
    def _shared_units(self) -> Units:
        columns = f"{self.row_tiles_text} * 16"
        first = formula(f"i * {columns} // {self.shared_columns}", task=True)
        return Units(first, formula(f"max(1, {columns} // {self.shared_columns})"))

    def arguments(self) -> tuple[TensorArg, ...]:
        return (
            TensorArg(self.weights, "e2m1x2", (self.experts, self.hidden, f"{self.padded} // 2")),
            TensorArg(self.scales, "e8m0", (f"{self.experts} * {self.hidden}", f"round_up({self.padded} // 32, 8)")),
            TensorArg(self.rank, "i64", ()),
        )

    def describe(self) -> StageShape:
        tasks = formula(f"{self.hidden} // (16 * {self.row_tiles_text})")
        parts = f"cdiv({self.inter} // 32, {self.groups})"
        columns = Units(formula(f"i * {self.row_tiles_text}", task=True), formula(self.row_tiles_text))
        return StageShape(
            tasks=tasks,
            lds=(
                *pick_members(self.tokens, self.topk, self.experts, self.max_tiles),
                LdsMember("parts", "f32", formula(f"{self.row_tiles_text} * {self.tokens} * {self.topk} * 16")),
            ),
            reads=(
                RegionRead(self.route, Units(formula("0"), formula(self.tokens))),
                RegionRead(self.mid, Units(formula("0"), formula(f"{self.max_tiles} * {parts}"))),
                *((RegionRead(self.shared, self._shared_units),) if self.shared else ()),
            ),
            writes=(
                RegionWrite(
                    self.out,
                    words=formula(f"{self.tp} * {self.tokens} * ({self.hidden} // 2)"),
                    units=formula(f"{self.hidden} // 16"),
                    task_units=columns,
                    scope=Scope.SYSTEM,
                    default=Form.PEER,
                    forms=(Form.PEER,),
                    two_hop=self.two_hop,
                ),
            ),
            weight_bytes=formula(
                f"16 * {self.row_tiles_text} * min({self.tokens} * {self.topk}, {self.experts})"
                f" * ({self.padded} // 2 + {self.padded} // 32)",
                task=True,
            ),
        )
