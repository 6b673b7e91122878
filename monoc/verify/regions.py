"""What the regions of a launch hold, as values of the program: read from memory after the launch.

A region is named after a value and what it says of it (``y_mx_v``: y as MXFP8 by rule V); the layouts are those the
skeletons state (``monoc/skeletons``), read here by code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from monoc.reference.arithmetic import bf16
from monoc.reference.formats import MX_GROUP, Mx
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Launch, MapStatement, OpStatement, Program, Statement
from monoc.verify.watch import PAIR_FORMS

__all__ = ["LaunchMemory", "Seen", "UnlikeCopiesError", "read_regions"]

Tensor = torch.Tensor
LOG2E = 1.4426950408889634
FLOAT_MAX = float(torch.finfo(torch.float32).max)
_RESHAPES = ("flatten", "group", "unrope")


class UnlikeCopiesError(RuntimeError):
    """The ranks were sent different parts of one sum: no stage behind it can be judged."""


@dataclass(frozen=True)
class Seen:
    """A value the kernel left in memory. ``ranks``: each rank's (fp32, integers or :class:`Mx`); ``bits``: whether it
    is what the next stage used bit for bit, not a sum taken here in another order; ``where`` it was read."""

    value: str
    ranks: tuple[Any, ...]
    where: str
    bits: bool = True


@dataclass(frozen=True)
class LaunchMemory:
    """A launch's memory. ``regions``: the bytes of each region, by rank and name; ``plan`` and ``b``: the package's
    plan module and build."""

    program: Program
    launch: Launch
    env: Mapping[str, BuildValue]
    plan: Any
    b: Any
    regions: tuple[Mapping[str, Tensor], ...]
    given: tuple[Mapping[str, Tensor], ...]

    def words(self, region: str, rank: int, copy: int = 0) -> Tensor:
        """The 32-bit words of one copy of a region, int32."""
        r = self.plan.LAUNCHES[self.launch.name].regions(self.b)[region]
        words = self.regions[rank][region].view(torch.int32)
        if r.form in PAIR_FORMS:
            words = words.reshape(-1, 2)[:, 0]
        return words[copy * r.words : (copy + 1) * r.words]

    def floats(self, region: str, rank: int) -> Tensor:
        """The words as fp32."""
        return self.words(region, rank).contiguous().view(torch.float32)

    def bf16s(self, region: str, rank: int) -> Tensor:
        """The words as pairs of bf16, low half first, in fp32."""
        return self.words(region, rank).contiguous().view(torch.bfloat16).float()

    def shape(self, value: str) -> tuple[int, ...]:
        """A value's shape in this build."""
        return tuple(int(e.evaluate(self.env)) for e in self.program.type_of[value].shape)

    def statements(self) -> list[Statement]:
        """The launch's statements in this build."""
        return [s for s in self.launch.statements if s.guard.evaluate(self.env)]

    def makes(self, value: str) -> Statement | None:
        """The statement that makes ``value`` in this launch."""
        return next((s for s in self.statements() if value in s.results), None)


def read_regions(memory: LaunchMemory, before: Mapping[str, Seen]) -> dict[str, Seen]:
    """Every value some stage of the launch handed on through a region, by name; ``before``: those of earlier launches.

    Raises ``LookupError`` for a region whose name says nothing, :class:`UnlikeCopiesError`."""
    found: dict[str, Seen] = dict(before)
    stages = memory.plan.LAUNCHES[memory.launch.name].stages(memory.b)
    written = {w.region: name for name, stage in stages.items() for w in stage.writes}
    for region in _in_order(written, memory):
        prefix, _, _ = region.partition("_")
        for suffix, reader in _READERS.items():
            if region.endswith(f"_{suffix}"):
                prefix = region.removesuffix(f"_{suffix}")
                for seen in reader(memory, region, _value(memory, prefix), found):
                    found[seen.value] = seen
                break
        else:
            raise LookupError(f"region {region} of launch {memory.launch.name}: unknown suffix")
    return found


def _in_order(written: Mapping[str, str], memory: LaunchMemory) -> list[str]:
    """Key tables and routes first: others are read by their numbers."""
    first = ("_table", "_picks")
    return sorted(written, key=lambda r: not r.endswith(first))


def _value(memory: LaunchMemory, prefix: str) -> str:
    results = [r for s in memory.statements() for r in s.results]
    for r in results:
        if r.rpartition(".")[2].replace(".", "_") == prefix or r.replace(".", "_") == prefix:
            return r
    raise LookupError(f"launch {memory.launch.name}: no value is called {prefix}")


def _each(memory: LaunchMemory, read: Callable[[int], Any]) -> tuple[Any, ...]:
    return tuple(read(rank) for rank in range(len(memory.regions)))


# ------------------------------------------------------------------ a reader a suffix


def _rows(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """bf16 rows, two a word: [token][width / 2]."""
    shape = memory.shape(value)
    return [Seen(value, _each(memory, lambda r: memory.bf16s(region, r).reshape(shape)), region)]


def _gates(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """fp32 words, a row a token."""
    shape = memory.shape(value)
    return [Seen(value, _each(memory, lambda r: memory.floats(region, r).reshape(shape)), region)]


def _mx(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """MXFP8 rows: e4m3 values four a word, then a word a code, rows padded to four words."""
    rule = "M" if region.endswith("_mx_m") else "V"
    name = _quantised(memory, value, rule)
    return [Seen(name, _each(memory, lambda r: _mx_rows(memory, region, r, memory.shape(name))), region)]


def _mx_rows(memory: LaunchMemory, region: str, rank: int, shape: tuple[int, ...]) -> Mx:
    k = shape[-1]
    width = -(-(k // 4 + k // MX_GROUP) // 4) * 4
    rows = memory.words(region, rank).reshape(-1, width)
    values = rows[:, : k // 4].contiguous().view(torch.uint8)
    codes = rows[:, k // 4 : k // 4 + k // MX_GROUP].to(torch.uint8)
    return Mx(values.reshape(shape), codes.reshape(*shape[:-1], k // MX_GROUP))


def _quantised(memory: LaunchMemory, value: str, rule: str) -> str:
    """The value ``mxfp8(value, rule)``, through changes of shape and turning back."""
    for s in memory.statements():
        if isinstance(s, OpStatement) and s.op == "mxfp8" and s.attribute("rule") == rule:
            source = s.operands[0]
            while source != value:
                made = memory.makes(source)
                if not isinstance(made, OpStatement) or made.op not in _RESHAPES:
                    break
                source = made.operands[0]
            if source == value:
                return s.results[0]
    raise LookupError(f"launch {memory.launch.name}: nothing quantises {value} by rule {rule}")


def _parts(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """Partial sums in fp32: of a linear operation [part][token][row] (logits [token][row][part]), or of a slice's mixes
    [token][slice][mixes padded to four, sum of squares, a pad]."""
    statement = memory.makes(value)
    if isinstance(statement, MapStatement) and statement.reductions:
        return _mixes(memory, region, value)
    bf16_rows = isinstance(statement, MapStatement)
    if isinstance(statement, MapStatement):
        value = statement.operands[0]
    shape = memory.shape(value)
    count = memory.words(region, 0).numel() // torch.Size(shape).numel()

    def read(rank: int) -> Tensor:
        words = memory.floats(region, rank)
        parts = words.reshape(count, *shape) if bf16_rows else words.reshape(*shape, count).movedim(-1, 0)
        return parts.double().sum(0).float()

    return [Seen(value, _each(memory, read), region, bits=count <= 2)]


def _mixes(memory: LaunchMemory, region: str, value: str) -> list[Seen]:
    tokens, mixes = memory.shape(value)
    width = -(-mixes // 4) * 4 + 2
    scope = value.rpartition(".")[0]
    squares = next(
        s.results[0]
        for s in memory.statements()
        if isinstance(s, MapStatement) and s.scope == scope and s.reductions and s.index == ("t",)
    )

    def read(rank: int) -> Tensor:
        return memory.floats(region, rank).reshape(tokens, -1, width).double().sum(1).float()

    sums = _each(memory, read)
    return [
        Seen(value, tuple(s[:, :mixes] for s in sums), region, bits=False),
        Seen(squares, tuple(s[:, width - 2] for s in sums), region, bits=False),
    ]


def _table(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """Keys [token][width], then a count a token."""
    statement = memory.makes(value)
    assert isinstance(statement, OpStatement)
    keys, counts = statement.results
    tokens, width = memory.shape(keys)

    picks = statement.operand("picks")
    bounded = picks is not None and memory.program.tensor[picks].shape[-1].at_most

    def number(rank: int) -> Tensor:
        return memory.words(region, rank)[tokens * width :][None, :tokens]

    def read(rank: int) -> Tensor:
        table = memory.words(region, rank)[: tokens * width].reshape(tokens, width)
        if bounded:  # entries past the keys may be anything
            return torch.where(torch.arange(width) < number(rank).reshape(-1, 1), table, -1)
        return table

    return [Seen(keys, _each(memory, read), region), Seen(counts, _each(memory, number), region)]


def _chunks(memory: LaunchMemory, region: str, value: str, found: Mapping[str, Seen]) -> list[Seen]:
    """Attention a chunk of keys: bf16 [head][d] unnormalised, then (maximum, sum) f32 [head]; merged here."""
    statement = memory.makes(value)
    assert isinstance(statement, OpStatement)
    tokens, heads, head = memory.shape(value)
    unit = heads * (head // 2 + 2)
    chunks = memory.words(region, 0).numel() // (tokens * unit)
    keys, counts = statement.operand("keys") or "", statement.operand("counts") or ""
    width = memory.shape(keys)[1]
    chunk = -(-width // chunks // 32) * 32
    sink_name = statement.operand("sink") or ""

    def read(rank: int) -> Tensor:
        words = memory.words(region, rank).reshape(tokens, chunks, unit)
        sums = words[..., : heads * head // 2].contiguous().view(torch.bfloat16).double()
        sums = sums.reshape(tokens, chunks, heads, head)
        stats = words[..., heads * head // 2 :].contiguous().view(torch.float32).double()
        top, total = stats.reshape(tokens, chunks, heads, 2).unbind(-1)
        sink = (memory.given[rank][sink_name][:heads].double() * LOG2E).clamp(-FLOAT_MAX, FLOAT_MAX)
        out = torch.zeros(tokens, heads, head, dtype=torch.float64)
        for t in range(tokens):
            live = -(-int(found[counts].ranks[rank][0, t]) // chunk)
            if not live:
                continue
            newest = torch.maximum(top[t, :live].amax(0), sink)
            weight = torch.exp2(top[t, :live] - newest)
            denominator = (total[t, :live] * weight).sum(0) + torch.exp2(sink - newest)
            out[t] = (sums[t, :live] * weight[..., None]).sum(0) / denominator[:, None]
        return bf16(out.float())

    return [Seen(value, _each(memory, read), region, bits=False)] if counts in found else []


def _picks(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """[copy][token][pick][expert, f32 weight]."""
    statement = memory.makes(value)
    assert isinstance(statement, OpStatement)
    ids, weights = statement.results
    shape = memory.shape(ids)

    def read(rank: int) -> Tensor:
        return memory.words(region, rank).reshape(*shape, 2)

    return [
        Seen(ids, _each(memory, lambda r: read(r)[..., 0]), region),
        Seen(weights, _each(memory, lambda r: read(r)[..., 1].contiguous().view(torch.float32)), region),
    ]


def _picked(memory: LaunchMemory, region: str, value: str, found: Mapping[str, Seen]) -> list[Seen]:
    """An MXFP8 row a pick, by expert and then by token; those of a single token as they were picked."""
    name = next(n for rule in ("M", "V") if (n := _maybe(memory, value, rule)))
    tokens, topk, k = memory.shape(name)
    route = next(s for s in memory.statements() if isinstance(s, OpStatement) and s.op == "route")
    words = memory.words(region, 0).numel() // (tokens * topk)
    held = next(v for v in range(-(-k // 128) * 128, 4 * k, 128) if -(-(v // 4 + v // MX_GROUP) // 4) * 4 == words)

    def read(rank: int) -> Mx:
        ids = found[route.results[0]].ranks[rank].flatten()
        order = torch.argsort(ids, stable=True) if tokens > 1 else torch.arange(topk)
        rows = _mx_rows(memory, region, rank, (tokens * topk, held))
        # codes of a K step of 128 lie apart: [4 groups of a step][step]
        codes = rows.codes.reshape(-1, 4, held // 128).transpose(1, 2).reshape(rows.codes.shape)
        values, placed = torch.empty_like(rows.values), torch.empty_like(codes)
        values[order], placed[order] = rows.values, codes
        return Mx(
            values[:, :k].reshape(tokens, topk, k), placed[:, : k // MX_GROUP].reshape(tokens, topk, k // MX_GROUP)
        )

    return [Seen(name, _each(memory, read), region)] if route.results[0] in found else []


def _maybe(memory: LaunchMemory, value: str, rule: str) -> str | None:
    try:
        return _quantised(memory, value, rule)
    except LookupError:
        return None


def _ranks(memory: LaunchMemory, region: str, value: str, _: Mapping[str, Seen]) -> list[Seen]:
    """Every rank's part in every rank's copy: bf16 [source rank][token][width / 2]."""
    statement = memory.makes(value)
    assert isinstance(statement, OpStatement)
    part = statement.operands[0]
    shape = memory.shape(part)
    ranks = len(memory.regions)
    if memory.program.tensor.get(part) is not None:
        return []  # an input
    copies = _each(memory, lambda r: memory.bf16s(region, r).reshape(ranks, *shape))
    if memory.plan.LAUNCHES[memory.launch.name].regions(memory.b)[region].form == "two_hop":
        # each rank's copy has the columns it owns
        share = shape[-1] // ranks
        owned = [c[..., r * share : (r + 1) * share] for r, c in enumerate(copies)]
        return [Seen(part, tuple(torch.cat(owned, dim=-1)), region)]
    if any(not torch.equal(c.view(torch.int32), copies[0].view(torch.int32)) for c in copies):
        raise UnlikeCopiesError(_unlike(memory, region, copies))
    return [Seen(part, tuple(copies[0]), region)]


def _unlike(memory: LaunchMemory, region: str, copies: tuple[Tensor, ...]) -> str:
    """Where the copies [source rank, token, ..] of two ranks first differ."""
    rank = next(r for r, c in enumerate(copies) if not torch.equal(c.view(torch.int32), copies[0].view(torch.int32)))
    wrong = copies[rank].view(torch.int32) != copies[0].view(torch.int32)
    source, token, *at = torch.nonzero(wrong)[0].tolist()
    first, other = (float(c[(source, token, *at)]) for c in (copies[0], copies[rank]))
    return (
        f"region {region} of launch {memory.launch.name}: the ranks' copies differ: of what rank {source} sent, "
        f"token {token}, element {at}, rank 0 has {first:.9g} and rank {rank} {other:.9g}"
    )


def _sums(memory: LaunchMemory, region: str, value: str, found: Mapping[str, Seen]) -> list[Seen]:
    """The sum over the ranks, in builds of two hops."""
    if not memory.words(region, 0).numel():
        return []
    return _rows(memory, region, value, found)


_READERS: Mapping[str, Callable[[LaunchMemory, str, str, Mapping[str, Seen]], list[Seen]]] = {
    "mx_v": _mx,
    "mx_m": _mx,
    "row": _rows,
    "rows": _rows,
    "parts": _parts,
    "table": _table,
    "chunks": _chunks,
    "picks": _picks,
    "picked": _picked,
    "ranks": _ranks,
    "streams": _rows,
    "gates": _gates,
    "sums": _sums,
}
