"""Keys and attention: KV records written, key tables, attention over the records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from monoc.expr.ir import UnaryOp
from monoc.reference.arithmetic import Arithmetic, bf16
from monoc.reference.call import Call
from monoc.reference.evaluate import evaluate_scalar
from monoc.reference.formats import KV_GROUP, decode_records, encode_records
from monoc.reference.layouts import cache_rows, store_records

__all__ = ["attend", "key_table", "kv_insert"]

Tensor = torch.Tensor
LOG2E = 1.4426950408889634
COMPRESSED = -(2**31)  # bit 31 of a key: a row of the compressed cache


def kv_insert(call: Call) -> tuple[Any, ...]:
    """Writes the records of x [t, d] at their slots, in stated mode; nothing for slot -1."""
    if call.stated is None:
        x, slots, rope = call.values["x"], call.values["slots"], call.size("rope")
        live = slots >= 0
        data, codes = encode_records(x[live], rope)
        store_records(call.values["cache"], slots[live].long(), data, codes, (x.shape[1] - rope) // KV_GROUP)
    return ()


def key_table(call: Call) -> tuple[Any, ...]:
    """keys i32 [t, picks + window], counts i32 [2, t]."""
    v = call.values
    tokens = v["positions"].shape[0]
    window = v["window_slots"].reshape(tokens, -1)
    picks, ratio = v.get("picks"), call.size("ratio")
    width = window.shape[1] + (0 if picks is None else picks.shape[1])
    keys = torch.full((tokens, width), -1, dtype=torch.int32)
    counts = torch.zeros(2, tokens, dtype=torch.int32)
    for t in range(tokens):
        if v["slots"][t] < 0:
            continue
        rows: list[int] = []
        if picks is not None and ratio:
            chosen = picks[t, : min((int(v["positions"][t]) + 1) // ratio, picks.shape[1])].tolist()
            if "block_table" in v:
                block, table = v["compressed"].shape[1], v["block_table"][int(v["requests"][t])]
                chosen = [-1 if row < 0 else int(table[row // block]) * block + row % block for row in chosen]
            rows += [-1 if slot < 0 else slot + COMPRESSED for slot in chosen]
        counts[1, t] = len(rows)
        rows += window[t, : int(v["window_lens"][t])].tolist()
        keys[t, : len(rows)] = torch.tensor(rows, dtype=torch.int32)
        counts[0, t] = len(rows)
    return keys, counts


def attend(call: Call) -> tuple[Any, ...]:
    """bf16 [t, h, d]: sink attention over the records the key table lists."""
    a, q, counts = call.arithmetic, call.values["q"], call.values["counts"]
    rope, score = call.size("rope"), call.function("score")
    most = torch.finfo(torch.float32).max  # an infinite sink takes everything
    sink = (a.of(call.values["sink"][: q.shape[1]]) * a.constant(LOG2E)).clamp(-most, most)
    out = torch.zeros(q.shape, dtype=a.dtype)
    other = a.reordered.tokens(len(q)).tolist() if a.reordered is not None else [False] * len(q)
    for t in range(q.shape[0]):
        keys = call.values["keys"][t, : int(counts[0, t])].long()
        keys = keys[keys != -1]
        if not len(keys):
            continue
        records = _records(call, keys, q.shape[2], rope)
        dots = q[t].double() @ records.T
        if a.reordered is not None and other[t]:
            size = torch.maximum(dots.abs(), q[t].double().norm(dim=1, keepdim=True) * records.square().mean().sqrt())
            dots = dots + a.reordered.error(size, q.shape[2], torch.tensor(True))
        dots = a.of(dots)
        given = [dots]
        if "factor" in call.values:
            given.append(a.of(call.values["factor"][t])[:, None])
        logits = evaluate_scalar(score.body, dict(zip(score.params, given, strict=True)), a)
        if a.reordered is not None and other[t]:
            out[t] = _in_chunks(logits, sink, records, a, a.reordered.chunks(len(keys)))
            continue
        top = torch.maximum(logits.amax(dim=1), sink)[:, None]
        p = a.unary(UnaryOp.EXP2, logits - top)
        total = a.of(p.double().sum(dim=1)) + a.unary(UnaryOp.EXP2, sink - top[:, 0])
        weights = p if a.exact else bf16(p)
        rows = a.of(weights.double() @ records) / total[:, None]
        out[t] = rows if a.exact else bf16(rows)
    return (out,)


def _in_chunks(logits: Tensor, sink: Tensor, records: Tensor, a: Arithmetic, chunks: Iterator[slice]) -> Tensor:
    """Stated mode's attention [h, d] as a kernel may do it (docs/linear-and-attention.md): every chunk of the keys on
    its own, its sums rounded to bf16 before the chunks are merged."""
    tops, totals, sums = [sink], [torch.ones_like(sink)], [torch.zeros(len(sink), records.shape[1])]
    for chunk in chunks:
        top = logits[:, chunk].amax(dim=1)
        p = a.unary(UnaryOp.EXP2, logits[:, chunk] - top[:, None])
        tops.append(top)
        totals.append(p.sum(dim=1))
        sums.append(bf16(a.of(bf16(p).double() @ records[chunk])))
    most = torch.stack(tops).amax(dim=0)
    shares = [a.unary(UnaryOp.EXP2, top - most) for top in tops]
    total = sum((s * t for s, t in zip(shares, totals, strict=True)), torch.zeros_like(sink))
    merged = sum((s[:, None] * v for s, v in zip(shares, sums, strict=True)), torch.zeros_like(sums[0]))
    return bf16(merged / total[:, None])


def _records(call: Call, keys: Tensor, width: int, rope: int) -> Tensor:
    """The records of ``keys`` [n] as numbers [n, width]."""
    out = torch.empty(len(keys), width, dtype=torch.float64)
    far = keys < 0
    for name, chosen in (("window", ~far), ("compressed", far)):
        if chosen.any():
            data, codes = cache_rows(call.values[name], keys[chosen] & 0x7FFFFFFF, width + rope)
            out[chosen] = decode_records(data, codes, rope)
    return out
