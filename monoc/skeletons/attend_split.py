"""Flash-decoding: one chunk of one token's keys against every head of the rank (``monoc/device/attention.py``).

Scores are base-2 logits; a chunk's result is the unnormalised sum of bf16 probabilities times values, rounded to
bf16, and per head the maximum logit and the sum of the unrounded probabilities. Orders of the sums: a score's over a
record's values in blocks of 64 as loaded; the probabilities' within 16 keys, then key tiles in order; the values'
over 32 keys an MFMA in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from monoc.expr.slot import Slot
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import Form, LdsMember, RegionRead, RegionWrite, StageShape, Take, Units
from monoc.skeletons.base import TensorArg

__all__ = ["PACKED_TOKENS", "AttendSplitParams", "Cache", "KeyCounts", "KeyTable", "chunk_words"]

PACKED_TOKENS = 64  # tokens of a step of which a wave counts the chunks, a lane each
_TOKEN = Units(Formula("i"))


@dataclass(frozen=True)
class Cache:
    """A paged key cache: names of the arguments for its address, records a block and bytes from a block to the
    next.
    """

    base: str
    block: str
    stride: str

    def arguments(self) -> tuple[TensorArg, ...]:
        return (TensorArg(self.base, "u8", ()), TensorArg(self.block, "i64", ()), TensorArg(self.stride, "i64", ()))


@dataclass(frozen=True)
class KeyTable:
    """``region``: [token][``width``] entries (a slot, bit 31: of the compressed cache; -1: none), then at word
    ``counts`` one key count a token. Unit t: token t's. ``full``: entries past the count are written too (and may be
    anything)."""

    region: str
    width: str
    counts: str
    full: bool = True


@dataclass(frozen=True)
class KeyCounts:
    """What a token's count of keys follows from, as :class:`~monoc.skeletons.key_table.KeyTableParams` counts them:
    names of arguments, ``ratio`` and ``width`` formulas (``positions`` "": no selected keys)."""

    cache_slots: str
    window_counts: str
    positions: str = ""
    ratio: str = "0"
    width: str = "0"
    pitch: str = ""

    def arguments(self) -> tuple[TensorArg, ...]:
        """The counts' arguments, in the order of the stage's."""
        out = [TensorArg(self.cache_slots, "i64", ("b.tokens",)), TensorArg(self.window_counts, "i32", ("b.tokens",))]
        out += [TensorArg(self.positions, "i64", ("b.tokens",))] if self.positions else []
        return (*out, TensorArg(self.pitch, "i64", ())) if self.pitch else tuple(out)


def chunk_words(heads: str, head: str) -> str:
    """Words of one chunk's result: bf16 [heads][head], then (maximum, sum) f32 [heads][2]."""
    return f"({heads}) * (({head}) // 2 + 2)"


@dataclass(frozen=True)
class AttendSplitParams:
    """Task i: chunk ``i mod chunks`` of token ``i // chunks``, chunks = cdiv(width, chunk), a unit of ``region``
    each.

    ``query``: bf16 pairs [token][heads * head / 2], ``query_units`` what a task waits for. ``chunk`` keys a task: 16
    times a divisor of the CTA's waves, a multiple of 32. ``head - rope`` is a multiple of 64 (at most 8 blocks),
    ``rope`` of 32. ``score``: slot of one input, the dot product, giving the base-2 logit, or with ``query_factor``
    (a slot of the sum of a head's squared query values, any order) of two, the second its result.
    ``with_compressed``: whether entries may name the compressed cache (a formula). A chunk past a token's keys writes
    and announces nothing. ``key_counts``: what tokens' counts follow from, where tables are
    not ``full``; then (up to 64 tokens) task i is the i-th chunk that has keys, and there are no others.
    """

    stage: str
    query: str
    keys: KeyTable
    region: str
    window: Cache
    compressed: Cache
    score: Slot
    heads: str
    head: str
    rope: str
    chunk: str
    with_compressed: str = "True"
    query_units: Units = _TOKEN
    tokens: str = "b.tokens"
    threads: str = "THREADS"
    query_factor: Slot | None = None
    key_counts: KeyCounts | None = None
    template: str = "attend_split"

    @property
    def regions(self) -> tuple[str, ...]:
        return (self.query, self.keys.region, self.region)

    @property
    def chunks(self) -> str:
        return f"cdiv({self.keys.width}, {self.chunk})"

    def slots(self) -> tuple[Slot, ...]:
        return (self.score,) if self.query_factor is None else (self.query_factor, self.score)

    @property
    def ready(self) -> tuple[str, ...]:
        """Arguments of ``<stage>_ready``, which says which chunks have keys."""
        return tuple(a.name for a in self.key_counts.arguments()) if self.key_counts else ()

    def arguments(self) -> tuple[TensorArg, ...]:
        counts = self.key_counts.arguments() if self.key_counts else ()
        return tuple(dict.fromkeys((*counts, *self.window.arguments(), *self.compressed.arguments())))

    def describe(self) -> StageShape:
        heads, head, chunk = f"({self.heads})", f"({self.head})", f"({self.chunk})"
        padded = f"(cdiv({heads}, 16) * 16)"
        stats = formula(f"{padded} * ({chunk} // 16)")
        tasks = formula(f"{self.tokens} * {self.chunks}")
        return StageShape(
            tasks=tasks,
            lds=(
                LdsMember("q", "i32", formula(f"{heads} * ({head} // 2 + 4)")),
                LdsMember("v", "i32", formula(f"{chunk} * ({head} // 2 + 4)")),
                LdsMember("p", "i32", formula(f"{padded} * ({chunk} // 2 + 4)")),
                LdsMember("maxima", "f32", stats),
                LdsMember("sums", "f32", stats),
            ),
            reads=(
                RegionRead(self.query, self.query_units),
                RegionRead(self.keys.region, Units(formula(f"i // {self.chunks}", task=True))),
            ),
            writes=(
                RegionWrite(
                    self.region,
                    words=formula(f"{self.tokens} * {self.chunks} * {chunk_words(self.heads, self.head)}"),
                    units=tasks,
                    task_units=Units(formula("i", task=True)),
                    default=Form.FLAG,
                    counted=True,
                ),
            ),
            take=Take.PACKED if self.key_counts else Take.PLACED,
        )
