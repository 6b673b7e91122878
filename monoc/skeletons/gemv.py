"""Dense quantised linear of decode rows: e4m3 weights with 32x32 E8M0 blocks against MXFP8 rows, one epilogue.

A task owns ``tiles`` row tiles of 16 weight rows and one of ``parts`` windows of K; it streams its weights once and
passes token tiles of up to ``tile_tokens`` rows under them (``monoc/device/gemv.py`` has the layouts and the
summation order: a wave sums its 128-steps in increasing K on the MFMA accumulator, waves are added in wave order,
parts are the reader's).
"""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import ONE, ZERO, Form, LdsMember, RegionRead, RegionWrite, Scope, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.mxrows import mx_row_words
from monoc.skeletons.rank_reduce import owner_text

__all__ = ["GemvParams", "MxOut", "Partials", "Push", "Rope", "Rows", "Source"]

_OWN = Units(Formula("i"))
_ALL = Units(Formula("0"), Formula("b.tokens"))


@dataclass(frozen=True)
class Source:
    """Activations: rows of ``k`` values of ``region``, of which a task takes its window from value ``offset`` (a
    formula in i).

    ``quantised``: an MXFP8 region (``monoc/device/mxrows.py``); else bf16 pairs [token][k / 2], quantised in the CTA
    with the device function ``code`` (``mx_code``: rule V, ``mx_code_floor``: rule M). ``units``: what a task waits
    for (stride 1).
    """

    region: str
    k: str
    offset: str = "0"
    units: Units = _ALL
    quantised: bool = True
    code: str = "mx_code"


@dataclass(frozen=True)
class Rope:
    """GPT-J rotation of the last ``rope`` rows of every ``head`` rows: table f32 [positions, rope], i64 positions
    [tokens].
    """

    table: str
    positions: str
    head: str
    rope: str


@dataclass(frozen=True)
class Partials:
    """fp32 sums -> ``region`` [part][token][rows]; unit i: task i's."""

    region: str
    kind: str = "partials"


@dataclass(frozen=True)
class Rows:
    """bf16 (turned by ``rope``) -> ``region`` bf16 pairs [token][rows / 2]; unit i: task i's."""

    region: str
    rope: Rope | None = None
    default: Form = Form.PAIR
    kind: str = "rows"


@dataclass(frozen=True)
class MxOut:
    """bf16, then MXFP8 of each 32 outputs -> MXFP8 ``region`` of ``rows`` values a token; unit i: task i's."""

    region: str
    code: str = "mx_code"
    kind: str = "mx"


@dataclass(frozen=True)
class Push:
    """bf16 (plus ``addend``, bf16 pairs [token][rows / 2], rounded again) -> every rank's ``region``
    [rank][token][rows / 2].

    ``rank``: this rank's number (a scalar argument); ``addend_units``: what a task waits for; unit i: task i's.
    ``two_hop``: the builds in which only the columns' owner gets them (:class:`~monoc.skeletons.rank_reduce.TwoHop`).
    """

    region: str
    rank: str
    addend: str = ""
    addend_units: Units = _OWN
    two_hop: Formula = ZERO
    kind: str = "push"


@dataclass(frozen=True)
class GemvParams:
    """``out[t, n] = epilogue(sum over k of x8[t, k] * weight[n, k])``, n over ``rows``, k over ``k``.

    ``weight`` e4m3 [rows, k], ``scale`` E8M0 [rows / 32, k / 32] (u8); ``shuffled``: (16, 16)-shuffled bytes;
    ``pitch``: bytes from a row to the next ("" for k: no padding). ``k`` and its windows (k / parts) are multiples of
    32; ``rows`` of 32. ``activation`` (inputs gate, up): ``weight`` holds rows / 2 gate rows, then as many up rows;
    both sums are rounded to bf16 and outputs are its rounded results, rows / 2 of them, 8 a tile. ``tiles`` a task,
    the last one possibly with fewer, and ``wave_groups``, groups the waves split into over the tiles (divides
    ``tiles`` and the waves): numbers or formulas; an :class:`MxOut` needs tasks of a multiple of 32 outputs.
    ``share_tokens``: up to so many MXFP8 rows that come as pairs are polled by few waves for all, through LDS.
    ``rows_ahead``: whether a token tile's rows are requested before the previous tile's MFMAs (a formula; costs their
    registers).
    """

    stage: str
    weight: str
    scale: str
    rows: str
    k: str
    source: Source
    epilogue: Partials | Rows | MxOut | Push
    tiles: int | str = 1
    wave_groups: int | str = 1
    parts: int = 1
    shuffled: bool = False
    pitch: str = ""
    activation: Slot | None = None
    tokens: str = "b.tokens"
    tile_tokens: int = 16
    share_tokens: int = 4
    rows_ahead: str = "True"
    threads: str = "THREADS"
    template: str = "gemv"

    @property
    def outputs(self) -> str:
        """Outputs a token: the weight's rows, or half of them behind an activation."""
        return formula(f"({self.rows}) // 2" if self.activation else self.rows)

    @property
    def task_outputs(self) -> int | str:
        """Outputs a task."""
        each = 8 if self.activation else 16
        return each * self.tiles if isinstance(self.tiles, int) else f"({each} * {self.tiles})"

    @property
    def first_text(self) -> str:
        """A task's first output, as its docstring says it."""
        return f"{self.task_outputs} * task".replace("(", "").replace(")", "")

    @property
    def task_text(self) -> str:
        """What a task is, as its docstring says it."""
        tiles = "a tile" if self.tiles == 1 else f"{self.tiles} tiles"
        groups = "" if self.wave_groups == 1 else f", split over {self.wave_groups} groups of waves"
        window = "" if self.parts == 1 else f" and one of {self.parts} parts of K"
        return f"A task is {tiles} of 16 weight rows{groups}{window}."

    @property
    def row_tasks(self) -> str:
        return f"cdiv({self.outputs}, {self.task_outputs})"

    @property
    def window(self) -> str:
        """Values of K a task contracts."""
        return formula(self.k if self.parts == 1 else f"({self.k}) // {self.parts}")

    @property
    def regions(self) -> tuple[str, ...]:
        addend = (self.epilogue.addend,) if isinstance(self.epilogue, Push) and self.epilogue.addend else ()
        return (self.source.region, *addend, self.epilogue.region)

    @property
    def early(self) -> tuple[str, ...]:
        """The arguments of ``<stage>_weights``, which requests a task's weights ahead of the stage."""
        return (self.weight, self.scale)

    @property
    def owner(self) -> str:
        """The rank that owns a task's outputs on two hops."""
        return owner_text("first", self.outputs, "b.tp")

    @property
    def shares(self) -> bool:
        """Whether rows that are polled go through LDS."""
        return self.source.quantised

    def slots(self) -> tuple[Slot, ...]:
        return (self.activation,) if self.activation else ()

    def arguments(self) -> tuple[TensorArg, ...]:
        out = [
            TensorArg(self.weight, "e4m3", (self.rows, self.k)),
            TensorArg(self.scale, "e8m0", (f"({self.rows}) // 32", f"({self.k}) // 32")),
        ]
        if isinstance(self.epilogue, Rows) and self.epilogue.rope:
            rope = self.epilogue.rope
            out += [TensorArg(rope.table, "f32", ("0", rope.rope)), TensorArg(rope.positions, "i64", (self.tokens,))]
        if isinstance(self.epilogue, Push):
            out.append(TensorArg(self.epilogue.rank, "i64", ()))
        return tuple(out)

    def describe(self) -> StageShape:
        """Raises :class:`ValueError` for parameters no task table can serve."""
        self._check()
        tasks = formula(self.row_tasks if self.parts == 1 else f"{self.row_tasks} * {self.parts}")
        reads = [RegionRead(self.source.region, self.source.units, part=formula(str(self.parts)))]
        if isinstance(self.epilogue, Push) and self.epilogue.addend:
            reads.append(RegionRead(self.epilogue.addend, self.epilogue.addend_units))
        sets = f"min(2, cdiv({self.tokens}, {self.tile_tokens}))"
        tile = f"min({self.tokens}, {self.tile_tokens})"
        row = f"(round_up(({self.window}) // 4 + ({self.window}) // 32, 32) + 4)"
        if self.shares:
            tile = f"({tile} if {self.tokens} <= {self.share_tokens} else 1)"
        rows = (LdsMember("x", "i32", formula(f"{tile} * {row}")),)
        sums = formula(f"{sets} * ({self.threads}) * (4 * ({self.tiles}) // ({self.wave_groups}))")
        return StageShape(
            tasks=tasks,
            lds=(*rows, LdsMember("sums", "f32", sums)),
            reads=tuple(reads),
            writes=(self._write(tasks),),
            weight_bytes=formula(f"16 * ({self.tiles}) * ({self.window})"),
        )

    def _write(self, tasks: Formula) -> RegionWrite:
        out = self.epilogue
        unit = Units(formula("i", task=True))
        match out:
            case Partials():
                words = f"{self.parts} * {self.tokens} * ({self.outputs})"
            case MxOut():
                words = f"{self.tokens} * {mx_row_words(self.outputs)}"
            case Rows():
                words = f"{self.tokens} * (({self.outputs}) // 2)"
            case Push():
                return RegionWrite(
                    out.region,
                    words=formula(f"b.tp * {self.tokens} * (({self.outputs}) // 2)"),
                    units=tasks,
                    task_units=unit,
                    scope=Scope.SYSTEM,
                    default=Form.PEER,
                    forms=(Form.PEER,),
                    two_hop=out.two_hop,
                )
        default = out.default if isinstance(out, Rows) else Form.FLAG if isinstance(out, MxOut) else Form.PAIR
        return RegionWrite(out.region, words=formula(words), units=tasks, task_units=unit, default=default)

    def _check(self) -> None:
        tiles, groups = self.tiles, self.wave_groups
        if isinstance(tiles, int) and isinstance(groups, int) and tiles % groups:
            raise ValueError(f"stage {self.stage}: {tiles} row tiles do not split over {groups} wave groups")
        outputs = self.task_outputs
        if isinstance(self.epilogue, MxOut) and isinstance(outputs, int) and outputs % 32:
            raise ValueError(f"stage {self.stage}: {outputs} outputs a task do not fill groups of 32; take more tiles")
        if isinstance(self.epilogue, Partials) and self.activation:
            raise ValueError(f"stage {self.stage}: an activation needs whole sums, not partials")
        if self.parts > 1 and not isinstance(self.epilogue, Partials):
            raise ValueError(f"stage {self.stage}: {self.parts} K parts can only hand out partials")
        waits = [self.source.units]
        if isinstance(self.epilogue, Push):
            waits.append(self.epilogue.addend_units)
        if any(u.stride != ONE for u in waits):
            raise ValueError(f"stage {self.stage}: a task waits for consecutive units")
