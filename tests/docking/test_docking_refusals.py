"""Every deployment, layer and step that does not take the launches, with its message: no rule is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from docking.emitted import Docked
from docking.fakes import ROWS, GraphMode, Host, MoeBackend, Thing, pro_config, pro_layer, v41_config, v41_layer

from monoc.spec.docking import Rule

Change = Callable[[Host, Any, Any], None]  # host, layer, configuration


def _set(path: str, value: Any) -> Change:
    """Sets ``host.…``, ``layer.…`` or ``config.…``."""
    root, *names, last = path.split(".")

    def change(host: Host, layer: Any, config: Any) -> None:
        at = {"host": host, "layer": layer, "config": config}[root]
        for name in names:
            at = getattr(at, name)
        setattr(at, last, value)

    return change


def _swa(**changes: Any) -> Change:
    return lambda host, layer, config: vars(host.context.attn_metadata["swa"]).update(changes)


def _broken_import(host: Host, layer: Any, config: Any) -> None:
    """Done by the test itself: the docked package's peer memory cannot be imported."""


DEPLOYMENT: list[tuple[str, Change, str]] = [
    ("cdna", _set("host.cdna", 3), "needs CDNA4"),
    ("tp", _set("host.tp", 16), "needs tensor parallel size "),
    ("expert parallel", _set("config.parallel_config.enable_expert_parallel", True), "no expert or data parallelism"),
    ("eplb", _set("config.parallel_config.enable_eplb", True), "no expert or data parallelism"),
    ("data parallel", _set("config.parallel_config.data_parallel_size", 2), "no expert or data parallelism"),
    ("a4w4", _set("host.envs.VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4", True), "unset VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4"),
    (
        "moe",
        _set("layer.ffn.experts.routed_experts.quant_method.mxfp4_backend", MoeBackend.TRITON),
        "needs the MoE backend AITER_MXFP4_BF16, not TRITON",
    ),
    (
        "no moe backend",
        _set("layer.ffn.experts.routed_experts.quant_method", None),
        "needs the MoE backend AITER_MXFP4_BF16, not None",
    ),
    ("import", _broken_import, "needs FlyDSL and AITER (no aiter here)"),
    (
        "compute units",
        _set("host.compute_units", 228),
        "needs 256 compute units, one for each resident CTA; the GPU has 228",
    ),
    ("gpu", _set("host.arch", "gfx942:sramecc+"), "of gfx950; the GPU is gfx942"),
]
PRO_DEPLOYMENT = [
    ("fp8 linears", _set("host.fp8_linears", False), "needs the FP8 linears of AITER (VLLM_ROCM_USE_AITER_LINEAR)"),
    ("padding", _set("host.envs.VLLM_ROCM_FP8_PADDING", False), "padded rows (VLLM_ROCM_FP8_PADDING)"),
]

ROUTING = [
    ("experts", _set("layer.ffn.n_routed_experts", 256), "routing other than 6 of 384"),
    ("topk", _set("layer.ffn.n_activated_experts", 8), "routing other than 6 of 384"),
    ("scale", _set("layer.ffn.routed_scaling_factor", 1.0), "routing other than"),
    ("limit", _set("layer.ffn.swiglu_limit", None), "routing other than"),
    ("score", _set("layer.ffn.scoring_func", "softmax"), "routing other than"),
    ("weights", _set("layer.ffn.renormalize", False), "routing other than"),
]
V41_LAYERS = [
    ("sequence parallel", _set("layer.use_sequence_parallel", True), "a sequence-parallel layer"),
    ("seam", _set("layer.fuse_seam_norm", False), "needs the fused mHC seam of AITER"),
    ("no shared expert", _set("layer.ffn.shared_experts", None), "routing other than"),
    ("hash", _set("layer.ffn.gate.tid2eid", "table"), "routing other than"),
    *ROUTING,
]
# why the whole layer is not taken: a target layer runs its tail, a draft layer nothing
V41_WHOLE = [
    ("compressor", _set("layer.attn.compressor", "compressor"), "a compressor without an indexer"),
    ("indexer", _set("layer.attn.indexer", Thing()), "a Thing"),
    ("ratio", _set("layer.attn.compress_ratio", 4), "compress ratio 4"),
    ("mxfp8 cache", _set("layer.attn.kv_mxfp8", True), "a KV cache of fp8_ds_mla"),
    ("cache", _set("layer.attn.kv_cache_dtype", "bf16"), "a KV cache of bf16"),
]
PRO_LAYERS = [
    ("draft", _set("layer.attn.prefix", "layers.61.attn"), "a draft layer"),
    ("seam", _set("layer.use_fused_mhc", False), "needs the fused mHC seam of AITER with its norm"),
    ("norm", _set("layer.fuse_mhc_rmsnorm", False), "needs the fused mHC seam of AITER with its norm"),
    ("mega", _set("layer.ffn.use_mega_moe", True), "needs an FP8 shared expert of its own"),
    ("no shared expert", _set("layer.ffn.shared_experts", None), "needs an FP8 shared expert of its own"),
    ("mixed shared", _set("layer.ffn.fuse_heterogeneous_shared_expert", True), "needs an FP8 shared expert of its own"),
    ("fused shared", _set("layer.ffn.is_fused_shared_expert_enabled", True), "needs an FP8 shared expert of its own"),
    ("bias", _set("layer.ffn.gate.bias_vl", "bias"), "needs an FP8 shared expert of its own"),
    *ROUTING,
    ("ratio", _set("layer.attn.compress_ratio", 2), "compress ratio 2"),
    ("indexer", _set("layer.attn.indexer", None), "compress ratio 4"),
    ("cache", _set("layer.attn.kv_cache_dtype", "bf16"), "a KV cache of bf16"),
]

STEPS = [
    ("context", _set("host.context", None), "no forward context"),
    (
        "piecewise",
        lambda h, la, c: setattr(h.context, "cudagraph_runtime_mode", GraphMode.PIECEWISE),
        "a PIECEWISE step",
    ),
    ("dummy", lambda h, la, c: setattr(h.context, "attn_metadata", None), "no attention metadata"),
    ("ubatches", lambda h, la, c: setattr(h.context, "attn_metadata", [{}]), "no attention metadata"),
    ("metadata", lambda h, la, c: h.context.attn_metadata.pop("swa"), "no metadata of this layer"),
    ("prefill", _swa(num_prefills=1), "not decode only"),
    ("empty", _swa(num_decodes=0), "not decode only"),
    ("tokens", _swa(num_decode_tokens=ROWS + 1), "more decode tokens than rows"),
]
WINDOW = [
    ("width", _swa(decode_swa_width=256), "window rows 256 wide"),
    ("indices", _swa(decode_swa_indices=None), "no window rows in the metadata"),
    ("lens", _swa(decode_swa_lens=None), "no window rows in the metadata"),
    ("requests", _swa(token_to_req_indices=None), "no window rows in the metadata"),
]
COMP = [("compressed", lambda h, la, c: h.context.attn_metadata.pop("comp"), "no metadata of the compressed cache")]
PRO_COMP = [
    ("compressed", lambda h, la, c: h.context.attn_metadata.pop("layers.5.attn"), "no metadata of this layer"),
]
HCA = [
    (
        "rows",
        lambda h, la, c: delattr(h.context.attn_metadata["layers.5.attn"], "c128a_global_decode_topk_indices"),
        "no compressed rows in the metadata",
    ),
]
Case = tuple[str, Change, str]


def cases(*groups: Iterable[Case]) -> pytest.MarkDecorator:
    listed = [case for group in groups for case in group]
    return pytest.mark.parametrize(("change", "says"), [c[1:] for c in listed], ids=[c[0] for c in listed])


# ---------------------------------------------------------------- deployments


def _refused(
    docked: Docked, host: Host, monkeypatch: pytest.MonkeyPatch, parts: Any, change: Change, says: str
) -> None:
    layer, config = parts
    change(host, layer, config)
    if change is _broken_import:

        def missing() -> None:
            raise ImportError("no aiter here")

        monkeypatch.setattr(docked.peer, "default_heap", missing)
    with pytest.raises(ValueError, match=r"^--monokernel needs .*\.$") as caught:
        docked.create(layer, config)
    assert says in str(caught.value)


@cases(DEPLOYMENT)
def test_v41_deployments(v41: Docked, host: Host, monkeypatch: pytest.MonkeyPatch, change: Change, says: str) -> None:
    _refused(v41, host, monkeypatch, (v41_layer(), v41_config()), change, says)


@cases(DEPLOYMENT, PRO_DEPLOYMENT)
def test_pro_deployments(pro: Docked, host: Host, monkeypatch: pytest.MonkeyPatch, change: Change, says: str) -> None:
    _refused(pro, host, monkeypatch, (pro_layer(), pro_config()), change, says)


def test_a_stray_arch_is_refused(v41: Docked, pro: Docked, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCH", "gfx942")
    for docked, tp, layer in ((v41, 4, v41_layer()), (pro, 8, pro_layer())):
        host.tp = tp
        with pytest.raises(ValueError, match="the GPU is gfx950, FlyDSL compiles for gfx942"):
            docked.create(layer, v41_config())


@pytest.mark.parametrize("tp", [2, 4])
def test_tp_sizes_of_v41(v41: Docked, host: Host, tp: int) -> None:
    host.tp = tp
    assert v41.create(v41_layer(), v41_config()) is not None


def test_nobody_asked(v41: Docked, pro: Docked, host: Host) -> None:
    """Without the option nothing is looked at, and nothing is an error."""
    host.cdna = 3
    config = SimpleNamespace(kernel_config=SimpleNamespace(monokernel=False))
    assert v41.create(None, config) is None
    assert pro.create(None, config) is None


# ---------------------------------------------------------------- layers


@cases(V41_LAYERS)
def test_v41_layers(v41: Docked, host: Host, change: Change, says: str) -> None:
    layer, config = v41_layer(), v41_config()
    change(host, layer, config)
    assert v41.create(layer, config) is None
    assert says in host.log[-1]
    assert "off for some layers" in host.log[-1]


@cases(V41_WHOLE)
def test_v41_layers_that_run_their_tail(v41: Docked, host: Host, change: Change, says: str) -> None:
    layer, config = v41_layer(), v41_config()
    change(host, layer, config)
    mono = v41.create(layer, config)
    assert mono.ffn_only
    assert f"`ffn` alone for some layers ({says})" in host.log[-1]
    host.decode(layer)
    assert mono(layer, torch.zeros(ROWS, 8), None, None, None, None, None) is None
    assert mono.ffn(layer, *[torch.zeros(ROWS, 8)] * 5) is not None
    assert [name for name, _, _ in v41.recorded.calls] == ["ffn"]
    assert v41.recorded.calls[0][1].attn is None  # its attention weights are not read


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (v41_layer(number=40, ratio=2), "compress ratio 2"),
        (v41_layer(number=40, index=True), "a draft layer with compressed keys"),
    ],
)
def test_v41_draft_layers_have_no_tail(v41: Docked, host: Host, layer: Any, says: str) -> None:
    assert v41.create(layer, v41_config()) is None
    assert f"({says}; no FFN launch for a draft layer)" in host.log[-1]


@cases(PRO_LAYERS)
def test_pro_layers(pro: Docked, host: Host, change: Change, says: str) -> None:
    layer, config = pro_layer(), pro_config()
    change(host, layer, config)
    assert pro.create(layer, config) is None
    assert f"off for some layers ({says}" in host.log[-1]


def test_pro_hca_layers_with_an_indexer(pro: Docked, host: Host) -> None:
    layer = pro_layer(128)
    layer.attn.indexer = "indexer"
    assert pro.create(layer, pro_config()) is None


# ---------------------------------------------------------------- steps


def v41_step(mono: Any, layer: Any, rows: int = ROWS, **changes: Any) -> Any:
    residual = torch.zeros(rows, 4, 8)
    given = {"residual": residual, "post_mix": residual, "res_mix": residual, "pre_mix": residual} | changes
    x = given.pop("x", torch.zeros(rows, 8))
    return mono(layer, x, torch.arange(rows), **given)


def pro_step(mono: Any, layer: Any, rows: int = ROWS, **changes: Any) -> Any:
    residual = torch.zeros(rows, 4, 8)
    given = {"residual": residual, "post_mix": residual, "res_mix": residual, "input_ids": None} | changes
    x = given.pop("x", torch.zeros(rows, 8))
    return mono(layer, x, torch.arange(rows), **given)


def _skipped(docked: Docked, host: Host, step: Callable[[], Any], says: str) -> None:
    assert step() is None
    assert host.log[-1].endswith(f"a step left to the layer ({says})")
    assert not docked.recorded.runners


@cases(STEPS, WINDOW, COMP)
def test_v41_steps(v41: Docked, host: Host, change: Change, says: str) -> None:
    layer = v41_layer(2)
    mono = v41.create(layer, v41_config())
    host.decode(layer)
    change(host, layer, None)
    _skipped(v41, host, lambda: v41_step(mono, layer), says)


@cases(STEPS)
def test_v41_steps_of_the_tail(v41: Docked, host: Host, change: Change, says: str) -> None:
    layer = v41_layer()
    layer.attn.kv_mxfp8 = True
    mono = v41.create(layer, v41_config())
    host.decode(layer)
    change(host, layer, None)
    _skipped(v41, host, lambda: mono.ffn(layer, *[torch.zeros(ROWS, 8)] * 5), says)


@cases(STEPS, WINDOW, PRO_COMP)
def test_pro_steps(pro: Docked, host: Host, change: Change, says: str) -> None:
    layer = pro_layer()
    mono = pro.create(layer, pro_config())
    host.decode(layer)
    change(host, layer, None)
    _skipped(pro, host, lambda: pro_step(mono, layer), says)


@cases(HCA)
def test_pro_hca_steps(pro: Docked, host: Host, change: Change, says: str) -> None:
    layer = pro_layer(128)
    mono = pro.create(layer, pro_config())
    host.decode(layer)
    change(host, layer, None)
    _skipped(pro, host, lambda: pro_step(mono, layer), says)


@pytest.mark.parametrize("rows", [0, 65])
def test_widths(v41: Docked, pro: Docked, host: Host, rows: int) -> None:
    for docked, tp, layer, step in ((v41, 4, v41_layer(), v41_step), (pro, 8, pro_layer(), pro_step)):
        host.tp = tp
        mono = docked.create(layer, v41_config())
        host.decode(layer, num_decode_tokens=rows)
        _skipped(docked, host, lambda mono=mono, layer=layer, step=step: step(mono, layer, rows), f"{rows} rows")  # type: ignore[misc]
    layer = v41_layer()
    layer.attn.kv_mxfp8 = True
    host.tp = 4
    mono = v41.create(layer, v41_config())
    _skipped(v41, host, lambda: mono.ffn(layer, *[torch.zeros(rows, 8)] * 5), f"{rows} rows")


@pytest.mark.parametrize("name", ["x", "residual", "post_mix", "res_mix", "pre_mix"])
def test_inputs_that_are_not_contiguous(v41: Docked, pro: Docked, host: Host, name: str) -> None:
    strided = torch.zeros(ROWS, 8, 2)[..., 0]
    for docked, tp, layer, step in ((v41, 4, v41_layer(), v41_step), (pro, 8, pro_layer(), pro_step)):
        if docked is pro and name == "pre_mix":
            continue
        host.tp = tp
        mono = docked.create(layer, v41_config())
        host.decode(layer)
        run = lambda mono=mono, layer=layer, step=step: step(mono, layer, **{name: strided})  # noqa: E731
        _skipped(docked, host, run, "inputs that are not contiguous")
    layer = v41_layer()
    layer.attn.kv_mxfp8 = True
    host.tp = 4
    mono = v41.create(layer, v41_config())
    host.decode(layer)
    tail = [torch.zeros(ROWS, 8)] * 4
    _skipped(v41, host, lambda: mono.ffn(layer, strided, *tail), "inputs that are not contiguous")


def test_a_missing_mix(v41: Docked, host: Host) -> None:
    layer = v41_layer()
    mono = v41.create(layer, v41_config())
    host.decode(layer)
    _skipped(v41, host, lambda: v41_step(mono, layer, pre_mix=None), "inputs that are not contiguous")


@pytest.mark.parametrize(("number", "axes"), [(5, 3), (40, 2)])
def test_the_first_layer_of_a_later_pipeline_stage(v41: Docked, host: Host, number: int, axes: int) -> None:
    layer = v41_layer(number=number)
    mono = v41.create(layer, v41_config())
    host.decode(layer, decode_swa_width=192 if number >= 40 else 128)
    x = torch.zeros(ROWS, *[4, 8][3 - axes :])
    _skipped(v41, host, lambda: v41_step(mono, layer, x=x, residual=None), "the first layer of a pipeline stage")


def test_a_hash_layer_without_token_ids(pro: Docked, host: Host) -> None:
    layer = pro_layer(hashed=True)
    mono = pro.create(layer, pro_config())
    host.decode(layer)
    _skipped(pro, host, lambda: pro_step(mono, layer), "a hash layer without the token ids")


def _messages(rules: Iterable[Rule]) -> set[str]:
    return {"*".join(p for p in r.why.parts if isinstance(p, str)) for r in rules}


def test_no_rule_is_left_out(v41: Docked, pro: Docked) -> None:
    """Each rule's message, its values apart, appears in a case above."""
    layers, steps = (V41_LAYERS, V41_WHOLE, PRO_LAYERS), (STEPS, WINDOW, COMP, HCA)
    said = [case[2] for group in (DEPLOYMENT, PRO_DEPLOYMENT, *layers, *steps) for case in group]
    said += [f"{ROWS} rows", "inputs that are not contiguous", "the first layer of a pipeline stage",
             "a hash layer without the token ids", "a draft layer with compressed keys",
             "no FFN launch for a draft layer"]  # fmt: skip
    for docked in (v41, pro):
        d = docked.docking
        rules = [*d.deployment, *d.layers, *(r for e in d.entries for r in (*e.layers, *e.steps))]
        for message in _messages(rules):
            parts = [p for p in message.split("*") if p.strip()]
            assert any(any(p.strip() in text or text in p for p in parts) for text in said), message
