"""What the hand-written V4.1 launches left in memory, as values of the spec's program.

Offsets come from the launches' own ``scratch_layout``; what a region holds is stated at each reader. Values have the
names of ``layer_specs/programs/mhc_mla_moe.monoc``, so both sides are held against the same reference.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

import torch

from monoc.reference.arithmetic import bf16
from monoc.reference.formats import MX_GROUP, Mx
from monoc.verify.regions import Seen
from peer.inputs import HEAD, HEADS, HIDDEN, INTER, O_RANK, Q_RANK, TOPK, WINDOW, Shapes
from peer.left import Left

__all__ = ["hand_written_values"]

_LAYER = "vllm.models.deepseek_v41.amd.mono.layer"
_LOG2E = 1.4426950408889634
_PICKS = 6  # experts a token
_ROUTER_PARTS = 4
Tensor = torch.Tensor


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
    shapes: Shapes, entry: str, left: Mapping[str, Left], outputs: list[dict[str, Tensor]], sink: Tensor
) -> dict[str, Seen]:
    """Every value the hand-written launches of ``entry`` (forward or ffn) left that the emitted ones may leave too.

    ``sink`` [heads] f32: the launch's attention sinks; ``outputs`` by the spec's names.
    """
    layout = import_module(_LAYER).scratch_layout(shapes.tokens, shapes.tp)
    found: dict[str, Seen] = {}

    def add(name: str, launch: str, read: Callable[[_Memory, int], object], bits: bool = True) -> None:
        here = [_Memory(layout, scratch) for scratch in left[launch].scratch]
        found[name] = Seen(name, tuple(read(m, r) for r, m in enumerate(here)), launch, bits)

    if entry == "forward":
        for name, read, bits in _front(shapes):
            add(name, "k1", read, bits)
        for name in ("q", "res_mid", "post_a", "comb_a", "pre_a"):
            ranks = tuple(k[name][: shapes.tokens].float() for k in left["k1"].kept)
            found[name] = Seen(name, ranks, "memory")
        counts = [k["klen"][: shapes.tokens] for k in left["k2"].kept]
        tables = tuple(k["kt"][: shapes.tokens * (TOPK + WINDOW)].view(shapes.tokens, -1) for k in left["k2"].kept)
        found["keys"] = Seen("keys", tables, "memory")
        found["counts"] = Seen("counts", tuple(c[None] for c in counts), "memory")
        for name, read, bits in _back(shapes, counts, sink):
            add(name, "k2", read, bits)
        parts = _pushed(left["k2"], 0, shapes)
        found["attn_part"] = Seen("attn_part", parts, "peer memory")
    last = "k2" if entry == "forward" else "ffn"
    for name, read, bits in _moe(shapes):
        add(name, last, read, bits)
    moe_parts = _pushed(left[last], shapes.tp * shapes.tokens * HIDDEN * 4, shapes)
    found["ffn_half.moe.moe_part"] = Seen("ffn_half.moe.moe_part", moe_parts, "peer memory")
    for name in outputs[0]:
        found[name] = Seen(name, tuple(o[name].float() for o in outputs), "an output")
    return found


_Reader = tuple[str, Callable[[_Memory, int], object], bool]


def _front(s: Shapes) -> Iterator[_Reader]:
    """K1: the quantised input, wqkv's two K parts, the quantised q latents."""

    def sums(m: _Memory, _: int) -> Tensor:
        parts = m.pairs("qkvp").view(torch.float32).reshape(2, s.tokens, Q_RANK + HEAD)
        return parts.double().sum(0).float()

    yield "qkv_mxfp8", lambda m, _: m.mx("x8", "x8s", s.tokens, HIDDEN), True
    yield "qkv_linear", sums, True
    yield "q_heads_mxfp8", lambda m, _: m.mx("qx8", "qx8s", s.tokens, Q_RANK), True


def _back(s: Shapes, counts: list[Tensor], sink: Tensor) -> Iterator[_Reader]:
    """K2's attention: chunks of keys merged here, quantised heads, quantised output latents."""
    heads, rows = HEADS // s.tp, 8 // s.tp * O_RANK

    def merged(m: _Memory, rank: int) -> Tensor:
        sums = m.bytes("part").view(torch.bfloat16).double().reshape(s.tokens, -1, heads, HEAD)
        chunks = sums.shape[1]
        top, total = m.bytes("pstat").view(torch.float32).double().reshape(s.tokens, chunks, heads, 2).unbind(-1)
        keys_a_chunk = -(-(TOPK + WINDOW) // chunks)
        out = torch.zeros(s.tokens, heads, HEAD, dtype=torch.float64)
        scaled = sink[:heads].double() * _LOG2E
        for t in range(s.tokens):
            live = -(-int(counts[rank][t]) // keys_a_chunk)
            most = torch.maximum(top[t, :live].amax(0), scaled)
            weight = torch.exp2(top[t, :live] - most)
            below = (total[t, :live] * weight).sum(0) + torch.exp2(scaled - most)
            out[t] = (sums[t, :live] * weight[..., None]).sum(0) / below[:, None]
        return bf16(out.float())

    yield "o", merged, False
    yield "o8", lambda m, _: m.mx("xo", "xos", s.tokens, heads * HEAD), True
    yield "attn_part_mxfp8", lambda m, _: m.mx("x8b", "x8bs", s.tokens, rows), True


def _moe(s: Shapes) -> Iterator[_Reader]:
    """The FFN half: normed rows, both quantisations, logits' parts, picks, quantised intermediates."""
    n, inter = s.tokens, INTER // s.tp

    def logits(m: _Memory, _: int) -> Tensor:
        parts = m.pairs("logit").view(torch.float32).reshape(n, -1, _ROUTER_PARTS)
        return parts.double().sum(-1).float()

    def picks(m: _Memory) -> Tensor:
        return m.pairs("route")[: 2 * n * _PICKS].reshape(n, 2, _PICKS)

    def picked(m: _Memory, _: int) -> Mx:
        """A row a pick, picks by expert and then by token; a step of 128 columns has its codes four apart."""
        order = torch.argsort(picks(m)[:, 0].flatten(), stable=True)
        rows = m.mx("mid", "mids", n * _PICKS, s.inter)
        codes = rows.codes.reshape(-1, 4, s.inter // 128).transpose(1, 2).reshape(rows.codes.shape)
        values, placed = torch.empty_like(rows.values), torch.empty_like(codes)
        values[order], placed[order] = rows.values, codes
        return Mx(
            values[:, :inter].reshape(n, _PICKS, inter),
            placed[:, : inter // MX_GROUP].reshape(n, _PICKS, inter // MX_GROUP),
        )

    moe = "ffn_half.moe"
    yield "ffn_half.y", lambda m, _: m.bytes("normed").view(torch.bfloat16).float().reshape(n, HIDDEN), True
    yield f"{moe}.gate_up_mxfp8", lambda m, _: m.mx("x8r", "x8rs", n, HIDDEN), True
    yield f"{moe}.shared_gate_up_mxfp8", lambda m, _: m.mx("x8", "x8s", n, HIDDEN), True
    yield "ffn_half.logit", logits, True
    yield "ffn_half.ids", lambda m, _: picks(m)[:, 0], True
    yield "ffn_half.weight", lambda m, _: picks(m)[:, 1].contiguous().view(torch.float32), True
    yield f"{moe}.shared_mxfp8", lambda m, _: m.mx("smq", "smc", n, INTER // s.tp, paired=True), True
    yield f"{moe}.down_mxfp8", picked, True


def _pushed(left: Left, at: int, s: Shapes) -> tuple[Tensor, ...]:
    """Every rank's bf16 part [tokens, hidden] from rank 0's copy: pairs [source rank][token][hidden / 2]."""
    size = s.tp * s.tokens * HIDDEN // 2 * 8
    words = left.peer[0][at : at + size].view(torch.int32).reshape(-1, 2)[:, 0].contiguous()
    return tuple(words.view(torch.bfloat16).float().reshape(s.tp, s.tokens, HIDDEN))
