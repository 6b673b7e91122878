"""The merge of one head's chunks, values spread over a wave's lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx

from monoc.device.attention import LEAST
from monoc.device.frozen import Frozen
from monoc.device.lanes import reduce_lanes
from monoc.device.mxrows import MX_GROUP, MxRows, mx_words
from monoc.device.numeric import bf16_high, bf16_low, bf16_round, exp2, power_of_two_inverse
from monoc.device.rope import unrotate

__all__ = ["HeadLanes", "merge_chunks", "put_head"]


@dataclass(frozen=True)
class HeadLanes(Frozen):
    """A head of ``head`` values, ``per`` consecutive ones a lane (at least four); lanes past the head repeat its
    last.
    """

    heads: int
    head: int
    rope: int

    @property
    def per(self) -> int:
        return max(4, self.head // 64)

    def first(self, lane: Any) -> Any:
        """This lane's first value."""
        used = self.head // self.per
        return (lane if used >= 64 else fx.min(lane, used - 1)) * self.per

    def pair(self, lane: Any) -> Any:
        """This lane's first pair of the turned values (0 where it has none)."""
        return fx.max(self.first(lane) - (self.head - self.rope), 0) // 2


def _merge_pass(
    region: Any, shape: HeadLanes, lane: Any, first: Any, head: Any, base: Any, chunks: Any, batch: int, state: Any
) -> Any:
    """``state`` = (maximum, denominator, values) with chunks ``base`` .. + ``batch`` added: all of them loaded
    together.
    """
    unit = shape.heads * (shape.head // 2 + 2)
    words = shape.per // 2
    wanted = []
    for c in range(batch):
        at = (first + fx.min(base + c, chunks - 1)) * unit
        wanted.append((at + (shape.heads * (shape.head // 2) + head * 2), 2))
        value = at + head * (shape.head // 2) + shape.first(lane) // 2
        wanted += [(value + w, min(4, words - w)) for w in range(0, words, 4)]
    got = region.get(wanted)
    each = len(got) // batch
    stats = [[fx.Int32(w).bitcast(fx.Float32) for w in got[c * each]] for c in range(batch)]
    live = [base + c < chunks for c in range(batch)]
    tops = [fx.Float32(ok.select(m, fx.Float32(LEAST))) for ok, (m, _) in zip(live, stats, strict=True)]
    top, total, sums = state
    newest = top
    for m in tops:
        newest = fx.max(newest, m)
    old = exp2(top - newest)
    total = total * old
    values = [sums[e] * old for e in range(shape.per)]
    for c in range(batch):
        weight = fx.Float32(live[c].select(exp2(tops[c] - newest), fx.Float32(0.0)))
        total = total + stats[c][1] * weight
        packed = [w for part in got[c * each + 1 : (c + 1) * each] for w in part]
        more = [v for w in packed for v in (bf16_low(w), bf16_high(w))]
        values = [values[e] + more[e] * weight for e in range(shape.per)]
    return newest, total, fx.Vector.from_elements(values, fx.Float32)


@flyc.jit
def merge_chunks(
    region: Any, shape: HeadLanes, lane: Any, first: Any, head: Any, chunks: Any, batch: int, sink: Any
) -> Any:
    """bf16-rounded values of head ``head`` over chunks ``first`` .. + ``chunks`` of ``region``, its sink in the
    denominator.

    ``sink``: base-2 logit (an infinite one counts as the largest finite). No chunks: zeros. The chunks come ``batch``
    at a time (those past the last repeat it with weight 0).
    """
    top = fx.max(fx.min(sink, fx.Float32(-LEAST)), fx.Float32(LEAST))
    total = fx.Float32(1.0)
    sums = fx.Vector.filled(shape.per, 0.0, fx.Float32)
    for base in range(0, chunks, batch):
        top, total, sums = _merge_pass(region, shape, lane, first, head, base, chunks, batch, (top, total, sums))
    inverse = fx.Float32(1.0) / total
    return [bf16_round(sums[e] * inverse) for e in range(shape.per)]


@flyc.jit
def put_head(
    region: Any, shape: HeadLanes, lane: Any, row: Any, head: Any, values: Any, angles: Any, code: Any
) -> None:
    """``values`` turned back by ``angles`` where they are the head's last, as MXFP8 into row ``row`` of
    ``region``.
    """
    turned = shape.first(lane) >= shape.head - shape.rope
    back = unrotate(values, *angles)
    y = [fx.Float32(turned.select(back[e], values[e])) for e in range(shape.per)]
    amax = abs(y[0])
    for v in y[1:]:
        amax = fx.max(amax, abs(v))
    group = MX_GROUP // shape.per  # lanes
    e8m0 = code(reduce_lanes(amax, tuple(1 << i for i in range(group.bit_length() - 1)), fx.max))
    layout = MxRows(shape.heads * shape.head)
    at = head * shape.head + shape.first(lane)
    if lane < shape.head // shape.per:
        region.put(layout.value(row, at // 4), mx_words(y, power_of_two_inverse(e8m0)))
        if lane % group == 0:
            region.put(layout.code(row, at // MX_GROUP), [e8m0])
