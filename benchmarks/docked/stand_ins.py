"""Modules in vLLM's place: what the docking files import, answering for the simulated rank that asks."""

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from monoc.sim.host import SimulatedHost

__all__ = ["DRAFT_WINDOW", "HIDDEN_LAYERS", "GraphMode", "Indexer", "MoeBackend", "Thing", "World", "install", "module"]

HIDDEN_LAYERS, DRAFT_WINDOW = 40, 192


class GraphMode(Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2


class MoeBackend(Enum):
    AITER_MXFP4_BF16 = 0


class Thing(SimpleNamespace):
    """An object of vLLM's that is called: `does(...)` is what calling it does."""

    def __call__(self, *arguments: Any) -> Any:
        return self.does(*arguments)


class Indexer(Thing):
    """The class the V4.1 docking drives."""


class World:
    """The process and its ranks, each with a forward context."""

    def __init__(self, host: SimulatedHost, tp: int) -> None:
        self.host, self.tp = host, tp
        self.cdna, self.compute_units, self.fp8_linears = 4, 256, True
        self.envs = SimpleNamespace(VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4=False, VLLM_ROCM_FP8_PADDING=True)
        self.contexts: dict[int, Any] = {}
        self.log: list[str] = []

    def note(self, text: str, *values: Any) -> None:
        line = text % values
        if line not in self.log:
            self.log.append(line)


def module(name: str, **members: Any) -> ModuleType:
    """A module `name` with `members`, and packages on the way to it."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        if part not in sys.modules:
            made = ModuleType(part)
            made.__path__ = []
            sys.modules[part] = made
            if depth > 1:
                setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], made)
    vars(sys.modules[name]).update(members)
    return sys.modules[name]


def install(world: World) -> None:
    """Puts the modules where the docking files import them from."""
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        del sys.modules[name]
    rank: Callable[[], int] = world.host.rank
    sys.modules["vllm.envs"] = module("vllm").envs = world.envs  # type: ignore[assignment, attr-defined]
    module("vllm.config", CUDAGraphMode=GraphMode)
    module("vllm.logger", init_logger=lambda name: SimpleNamespace(info_once=world.note, debug_once=world.note))
    module(
        "vllm.distributed",
        get_tensor_model_parallel_rank=rank,
        get_tensor_model_parallel_world_size=lambda: world.tp,
        get_tp_group=lambda: SimpleNamespace(cpu_group=world.host.group),
    )
    module(
        "vllm.forward_context",
        get_forward_context=lambda: world.contexts[rank()],
        is_forward_context_available=lambda: rank() in world.contexts,
    )
    module("vllm.platforms", current_platform=SimpleNamespace(num_compute_units=lambda index: world.compute_units))
    module("vllm.platforms.rocm", get_cdna_version=lambda: world.cdna)
    module("vllm._aiter_ops", rocm_aiter_ops=SimpleNamespace(is_linear_fp8_enabled=lambda: world.fp8_linears))
    module("vllm.model_executor.layers.fused_moe.oracle.mxfp4", Mxfp4MoeBackend=MoeBackend)
    module(
        "vllm.model_executor.layers.quantization.utils.fp8_utils",
        get_fp8_block_weight_scale=lambda linear: linear.block_scale,
    )
    module("vllm.model_executor.models.utils", extract_layer_index=lambda prefix: int(prefix.split(".")[1]))
    module("vllm.models.deepseek_v4.sparse_mla", _C128A_TOPK_ALIGNMENT=128)
    module("vllm.models.deepseek_v41.amd.ops", record_monokernel=lambda config: None)
    module("vllm.models.deepseek_v41.amd.rocm", DeepseekV41RocmMxfp4Indexer=Indexer)
    module("vllm.models.deepseek_v41.attention", DeepseekV4Indexer=Indexer)
    module(
        "vllm.v1.attention.backends.mla.compressor_utils",
        get_dspark_swa_index_width=lambda window, drafts: DRAFT_WINDOW,
    )
    with suppress(AttributeError):
        torch.accelerator.current_device_index = lambda: 0
    _fp32_products()


def _fp32_products() -> None:
    """`torch.mm(..., out_dtype=float32)` of bf16 operands, which the CPU lacks."""
    real = torch.mm
    if getattr(real, "fp32", False):
        return

    def mm(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None = None) -> torch.Tensor:
        return real(a, b) if out_dtype is None else real(a.to(out_dtype), b.to(out_dtype))

    mm.fp32 = True  # type: ignore[attr-defined]
    torch.mm = mm
