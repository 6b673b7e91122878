"""The two latents of an MLA front: split-K partials summed, the query normed to MXFP8, the key-value record written."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, ZERO, LdsMember, RegionRead, StageShape, Units
from monoc.skeletons.base import TensorArg
from monoc.skeletons.inputs import Operand, slot_call
from monoc.skeletons.row_norm import MxOutput, RowWeight, mx_write

__all__ = ["LatentNormParams", "NormedSegment"]


@dataclass(frozen=True)
class NormedSegment:
    """``y[t,c] = scale(value[t,c], rstd(sum over c of value^2), weights[c])`` over one segment of columns.

    ``rstd``: a slot of the sum alone (none: the sum as it is). ``scale`` reads ``value`` [t, c], ``rstd_value`` [t]
    and ``weights`` [c], and rounds to bf16.
    """

    columns: str
    scale: Slot
    value: str
    rstd: Slot | None = None
    rstd_value: str = "rstd"
    weights: tuple[RowWeight, ...] = ()

    def call(self, value: str, factor: str, suffix: str) -> str:
        """y of column v of a thread's."""
        weights = tuple(Operand(w.tensor, f"in_{w.argument}{suffix}", (), "[v]") for w in self.weights)
        return slot_call(
            self.scale, (Operand(self.value, value, (), "[v]"), Operand(self.rstd_value, factor), *weights), {}
        )


@dataclass(frozen=True)
class LatentNormParams:
    """Task t, of token t: the ``parts`` partials of region ``partials`` (fp32 [part][token][latent + record columns],
    ``partial_units`` units, all waited for) added in part order and rounded to bf16; then

    - columns 0 .. of segment ``latent``: normed, to the ``mx`` regions and, where ``out_when`` holds, bf16 ``out``
      [tokens, latent columns];
    - the following columns, segment ``record`` (``nope`` + ``rope`` of them): normed, turned by GPT-J RoPE in fp32
    (the first
      ``nope`` by cosine 1 and sine 0, which may move the sign of a zero), rounded to bf16 and written as the
      ``fp8_ds_mla`` record of the token's slot (``monoc/device/kvrecord.py``), plainly; a negative slot: none.

    ``positions``, ``cache_slots``: i64 [tokens]; ``table``: f32 [positions, rope], cosines then sines; ``cache``: u8
    blocks of ``cache_block`` tokens, ``cache_stride`` bytes apart (scalar arguments). ``vector``: columns a thread (4
    or 8); ``nope``: a multiple of 64, ``latent`` columns and ``rope`` of 32. Sum order of squares: a thread's
    columns, lanes 1, 2, 4, ... apart, waves in order.
    """

    stage: str
    partials: str
    parts: int
    partial_units: str
    latent: NormedSegment
    record: NormedSegment
    nope: str
    rope: str
    positions: str
    cache_slots: str
    table: str
    cache: str
    cache_block: str
    cache_stride: str
    mx: tuple[MxOutput, ...] = ()
    out: str = ""
    out_when: Formula = TRUE
    vector: str = "4"
    tokens: str = "b.tokens"
    template: str = "latent_norm"

    @property
    def columns(self) -> str:
        return f"({self.latent.columns} + {self.record.columns})"

    @property
    def latent_call(self) -> str:
        return self.latent.call("x[turn]", "latent_factor", "[turn]")

    @property
    def record_call(self) -> str:
        return self.record.call("x[turn]", "record_factor", "[turn]")

    def slots(self) -> tuple[Slot, ...]:
        return tuple(dict.fromkeys(s for g in (self.latent, self.record) for s in (g.rstd, g.scale) if s))

    def arguments(self) -> tuple[TensorArg, ...]:
        out = (TensorArg(self.out, "bf16", (self.tokens, self.latent.columns)),) if self.out else ()
        return (
            *(TensorArg(w.argument, "bf16", (g.columns,)) for g in (self.latent, self.record) for w in g.weights),
            TensorArg(self.positions, "i64", (self.tokens,)),
            TensorArg(self.cache_slots, "i64", (self.tokens,)),
            TensorArg(self.table, "f32", ("", self.rope)),
            TensorArg(self.cache, "u8", ("",)),
            TensorArg(self.cache_block, "i64", ()),
            TensorArg(self.cache_stride, "i64", ()),
            *out,
        )

    def describe(self) -> StageShape:
        units = f"cdiv({self.latent.columns} // {self.vector}, 64) + cdiv({self.record.columns} // {self.vector}, 64)"
        return StageShape(
            tasks=formula(self.tokens),
            lds=(LdsMember("sums", "f32", formula(units)),),
            reads=(RegionRead(self.partials, Units(ZERO, formula(self.partial_units)), part=formula(self.tokens)),),
            writes=tuple(mx_write(o, self.tokens, self.latent.columns) for o in self.mx),
        )
