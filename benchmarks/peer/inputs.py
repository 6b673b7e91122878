"""Plausible random inputs for the V4.1 launches: weights, KV caches behind block tables, top-k, mixes.

Formats as the launches read them (e4m3 with E8M0 32x32 blocks, MXFP4 experts, `fp8_ds_mla` records). Magnitudes are
such that activations stay near one. Everything is a function of the seed; the ranks' shards are the same numbers, which
saves memory and changes nothing for a run that compares ranks with each other.
"""

from dataclasses import dataclass

import torch

__all__ = ["Inputs", "Shapes", "make_inputs"]

HIDDEN, STREAMS, HEAD, ROPE, Q_RANK, O_RANK = 5120, 4, 512, 64, 1280, 1024
HEADS, GROUPS, EXPERTS, INTER, WINDOW, TOPK = 64, 8, 384, 2304, 128, 512


@dataclass(frozen=True)
class Shapes:
    """One build: rows, tensor-parallel ranks, compress ratio, whether x is folded in and whether the host selects
    between the launches, tokens a KV block, positions in the tables."""

    tokens: int
    tp: int
    ratio: int = 2
    fold: bool = True
    index: bool = False
    block: int = 64
    positions: int = 4096

    @property
    def inter(self) -> int:
        """Routed intermediate width of a rank, padded to a multiple of 128."""
        return -(-INTER // self.tp // 128) * 128


@dataclass(frozen=True)
class Inputs:
    """Tensors by the names of the runner's weight classes and `forward` arguments."""

    attn: dict[str, object]
    layer: dict[str, torch.Tensor]
    step: dict[str, torch.Tensor]


class _Random:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def bytes(self, count: int) -> torch.Tensor:
        """`count` random bytes; long ones repeat a 64 MiB block, whose length shares no factor with any row."""
        period = (1 << 26) - 5
        block = torch.randint(0, 256, (min(count, period),), dtype=torch.uint8, generator=self.generator)
        return block if count <= period else block.repeat(-(-count // period))[:count]

    def e4m3(self, *shape: int) -> torch.Tensor:
        codes = self.bytes(torch.Size(shape).numel())
        codes[codes & 0x7F == 0x7F] = 0  # NaN
        return codes.view(torch.float8_e4m3fn).reshape(shape)

    def e8m0(self, low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high + 1, shape, dtype=torch.uint8, generator=self.generator)

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator) * scale + mean


def _linear(random: _Random, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 [rows, columns] and E8M0 [rows / 32, columns / 32]; random codes have rms 110, hence the small scales."""
    exponent = 127 - round(torch.log2(torch.tensor(110.0 * columns**0.5)).item())
    scales = random.e8m0(exponent - 1, exponent + 1, rows // 32, columns // 32)
    return random.e4m3(rows, columns), scales


def _cache(random: _Random, blocks: int, block: int) -> torch.Tensor:
    """`fp8_ds_mla` uint8 [blocks, block, 584]: a block's 576-byte records, then its 8-byte scale codes."""
    data = torch.empty(blocks, block * 584, dtype=torch.uint8)
    records = data[:, : block * 576].view(blocks, block, 576)
    records[:, :, :448] = random.e4m3(blocks, block, 448).view(torch.uint8)
    rope = random.normal(blocks, block, 64).to(torch.bfloat16)
    records[:, :, 448:] = rope.view(torch.uint8).reshape(blocks, block, 128)
    data[:, block * 576 :] = random.e8m0(119, 120, blocks, block * 8)
    return data.view(blocks, block, 584)


def _tables(random: _Random, shapes: Shapes) -> dict[str, torch.Tensor]:
    """Positions, slots, window slots, block table and top-k of one decode step; one request a row."""
    rows, block, generator = shapes.tokens, shapes.block, random.generator
    low = min(3 * WINDOW, shapes.positions // 2)
    positions = torch.randint(low, shapes.positions, (rows,), generator=generator)
    window_blocks = -(-WINDOW // block) + 1
    slots = torch.arange(rows * window_blocks * block, dtype=torch.int32).view(rows, -1)
    window = slots[:, :WINDOW].clone().view(rows, 1, WINDOW)
    compressed = shapes.positions // max(shapes.ratio, 1)
    blocks_a_row = -(-compressed // block)
    table = torch.randperm(rows * blocks_a_row, generator=generator).to(torch.int32).view(rows, blocks_a_row)
    topk = torch.full((rows, TOPK), -1, dtype=torch.int32)
    for row in range(rows if shapes.ratio else 0):
        count = min((int(positions[row]) + 1) // shapes.ratio, TOPK)
        keys = torch.randperm((int(positions[row]) + 1) // shapes.ratio, generator=generator)[:count]
        topk[row, :count] = keys.to(torch.int32)
    return {
        "positions": positions,
        "slot_mapping": window[:, 0, -1].to(torch.int64),
        "swa_indices": window,
        "swa_lens": torch.full((rows,), WINDOW, dtype=torch.int32),
        "token_to_req": torch.arange(rows, dtype=torch.int32),
        "topk_indices": topk,
        "comp_block_table": table,
        "swa_cache": _cache(random, rows * window_blocks, block),
        "comp_cache": _cache(random, rows * blocks_a_row, block),
    }


def _attention(random: _Random, shapes: Shapes) -> dict[str, object]:
    heads, groups = HEADS // shapes.tp, GROUPS // shapes.tp
    angles = torch.arange(shapes.positions)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
    out: dict[str, object] = {
        "layer_id": 3,
        "q_norm": random.normal(Q_RANK, scale=0.1, mean=1.0).to(torch.bfloat16),
        "kv_norm": random.normal(HEAD, scale=0.1, mean=1.0).to(torch.bfloat16),
        "attn_sink": random.normal(heads),
        "cos_sin": torch.cat([angles.cos(), angles.sin()], 1).float().contiguous(),
        "ratio": shapes.ratio,
    }
    sizes = {
        "wqkv": (Q_RANK + HEAD, HIDDEN),
        "wq_b": (heads * HEAD, Q_RANK),
        "wo_a": (groups * O_RANK, heads // groups * HEAD),
        "wo_b": (HIDDEN, groups * O_RANK),
    }
    for name, (rows, columns) in sizes.items():
        out[name], out[f"{name}_scale"] = _linear(random, rows, columns)
    return out


def _layer(random: _Random, shapes: Shapes) -> dict[str, torch.Tensor]:
    inter, shared = shapes.inter, INTER // shapes.tp
    out: dict[str, torch.Tensor] = {}
    for seam in ("attn", "ffn"):
        out[f"hc_{seam}_fn"] = random.normal(24, STREAMS * HIDDEN, scale=(STREAMS * HIDDEN) ** -0.5)
        out[f"hc_{seam}_scale"] = torch.tensor([0.3, 0.3, 0.3])
        out[f"hc_{seam}_base"] = random.normal(24, scale=0.5)
        out[f"{seam}_norm"] = random.normal(HIDDEN, scale=0.1, mean=1.0).to(torch.bfloat16)
    out["gate_w"] = random.normal(EXPERTS, HIDDEN, scale=HIDDEN**-0.5).to(torch.bfloat16)
    out["bias"] = random.normal(EXPERTS, scale=0.01)
    # Random e2m1 codes have rms 2.9; the scales bring a row of K products near one.
    fp4 = torch.float4_e2m1fn_x2
    w13 = random.bytes(EXPERTS * 2 * inter * HIDDEN // 2).view(EXPERTS, 2 * inter, HIDDEN // 2)
    w2 = random.bytes(EXPERTS * HIDDEN * inter // 2).view(EXPERTS, HIDDEN, inter // 2)
    out["w13"], out["w2"] = w13.view(fp4), w2.view(fp4)
    out["w13_s"] = random.e8m0(119, 120, EXPERTS * 2 * inter, HIDDEN // 32)
    out["w2_s"] = random.e8m0(120, 121, EXPERTS * HIDDEN, -(-inter // 32 // 8) * 8)
    out["sgu"], out["sgu_s"] = _linear(random, 2 * shared, HIDDEN)
    out["sw2"], out["sw2_s"] = _linear(random, HIDDEN, shared)
    return out


def make_inputs(shapes: Shapes, seed: int = 0) -> Inputs:
    """All inputs of one layer for one rank (every rank may share the weights; each needs KV caches of its own)."""
    random = _Random(seed)
    rows = shapes.tokens
    comb = torch.softmax(random.normal(rows, STREAMS, STREAMS), dim=-1)
    step = {
        "x": random.normal(rows, HIDDEN).to(torch.bfloat16),
        "residual": random.normal(rows, STREAMS, HIDDEN).to(torch.bfloat16),
        "post_mix": torch.sigmoid(random.normal(rows, STREAMS, 1)) * 2,
        "res_mix": comb,
        "pre_mix": torch.sigmoid(random.normal(rows, STREAMS)),
        **_tables(random, shapes),
    }
    return Inputs(_attention(random, shapes), _layer(random, shapes), step)
