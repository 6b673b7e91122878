"""A token's attention keys: its selected compressed rows through the block table, then its window's slots."""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, Form, RegionWrite, StageShape, Units
from monoc.skeletons.base import TensorArg

__all__ = ["KeyTableParams", "Selection"]


@dataclass(frozen=True)
class Selection:
    """Selected keys in the compressed cache, ``min((position + 1) // ratio, width)`` of them a token.

    ``ratio``: a formula, 0 in builds without compressed keys. ``indices``: i32 [tokens, width], local rows of the
    request's compressed keys (-1: none), mapped by ``block_table`` (i32 rows ``table_stride`` apart, a scalar
    argument; ``block`` rows a block, a scalar argument; ``requests``: i32 [tokens]) where ``paged`` holds. Without it
    they are slots already. Entries past the count, and those of padded rows, may be anything. ``pitch``: a scalar
    argument, how wide the rows of ``indices`` are, which bounds the count too ("": ``width``).
    """

    ratio: str
    width: str
    indices: str
    positions: str
    block_table: str = ""
    table_stride: str = ""
    block: str = ""
    requests: str = ""
    paged: Formula = TRUE
    pitch: str = ""

    @property
    def paged_inside(self) -> Formula:
        """Where ``paged`` holds, said inside the builds that have compressed keys at all."""
        return TRUE if self.paged == f"{self.ratio} > 0" else self.paged


@dataclass(frozen=True)
class KeyTableParams:
    """Task t: region ``table``, i32 words [token][``width``] and then a count a token; unit t: token t's.

    First the selection's slots with bit 31 set (-1 for a row of -1), then the token's ``window_counts`` [tokens]
    i32 first entries of ``window`` (i32 [tokens, ``window_width``]), then -1 to the row's end (with ``fill``; else
    unwritten). ``count`` = selected + window entries, 0 where ``cache_slots`` (i64 [tokens]) is negative.
    ``batch``: entries a thread has in flight where the row is not filled.
    """

    stage: str
    table: str
    width: str
    cache_slots: str
    window: str
    window_counts: str
    window_width: str
    selection: Selection | None = None
    fill: bool = True
    batch: int = 4
    tokens: str = "b.tokens"
    template: str = "key_table"

    @property
    def counts(self) -> str:
        """The word of token 0's count."""
        return f"{self.tokens} * ({self.width})"

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def arguments(self) -> tuple[TensorArg, ...]:
        out = [
            TensorArg(self.cache_slots, "i64", (self.tokens,)),
            TensorArg(self.window, "i32", (self.tokens, self.window_width)),
            TensorArg(self.window_counts, "i32", (self.tokens,)),
        ]
        if (s := self.selection) is not None:
            out += [
                TensorArg(s.positions, "i64", (self.tokens,)),
                TensorArg(s.indices, "i32", (self.tokens, s.width)),
            ]
            if s.pitch:
                out.append(TensorArg(s.pitch, "i64", ()))
            if s.block_table:
                out += [
                    TensorArg(s.block_table, "i32", ("", "")),
                    TensorArg(s.table_stride, "i64", ()),
                    TensorArg(s.block, "i64", ()),
                    TensorArg(s.requests, "i32", (self.tokens,)),
                ]
        return tuple(out)

    def describe(self) -> StageShape:
        return StageShape(
            tasks=formula(self.tokens),
            writes=(
                RegionWrite(
                    self.table,
                    words=formula(f"{self.tokens} * ({self.width} + 1)"),
                    units=formula(self.tokens),
                    task_units=Units(formula("i", task=True)),
                    default=Form.FLAG,
                ),
            ),
        )
