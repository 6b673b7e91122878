"""Random deployments, layers and steps, decided by vLLM's original docking and by the emitted one.

Nothing is launched: a recorder takes the runner's place, and what reaches it is compared too, argument by argument.
"""

import inspect
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from docked.layers import KINDS, Kind, Step, configuration, context, make_layer, run
from docked.stand_ins import GraphMode, World
from monoc.spec.program import Program

__all__ = ["Disagreement", "decide"]

ROWS, HIDDEN = 3, 8


@dataclass(frozen=True)
class Disagreement:
    """A case the two decide differently, and what each says."""

    case: str
    original: str
    emitted: str


# (path, values): what a case may change. `world` is the process, `swa` and `step` the forward context.
CHANGES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("world.tp", (1, 2, 4, 8, 16)),
    ("world.cdna", (2, 5)),  # V4.1's original has launches of its own for 3
    ("world.compute_units", (64, 255, 256, 304)),
    ("world.envs.VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4", (True,)),
    ("world.envs.VLLM_ROCM_FP8_PADDING", (False,)),
    ("world.fp8_linears", (False,)),
    ("config.kernel_config.monokernel", (False,)),
    ("config.parallel_config.enable_expert_parallel", (True,)),
    ("config.parallel_config.enable_eplb", (True,)),
    ("config.parallel_config.data_parallel_size", (2,)),
    ("layer.ffn.experts.routed_experts.quant_method", (None, SimpleNamespace(mxfp4_backend="other"))),
    ("layer.ffn.experts", (None, SimpleNamespace())),
    ("layer.ffn.shared_experts", (None,)),
    ("layer.ffn.n_routed_experts", (128, 256, 384)),
    ("layer.ffn.n_activated_experts", (3, 6, 8)),
    ("layer.ffn.routed_scaling_factor", (1.0, 1.5, 2.5)),
    ("layer.ffn.swiglu_limit", (None, 7.0)),
    ("layer.ffn.scoring_func", ("softmax", "sigmoid")),
    ("layer.ffn.renormalize", (False,)),
    ("layer.ffn.use_mega_moe", (True,)),
    ("layer.ffn.fuse_heterogeneous_shared_expert", (True,)),
    ("layer.ffn.is_fused_shared_expert_enabled", (True,)),
    ("layer.ffn.gate.bias_vl", (1,)),
    ("layer.use_sequence_parallel", (True,)),
    ("layer.fuse_seam_norm", (False,)),
    ("layer.use_fused_mhc", (False,)),
    ("layer.fuse_mhc_rmsnorm", (False,)),
    ("layer.attn.layer_id", (3, 39, 40)),
    ("layer.attn.prefix", ("layers.3.attn", "layers.61.attn")),
    ("layer.attn.compress_ratio", (0, 1, 2, 4, 128)),
    ("layer.attn.kv_mxfp8", (True,)),
    ("layer.attn.kv_cache_dtype", ("bf16",)),
    ("layer.attn.indexer", (None, SimpleNamespace())),
    ("layer.attn.compressor", (None, SimpleNamespace())),
    ("step.cudagraph_runtime_mode", tuple(GraphMode)),
    ("step.attn_metadata", (None, [], {})),
    ("swa.num_prefills", (1,)),
    ("swa.num_decodes", (0,)),
    ("swa.num_decode_tokens", (1, ROWS + 1)),
    ("swa.decode_swa_width", (128, 192, 256)),
    ("swa.decode_swa_indices", (None,)),
    ("swa.decode_swa_lens", (None,)),
    ("swa.token_to_req_indices", (None,)),
    ("given.rows", (0, 1, 48, 49, 64, 65)),
    ("given.strided", ("x", "residual", "post_mix", "res_mix", "pre_mix", "part")),
    ("given.missing", ("post_mix", "res_mix", "pre_mix", "comp", "swa", "context", "rows of comp", "ids")),
)


class _Recorder:
    """A runner: its calls by argument name."""

    def __init__(self, runner: type, outputs: Mapping[str, int]) -> None:
        self.runner, self.outputs = runner, outputs
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def first_pre_mix(self, rows: int) -> torch.Tensor:
        return torch.full((rows, 4), 0.5)

    def _record(self, name: str, *arguments: Any, **keywords: Any) -> tuple[torch.Tensor, ...]:
        bound = inspect.signature(getattr(self.runner, name)).bind(None, *arguments, **keywords)
        bound.apply_defaults()
        taken = {k: v for k, v in bound.arguments.items() if k not in ("self", "w", "outs")}
        self.calls.append((name, taken))
        return (torch.zeros(1),) * self.outputs[name]

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self._record("forward", *arguments, **keywords)

    def ffn(self, *arguments: Any, **keywords: Any) -> Any:
        return self._record("ffn", *arguments, **keywords)


@dataclass
class _Case:
    """One drawn case: a layer kind with some changes."""

    program: Program
    kind: Kind
    changes: list[tuple[str, Any]]

    def value(self, path: str) -> Any:
        return next((v for p, v in self.changes if p == path), None)

    def __str__(self) -> str:
        return ", ".join([self.kind.name, *(f"{p} = {v}" for p, v in self.changes)])

    def inputs(self) -> dict[str, torch.Tensor]:
        rows = ROWS if self.value("given.rows") is None else self.value("given.rows")
        draft_width = 192 if self.kind.draft else 128
        shapes: dict[str, tuple[int, ...]] = {
            "x": (rows, HIDDEN), "part": (rows, HIDDEN), "residual": (rows, 4, HIDDEN), "post_mix": (rows, 4, 1),
            "res_mix": (rows, 4, 4), "pre_mix": (rows, 4), "positions": (rows,), "swa_indices": (rows, 1, draft_width),
            "swa_lens": (rows,), "token_to_req": (rows,), "slot_mapping": (rows,), "topk_indices": (rows, 6),
            "comp_block_table": (2, 2), "route_ids": (max(rows, 1), 6),
        }  # fmt: skip
        given = {n: torch.arange(torch.Size(s).numel()).float().view(s) for n, s in shapes.items()}
        given |= {n: torch.zeros(2, 4, 584, dtype=torch.uint8) for n in ("swa_cache", "comp_cache")}
        strided = self.value("given.strided")
        if strided is not None:
            given[strided] = torch.stack([given[strided]] * 2, -1)[..., 0]
        if "pre_mix" not in self.program.tensor:
            del given["pre_mix"]
        return given

    def decide(self, docking: Any, world: World, runner: type) -> Any:
        """What the docking makes of it: "error", "no layer", "no step", or the runner's call."""
        given = self.inputs()
        env = {"hidden": HIDDEN, "experts": self.kind.fixed.get("experts", 384), "topk": 3 if self.kind.draft else 6}
        layer, config = make_layer(self.program, self.kind, env, Step({}, given, {})), configuration()
        step = context(self.kind, layer, given, ROWS)
        swa = step.attn_metadata["swa"]
        roots = {"world": world, "layer": layer, "config": config, "step": step, "swa": swa}
        with _restored(world):
            for path, value in self.changes:
                root, *names, last = path.split(".")
                if root != "given":
                    at = roots[root]
                    for name in names:
                        at = getattr(at, name, SimpleNamespace())
                    setattr(at, last, value)
            self._remove(given, layer, step)
            world.contexts = {} if self.value("given.missing") == "context" else {0: step}
            try:
                mono = docking.MonoDecodeLayer.create(layer, config)
            except ValueError:
                return "error"
            if mono is None:
                return "no layer"
            recorder = _Recorder(runner, {e.name: len(e.outputs) for e in self.program.entries})
            for name in ("_mono_runner", "_rank_runner"):
                if hasattr(docking, name):
                    setattr(docking, name, lambda *a, **k: recorder)
            mono.weights = lambda layer: None
            out = run(self.kind, mono, layer, given)
            whole = not getattr(mono, "ffn_only", False)
            return ("no step", whole) if out is None else (whole, len(out), *recorder.calls)

    def _remove(self, given: dict[str, torch.Tensor], layer: Any, step: Any) -> None:
        what = self.value("given.missing")
        metadata = step.attn_metadata if isinstance(step.attn_metadata, dict) else {}
        if what in ("comp", "swa"):
            metadata.pop(what, None)
            if what == "comp":
                metadata.pop(layer.attn.prefix, None)
        elif what == "rows of comp" and "comp" in metadata:
            metadata["comp"].c128a_global_decode_topk_indices = None
        elif what in given:
            given[what] = None  # type: ignore[assignment]


@contextmanager
def _restored(world: World) -> Iterator[None]:
    before = {k: v for k, v in vars(world).items() if k in ("tp", "cdna", "compute_units", "fp8_linears")}
    envs = dict(vars(world.envs))
    try:
        yield
    finally:
        vars(world).update(before)
        vars(world.envs).update(envs)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b) or (callable(a) and callable(b))


def _differing(a: Any, b: Any) -> tuple[str, str]:
    """The first part in which two outcomes differ, as text."""
    while isinstance(a, tuple | Mapping) and type(a) is type(b) and len(a) == len(b):
        keys = list(a) if isinstance(a, Mapping) else list(range(len(a)))
        if isinstance(b, Mapping) and a.keys() != b.keys():
            return str(sorted(a)), str(sorted(b))
        a, b = next((a[k], b[k]) for k in keys if not _same(a[k], b[k]))
    return str(a)[:200], str(b)[:200]


def decide(
    program: Program, original: Any, emitted: Any, world: World, runner: type, cases: int, seed: int
) -> tuple[dict[str, int], list[Disagreement]]:
    """How many cases were decided how, and those decided differently, cases in which the original crashes apart."""
    rng = random.Random(seed)
    outcomes: dict[str, int] = {}
    found: list[Disagreement] = []
    for _ in range(cases):
        drawn = rng.sample(CHANGES, rng.choice((0, 1, 1, 1, 2, 2, 3)))
        case = _Case(program, rng.choice(KINDS[program.name]), [(p, rng.choice(v)) for p, v in drawn])
        results = [_tried(case, d, world, runner) for d in (original, emitted)]
        kind = results[0] if isinstance(results[0], str) else "no step" if results[0][0] == "no step" else "a step"
        outcomes[kind.split(":")[0]] = outcomes.get(kind.split(":")[0], 0) + 1
        crashed = isinstance(results[0], str) and results[0].startswith("crash")
        if not crashed and not _same(*results):
            found.append(Disagreement(str(case), *_differing(*results)))
    return outcomes, found


def _tried(case: _Case, docking: Any, world: World, runner: type) -> Any:
    """The outcome; a docking may crash on what vLLM never gives it."""
    try:
        return case.decide(docking, world, runner)
    except (AttributeError, TypeError, KeyError, AssertionError) as error:
        return f"crash: {type(error).__name__}"
