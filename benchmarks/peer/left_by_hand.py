"""What the hand-written launches left in memory, as values of the spec's program.

Offsets come from the launches' own ``scratch_layout``; what a region holds is stated at each reader. Values have the
names of the model's program in ``layer_specs/programs``, so both sides are held against the same reference.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

import torch

from monoc.reference.arithmetic import bf16
from monoc.reference.formats import MX_GROUP, Mx
from monoc.verify.regions import Seen
from peer.left import Left

__all__ = ["Widths", "hand_written_values"]

_LOG2E = 1.4426950408889634
_PICKS = 6  # experts a token
_ROUTER_PARTS = 4
Tensor = torch.Tensor


@dataclass(frozen=True)
class Widths:
    """A rank's share of a model in one build. ``layer``: the module with the launches; ``layout``: what its
    ``scratch_layout`` takes; ``keys``: a key table's columns, ``inter``: a routed expert's columns, ``padded`` as the
    loader pads them; ``ffn_at``: bytes of the peer buffer before the FFN's parts, None where parts reach their owners
    only; ``ffn``: the name of the FFN half's input, ``prefix`` of its other values; ``carried``: values from K1 to K2,
    by name, the runner's attributes."""

    layer: str
    layout: tuple[int, ...]
    tokens: int
    tp: int
    hidden: int
    q_rank: int
    head: int
    heads: int
    o_rows: int
    keys: int
    inter: int
    padded: int
    shared: int
    ffn_at: int | None
    ffn: str
    prefix: str
    carried: Mapping[str, str]


@dataclass(frozen=True)
class _Memory:
    """One rank's scratch after a launch."""

    layout: Mapping[str, tuple[int, int]]
    scratch: Tensor

    def bytes(self, region: str) -> Tensor:
        at, size = self.layout[region]
        return self.scratch[at : at + size]

    def words(self, region: str) -> Tensor:
        """Plain 32-bit words."""
        return self.bytes(region).view(torch.int32)

    def pairs(self, region: str) -> Tensor:
        """The values of (value, tag) pairs."""
        return self.words(region).reshape(-1, 2)[:, 0].contiguous()

    def mx(self, data: str, codes: str, *shape: int, paired: bool = False) -> Mx:
        """e4m3 bytes and a word a code."""
        read = self.pairs if paired else self.words
        count = torch.Size(shape).numel()
        values = read(data).contiguous().view(torch.uint8)[:count].reshape(shape)
        scale = read(codes)[: count // MX_GROUP].to(torch.uint8)
        return Mx(values, scale.reshape(*shape[:-1], shape[-1] // MX_GROUP))


def hand_written_values(
    shapes: Widths, entry: str, left: Mapping[str, Left], outputs: list[dict[str, Tensor]], sink: Tensor
) -> dict[str, Seen]:
    """Every value the hand-written launches of ``entry`` (forward or ffn) left that the emitted ones may leave too.

    ``sink`` [heads] f32: the launch's attention sinks; ``outputs`` by the spec's names.
    """
    layout = import_module(shapes.layer).scratch_layout(*shapes.layout)
    found: dict[str, Seen] = {}

    def add(name: str, launch: str, read: Callable[[_Memory, int], object], bits: bool = True) -> None:
        here = [_Memory(layout, scratch) for scratch in left[launch].scratch]
        found[name] = Seen(name, tuple(read(m, r) for r, m in enumerate(here)), launch, bits)

    if entry == "forward":
        for name, read, bits in _front(shapes):
            add(name, "k1", read, bits)
        for name, kept in shapes.carried.items():
            ranks = tuple(k[kept][: shapes.tokens].float() for k in left["k1"].kept)
            found[name] = Seen(name, ranks, "memory")
        counts = [k["klen"][: shapes.tokens] for k in left["k2"].kept]
        tables = tuple(k["kt"][: shapes.tokens * shapes.keys].view(shapes.tokens, -1) for k in left["k2"].kept)
        found["keys"] = Seen("keys", tables, "memory")
        found["counts"] = Seen("counts", tuple(c[None] for c in counts), "memory")
        for name, read, bits in _back(shapes, counts, sink):
            add(name, "k2", read, bits)
        if shapes.ffn_at is not None:
            parts = _pushed(left["k2"], 0, shapes)
            found["attn_part"] = Seen("attn_part", parts, "peer memory")
    last = "k2" if entry == "forward" else "ffn"
    for name, read, bits in _moe(shapes):
        add(name, last, read, bits)
    if shapes.ffn_at is not None:
        name = f"{shapes.prefix}moe.moe_part"
        found[name] = Seen(name, _pushed(left[last], shapes.ffn_at, shapes), "peer memory")
    for name in outputs[0]:
        found[name] = Seen(name, tuple(o[name].float() for o in outputs), "an output")
    return found


_Reader = tuple[str, Callable[[_Memory, int], object], bool]


def _front(s: Widths) -> Iterator[_Reader]:
    """K1: the quantised input, wqkv's two K parts, the quantised q latents."""

    def sums(m: _Memory, _: int) -> Tensor:
        parts = m.pairs("qkvp").view(torch.float32).reshape(2, s.tokens, s.q_rank + s.head)
        return parts.double().sum(0).float()

    yield "qkv_mxfp8", lambda m, _: m.mx("x8", "x8s", s.tokens, s.hidden), True
    yield "qkv_linear", sums, True
    yield "q_heads_mxfp8", lambda m, _: m.mx("qx8", "qx8s", s.tokens, s.q_rank), True


def _back(s: Widths, counts: list[Tensor], sink: Tensor) -> Iterator[_Reader]:
    """K2's attention: chunks of keys merged here, quantised heads, quantised output latents."""
    heads = s.heads

    def merged(m: _Memory, rank: int) -> Tensor:
        sums = m.bytes("part").view(torch.bfloat16).double().reshape(s.tokens, -1, heads, s.head)
        chunks = sums.shape[1]
        top, total = m.bytes("pstat").view(torch.float32).double().reshape(s.tokens, chunks, heads, 2).unbind(-1)
        keys_a_chunk = -(-s.keys // chunks)
        out = torch.zeros(s.tokens, heads, s.head, dtype=torch.float64)
        scaled = sink[:heads].double() * _LOG2E
        for t in range(s.tokens):
            live = -(-int(counts[rank][t]) // keys_a_chunk)
            most = torch.maximum(top[t, :live].amax(0), scaled)
            weight = torch.exp2(top[t, :live] - most)
            below = (total[t, :live] * weight).sum(0) + torch.exp2(scaled - most)
            out[t] = (sums[t, :live] * weight[..., None]).sum(0) / below[:, None]
        return bf16(out.float())

    yield "o", merged, False
    yield "o8", lambda m, _: m.mx("xo", "xos", s.tokens, heads * s.head), True
    yield "attn_part_mxfp8", lambda m, _: m.mx("x8b", "x8bs", s.tokens, s.o_rows), True


def _moe(s: Widths) -> Iterator[_Reader]:
    """The FFN half: normed rows, both quantisations, logits' parts, picks, quantised intermediates."""
    n, inter = s.tokens, s.inter

    def logits(m: _Memory, _: int) -> Tensor:
        parts = m.pairs("logit").view(torch.float32).reshape(n, -1, _ROUTER_PARTS)
        return parts.double().sum(-1).float()

    def picks(m: _Memory) -> Tensor:
        return m.pairs("route")[: 2 * n * _PICKS].reshape(n, 2, _PICKS)

    def picked(m: _Memory, _: int) -> Mx:
        """A row a pick, picks by expert and then by token; a step of 128 columns has its codes four apart."""
        order = torch.argsort(picks(m)[:, 0].flatten(), stable=True)
        rows = m.mx("mid", "mids", n * _PICKS, s.padded)
        codes = rows.codes.reshape(-1, 4, s.padded // 128).transpose(1, 2).reshape(rows.codes.shape)
        values, placed = torch.empty_like(rows.values), torch.empty_like(codes)
        values[order], placed[order] = rows.values, codes
        return Mx(
            values[:, :inter].reshape(n, _PICKS, inter),
            placed[:, : inter // MX_GROUP].reshape(n, _PICKS, inter // MX_GROUP),
        )

    moe = f"{s.prefix}moe"
    yield s.ffn, lambda m, _: m.bytes("normed").view(torch.bfloat16).float().reshape(n, s.hidden), True
    yield f"{moe}.gate_up_mxfp8", lambda m, _: m.mx("x8r", "x8rs", n, s.hidden), True
    yield f"{moe}.shared_gate_up_mxfp8", lambda m, _: m.mx("x8", "x8s", n, s.hidden), True
    yield f"{s.prefix}logit", logits, True
    yield f"{s.prefix}ids", lambda m, _: picks(m)[:, 0], True
    yield f"{s.prefix}weight", lambda m, _: picks(m)[:, 1].contiguous().view(torch.float32), True
    yield f"{moe}.shared_mxfp8", lambda m, _: m.mx("smq", "smc", n, s.shared, paired=True), True
    yield f"{moe}.down_mxfp8", picked, True


def _pushed(left: Left, at: int, s: Widths) -> tuple[Tensor, ...]:
    """Every rank's bf16 part [tokens, hidden] from rank 0's copy: pairs [source rank][token][hidden / 2]."""
    size = s.tp * s.tokens * s.hidden // 2 * 8
    words = left.peer[0][at : at + size].view(torch.int32).reshape(-1, 2)[:, 0].contiguous()
    return tuple(words.view(torch.bfloat16).float().reshape(s.tp, s.tokens, s.hidden))
