"""Decoder layers of each kind as vLLM's objects, filled with a build's weights and a step's inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from docked.stand_ins import HIDDEN_LAYERS, GraphMode, Indexer, MoeBackend, Thing
from monoc.spec.program import Program
from monoc.verify.docked import place_weights

__all__ = ["KINDS", "Kind", "Step", "configuration", "context", "make_layer", "run"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Kind:
    """A layer kind: the build it must take (`fixed`, and `first` / `settled` residuals), and the layer's traits."""

    name: str
    fixed: Mapping[str, int]
    entry: str = "forward"
    first: bool = False
    engram: bool = False
    draft: bool = False
    index: bool = False

    @property
    def hashed(self) -> bool:
        return bool(self.fixed.get("hash_route"))


_TARGET = {"experts": 384, "topk": 6}
KINDS = {
    "dsv41": (
        Kind("first", {**_TARGET, "ratio": 0, "fold": 0, "index": 0}, first=True),
        Kind("window", {**_TARGET, "ratio": 0, "fold": 1, "index": 0}),
        Kind("ratio 1", {**_TARGET, "ratio": 1, "fold": 1, "index": 0}),
        Kind("ratio 2", {**_TARGET, "ratio": 2, "fold": 1, "index": 0}),
        Kind("index source", {**_TARGET, "ratio": 2, "fold": 1, "index": 1}, index=True),
        Kind("engram", {**_TARGET, "ratio": 2, "fold": 0, "index": 1}, engram=True, index=True),
        Kind("draft first", {"experts": 128, "ratio": 0, "fold": 0, "index": 0}, first=True, draft=True),
        Kind("draft", {"experts": 128, "ratio": 0, "fold": 1, "index": 0}, draft=True),
        Kind("tail", {**_TARGET, "ratio": 0, "fold": 1, "index": 0}, entry="ffn"),
    ),
    "dsv4_pro": (
        Kind("first, hash", {"ratio": 4, "fold": 0, "hash_route": 1}, first=True, index=True),
        Kind("hash", {"ratio": 128, "fold": 1, "hash_route": 1, "picks": 128}),
        Kind("csa", {"ratio": 4, "fold": 1, "hash_route": 0}, index=True),
        Kind("hca", {"ratio": 128, "fold": 1, "hash_route": 0, "picks": 128}),
    ),
}


@dataclass(frozen=True)
class Step:
    """One rank's weights and inputs by name; `selected`: what an indexer writes between the launches."""

    weights: Mapping[str, Tensor]
    given: Mapping[str, Tensor]
    selected: Mapping[str, Tensor]


def configuration() -> Any:
    """A `vllm_config` that asks for the launches."""
    hf = SimpleNamespace(
        num_hidden_layers=HIDDEN_LAYERS, dspark_n_routed_experts=128, dspark_num_experts_per_tok=3, sliding_window=128
    )
    return SimpleNamespace(
        kernel_config=SimpleNamespace(monokernel=True),
        parallel_config=SimpleNamespace(enable_expert_parallel=False, enable_eplb=False, data_parallel_size=1),
        model_config=SimpleNamespace(hf_config=hf, max_model_len=128 * 128),
        speculative_config=SimpleNamespace(num_speculative_tokens=5),
    )


def _compressor(hidden: int) -> Thing:
    weight = SimpleNamespace(weight=torch.zeros(2, hidden, dtype=torch.bfloat16))
    return Thing(fused_wkv_wgate=weight, does=lambda *a: "latent", insert_cache=lambda *a: None)


def _indexer(step: Step, hidden: int) -> Indexer:
    def score(*arguments: Any) -> None:
        for name, picks in step.selected.items():
            step.given[name].copy_(picks)

    return Indexer(
        compressor=_compressor(hidden), _produce_k=lambda *a: None, weights_proj=lambda rows: ("weights", None),
        forward_q=lambda *a: ("q", "scale", "weights"), does=lambda *a: ("q", "scale", "weights"), indexer_op=score,
    )  # fmt: skip


def make_layer(program: Program, kind: Kind, env: Mapping[str, Any], step: Step) -> Any:
    """The layer of one rank."""
    constants = dict(program.docking.constants) if program.docking is not None else {}
    number = HIDDEN_LAYERS if kind.draft else 3
    ratio = int(kind.fixed["ratio"])
    given, hidden = step.given, int(env["hidden"])
    routed = SimpleNamespace(quant_method=SimpleNamespace(mxfp4_backend=MoeBackend.AITER_MXFP4_BF16))
    gate = SimpleNamespace(tid2eid=given["route_ids"] if kind.hashed else None, bias_vl=None)
    ffn = SimpleNamespace(
        experts=SimpleNamespace(routed_experts=routed), shared_experts=SimpleNamespace(), gate=gate,
        n_routed_experts=env["experts"], n_activated_experts=env["topk"], swiglu_limit=constants["limit"],
        routed_scaling_factor=constants["route_scale"], scoring_func="sqrtsoftplus", renormalize=True,
        use_mega_moe=False, fuse_heterogeneous_shared_expert=False, is_fused_shared_expert_enabled=False,
    )  # fmt: skip
    cache = given.get("comp_cache")
    always = any(not h.guard.names() for e in program.entries for h in e.host_calls)
    compresses = kind.index or always  # where the host is called for every layer, it compresses keys
    attn = SimpleNamespace(
        layer_id=number, prefix=f"layers.{number}.attn", compress_ratio=ratio, kv_cache_dtype="fp8_ds_mla",
        kv_mxfp8=kind.entry == "ffn", compressor=_compressor(hidden) if compresses else None,
        indexer=_indexer(step, hidden) if kind.index else None, indexer_rotary_emb=None, kv_cache=cache,
        compressed_cache_prefix="comp" if ratio else None, _compressed_kv_cache=lambda: cache,
        topk_indices_buffer=given.get("topk_indices"),
        swa_cache_layer=SimpleNamespace(prefix="swa", kv_cache=given.get("swa_cache")),
    )  # fmt: skip
    residual = given["residual"]
    layer = SimpleNamespace(
        attn=attn, ffn=ffn, use_sequence_parallel=False, fuse_seam_norm=True, use_fused_mhc=True, fuse_mhc_rmsnorm=True,
        hc_mult=residual.shape[1], mhc_post=Thing(does=lambda *a: residual),
        engram=Thing(does=lambda *a: residual, layer_hash_index=0) if kind.engram else None,
    )  # fmt: skip
    gone = {"bias"} if kind.hashed else set()
    place_weights(program, layer, {n: t for n, t in step.weights.items() if n not in gone})
    if kind.hashed:
        gate.e_score_correction_bias = None
    return layer


def context(kind: Kind, layer: Any, given: Mapping[str, Tensor], rows: int) -> Any:
    """The forward context of a decode-only step of `rows` rows."""
    swa = SimpleNamespace(num_prefills=0, num_decodes=1, num_decode_tokens=rows)
    metadata: dict[str, Any] = {"swa": swa}
    if "swa_cache" in given:
        vars(swa).update(
            block_size=given["swa_cache"].shape[1], decode_swa_width=given["swa_indices"].shape[2],
            decode_swa_indices=given["swa_indices"], decode_swa_lens=given["swa_lens"],
            token_to_req_indices=given["token_to_req"], slot_mapping=given["slot_mapping"],
        )  # fmt: skip
    if "comp_cache" in given:
        comp = SimpleNamespace(
            block_size=given["comp_cache"].shape[1] * layer.attn.compress_ratio,
            block_table=given.get("comp_block_table"),
            c128a_global_decode_topk_indices=given["topk_indices"][:, None],
        )
        metadata |= {"comp": comp, layer.attn.prefix: comp}
    return SimpleNamespace(cudagraph_runtime_mode=GraphMode.FULL, attn_metadata=metadata)


def run(kind: Kind, mono: Any, layer: Any, given: Mapping[str, Tensor]) -> tuple[Tensor, ...] | None:
    """The step as vLLM's decoder layer makes it."""
    mixes = [given[n] for n in ("post_mix", "res_mix", "pre_mix") if n in given]
    if kind.entry == "ffn":
        return mono.ffn(layer, given["part"], given["residual"], *mixes)  # type: ignore[no-any-return]
    x, residual = given["x"], given["residual"]
    if "pre_mix" in given:
        if kind.first:
            start = residual if kind.draft else x
            return mono(layer, start, given["positions"], None, None, None, None)  # type: ignore[no-any-return]
        hashes = torch.zeros(len(x), 1, dtype=torch.int64) if kind.engram else None
        return mono(layer, x, given["positions"], residual, *mixes, hashes, None)  # type: ignore[no-any-return]
    ids = torch.arange(len(x)) if kind.hashed else None
    if kind.first:
        return mono(layer, residual, given["positions"], ids, None, None, None)  # type: ignore[no-any-return]
    return mono(layer, x, given["positions"], ids, *mixes, residual)  # type: ignore[no-any-return]
