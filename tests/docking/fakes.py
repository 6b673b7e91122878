"""Stand-ins of the vLLM objects a docking touches: modules, a deployment's configuration, decoder layers, metadata."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

__all__ = [
    "BLOCK",
    "ROWS",
    "GraphMode",
    "Host",
    "Indexer",
    "MoeBackend",
    "Thing",
    "pro_config",
    "pro_layer",
    "v41_config",
    "v41_layer",
]

ROWS, BLOCK, RECORD = 3, 4, 584


class GraphMode(Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2

    def __str__(self) -> str:
        return self.name


class MoeBackend(Enum):
    AITER_MXFP4_BF16 = "aiter"
    TRITON = "triton"

    def __str__(self) -> str:
        return self.name


class Thing(SimpleNamespace):
    """An object of vLLM's: attributes, and calls that are kept in ``calls`` (shared by a layer's objects)."""

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append((self.name, arguments))
        return self.returns

    def method(self, name: str, returns: Any = None) -> None:
        def call(*arguments: Any) -> Any:
            self.calls.append((f"{self.name}.{name}", arguments))
            return returns

        setattr(self, name, call)


class Indexer(Thing):
    """The kind of indexer V4.1's host program drives."""


@dataclass
class Host:
    """The process: its ranks, environment, GPU and forward context; everything a test may change."""

    tp: int = 4
    rank: int = 0
    cdna: int = 4
    envs: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4=False, VLLM_ROCM_FP8_PADDING=True)
    )
    fp8_linears: bool = True
    compute_units: int = 256
    arch: str = "gfx950:sramecc+:xnack-"
    context: Any = None
    log: list[str] = field(default_factory=list)

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> Host:
        """Fake modules for the names the dockings import, and a GPU for torch's."""
        host = cls()

        def note(text: str, *values: Any) -> None:
            host.log.append(text % values)

        modules: dict[str, dict[str, Any]] = {
            "vllm": {"envs": host.envs},
            "vllm.config": {"CUDAGraphMode": GraphMode},
            "vllm.logger": {"init_logger": lambda name: SimpleNamespace(info_once=note, debug_once=note)},
            "vllm.distributed": {
                "get_tensor_model_parallel_world_size": lambda: host.tp,
                "get_tensor_model_parallel_rank": lambda: host.rank,
                "get_tp_group": lambda: SimpleNamespace(cpu_group="cpu group"),
            },
            "vllm.forward_context": {
                "is_forward_context_available": lambda: host.context is not None,
                "get_forward_context": lambda: host.context,
            },
            "vllm.platforms.rocm": {"get_cdna_version": lambda: host.cdna},
            "vllm._aiter_ops": {"rocm_aiter_ops": SimpleNamespace(is_linear_fp8_enabled=lambda: host.fp8_linears)},
            "vllm.model_executor.layers.fused_moe.oracle.mxfp4": {"Mxfp4MoeBackend": MoeBackend},
            "vllm.model_executor.layers.quantization.utils.fp8_utils": {
                "get_fp8_block_weight_scale": lambda linear: linear.block_scale
            },
            "vllm.model_executor.models.utils": {"extract_layer_index": lambda prefix: int(prefix.split(".")[1])},
            "vllm.models.deepseek_v4.sparse_mla": {"_C128A_TOPK_ALIGNMENT": 128},
            "vllm.models.deepseek_v41.amd.rocm": {"DeepseekV41RocmMxfp4Indexer": Indexer},
        }
        for name in [".".join(path.split(".")[:n]) for path in modules for n in range(1, path.count(".") + 2)]:
            module = ModuleType(name)
            module.__path__ = []
            vars(module).update(modules.get(name, {}))
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delenv("ARCH", raising=False)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(
            torch.cuda,
            "get_device_properties",
            lambda device=None: SimpleNamespace(multi_processor_count=host.compute_units, gcnArchName=host.arch),
        )
        real = torch.mm
        monkeypatch.setattr(torch, "mm", lambda a, b, out_dtype: real(a.float(), b.float()).to(out_dtype))
        return host

    def decode(self, layer: Any, **changes: Any) -> Any:
        """A decode-only step of ROWS rows for ``layer``; ``changes`` are to its window metadata, which is returned."""
        swa = SimpleNamespace(
            num_prefills=0, num_decodes=2, num_decode_tokens=ROWS, decode_swa_width=128, block_size=BLOCK,
            decode_swa_indices="indices", decode_swa_lens="lens", token_to_req_indices="requests", slot_mapping="slots",
        )  # fmt: skip
        vars(swa).update(changes)
        comp = SimpleNamespace(block_size=256, block_table="table")
        comp.c128a_global_decode_topk_indices = torch.arange(ROWS * 2).view(ROWS, 1, 2)
        prefixes = {layer.attn.swa_cache_layer.prefix: swa}
        prefixes[getattr(layer.attn, "compressed_cache_prefix", None) or layer.attn.prefix] = comp
        self.context = SimpleNamespace(cudagraph_runtime_mode=GraphMode.FULL, attn_metadata=prefixes)
        return swa


def _linear(name: str, **more: Any) -> SimpleNamespace:
    codes = torch.arange(4, dtype=torch.uint8).view(2, 2)
    return SimpleNamespace(
        weight=f"{name} weight", weight_scale=codes, block_scale=codes.float().mul(0).add(0.5), **more
    )


def _named(name: str) -> SimpleNamespace:
    return SimpleNamespace(weight=f"{name} weight")


def _ffn(experts: int, topk: int, scale: float) -> SimpleNamespace:
    routed = SimpleNamespace(
        w13_weight="w13", w13_weight_scale="w13_s", w2_weight="w2", w2_weight_scale="w2_s",
        quant_method=SimpleNamespace(mxfp4_backend=MoeBackend.AITER_MXFP4_BF16),
    )  # fmt: skip
    shared = SimpleNamespace(
        gate_up_proj=_linear("sgu"), down_proj=_linear("sw2"), _gateup_scale=torch.full((1, 1), 2.0)
    )
    return SimpleNamespace(
        experts=SimpleNamespace(routed_experts=routed), shared_experts=shared, n_routed_experts=experts,
        gate=SimpleNamespace(weight="gate weight", e_score_correction_bias="bias", tid2eid=None, bias_vl=None),
        n_activated_experts=topk, routed_scaling_factor=scale, swiglu_limit=10.0, scoring_func="sqrtsoftplus",
        renormalize=True, use_mega_moe=False, fuse_heterogeneous_shared_expert=False,
        is_fused_shared_expert_enabled=False,
    )  # fmt: skip


def _cache(blocks: int, tokens: int) -> torch.Tensor:
    return torch.zeros(blocks, tokens * RECORD, dtype=torch.uint8)


def _layer(ffn: SimpleNamespace, calls: list[Any], number: int, ratio: int) -> SimpleNamespace:
    attn = SimpleNamespace(
        layer_id=number, prefix=f"layers.{number}.attn", compress_ratio=ratio, indexer=None, compressor=None,
        kv_cache_dtype="fp8_ds_mla", topk_indices_buffer="topk", attn_sink="sink",
        rotary_emb=Thing(cos_sin_cache="rope"), indexer_rotary_emb="indexer rope",
        swa_cache_layer=SimpleNamespace(prefix="swa", kv_cache=_cache(2, BLOCK)),
        q_norm=_named("q_norm"), kv_norm=_named("kv_norm"), fused_wqa_wkv=_linear("wqkv"), wq_b=_linear("wq_b"),
        wo_a=_linear("wo_a"), wo_b=_linear("wo_b"),
    )  # fmt: skip
    layer = SimpleNamespace(attn=attn, ffn=ffn, calls=calls, attn_norm=_named("attn_norm"), ffn_norm=_named("ffn_norm"))
    for seam in ("attn", "ffn"):
        for part in ("fn", "scale", "base"):
            setattr(layer, f"hc_{seam}_{part}", f"{seam} {part}")
    return layer


def _compressor(calls: list[Any], name: str) -> Thing:
    weight = SimpleNamespace(weight=torch.ones(2, 8, dtype=torch.bfloat16))
    thing = Thing(name=name, calls=calls, returns="latent", fused_wkv_wgate=weight)
    thing.method("insert_cache")
    return thing


def _indexer(calls: list[Any], kind: type[Thing]) -> Thing:
    thing = kind(name="indexer", calls=calls, returns=("q", "q scale", "head weights"))
    thing.method("_produce_k")
    thing.method("weights_proj", ("projected", None))
    thing.method("forward_q", ("q", "q scale", "head weights"))
    thing.method("indexer_op")
    thing.compressor = _compressor(calls, "indexer.compressor")
    return thing


def v41_layer(ratio: int = 0, number: int = 5, *, index: bool = False, engram: bool = False) -> Any:
    """A layer of DeepSeek-V4.1; a ``number`` of 40 and more is a draft layer."""
    draft, calls = number >= 40, []  # type: tuple[bool, list[Any]]
    layer = _layer(_ffn(128, 3, 1.5) if draft else _ffn(384, 6, 1.5), calls, number, ratio)
    vars(layer).update(use_sequence_parallel=False, fuse_seam_norm=True, hc_mult=4, engram=None)
    a = layer.attn
    vars(a).update(kv_mxfp8=False, compressed_cache_prefix="comp" if ratio else None)
    a._compressed_kv_cache = lambda: _cache(1, 256)
    if index:
        a.compressor, a.indexer = _compressor(calls, "compressor"), _indexer(calls, Indexer)
    if engram:
        layer.engram = Thing(name="engram", calls=calls, returns=torch.zeros(ROWS, 4, 8), layer_hash_index=1)
    layer.mhc_post = Thing(name="mhc_post", calls=calls, returns=torch.zeros(ROWS, 4, 8))
    return layer


def pro_layer(ratio: int = 4, number: int = 5, *, hashed: bool = False) -> Any:
    """A layer of DeepSeek-V4-Pro."""
    calls: list[Any] = []
    layer = _layer(_ffn(384, 6, 2.5), calls, number, ratio)
    vars(layer).update(use_fused_mhc=True, fuse_mhc_rmsnorm=True)
    a = layer.attn
    a.compressor = _compressor(calls, "compressor")
    a.indexer = _indexer(calls, Thing) if ratio == 4 else None
    vars(a).update(kv_cache=_cache(1, 64), _wqa_wkv_scale=torch.full((1, 1), 0.25), _wo_b_scale=torch.ones(1, 1))
    if hashed:
        layer.ffn.gate.tid2eid = torch.arange(60, dtype=torch.int32).view(10, 6)
        layer.ffn.gate.e_score_correction_bias = None
    return layer


def _config(**hf: Any) -> Any:
    return SimpleNamespace(
        kernel_config=SimpleNamespace(monokernel=True),
        parallel_config=SimpleNamespace(enable_expert_parallel=False, enable_eplb=False, data_parallel_size=1),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(num_hidden_layers=40, **hf), max_model_len=100_000),
    )


def v41_config() -> Any:
    return _config()


def pro_config() -> Any:
    return _config()
