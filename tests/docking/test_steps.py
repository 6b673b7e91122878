"""What reaches the runner: arguments of every layer kind, host calls between the launches, one runner a process."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from docking.emitted import Docked
from docking.fakes import BLOCK, ROWS, Host, pro_config, pro_layer, v41_config, v41_layer

V41_OUT = ("out!", "residual_out!", "post_out!", "comb_out!", "pre_out!")


def _mixes() -> dict[str, torch.Tensor]:
    return {name: torch.rand(ROWS, 4, 8) for name in ("residual", "post_mix", "res_mix", "pre_mix")}


def _v41(docked: Docked, host: Host, layer: Any, x: torch.Tensor, **given: Any) -> tuple[Any, dict[str, Any]]:
    """The weights and arguments of one step."""
    mono = docked.create(layer, v41_config())
    host.decode(layer, decode_swa_width=192 if layer.attn.layer_id >= 40 else 128)
    assert mono(layer, x, "positions", **given) == V41_OUT
    name, weights, arguments = docked.recorded.calls[-1]
    assert name == "forward"
    return weights, arguments


def test_v41_window_layer(v41: Docked, host: Host) -> None:
    x, mixes = torch.rand(ROWS, 8), _mixes()
    weights, given = _v41(v41, host, v41_layer(), x, **mixes)
    assert given["x"] is x
    assert all(given[name] is tensor for name, tensor in mixes.items())
    cache = given.pop("swa_cache")
    assert (cache.shape, cache.dtype) == ((2, BLOCK, 584), torch.uint8)
    plain = {n: v for n, v in given.items() if not isinstance(v, torch.Tensor)}
    assert plain == {"positions": "positions", "slot_mapping": "slots", "swa_indices": "indices", "swa_lens": "lens",
                     "token_to_req": "requests", "fold": True}  # fmt: skip
    assert weights.attn.ratio == 0
    assert weights.attn.layer_id == 5
    assert (weights.gate_w, weights.bias, weights.w13, weights.sw2) == ("gate weight", "bias", "w13", "sw2 weight")


@pytest.mark.parametrize("ratio", [1, 2])
def test_v41_compressed_keys(v41: Docked, host: Host, ratio: int) -> None:
    _, given = _v41(v41, host, v41_layer(ratio), torch.rand(ROWS, 8), **_mixes())
    assert given["comp_cache"].shape == (1, 256 // ratio, 584)
    assert (given["topk_indices"], given["comp_block_table"]) == ("topk", "table")
    assert "select" not in given


def test_v41_index_source(v41: Docked, host: Host) -> None:
    layer = v41_layer(2, index=True)
    _, given = _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())
    assert not layer.calls  # nothing runs before the runner asks
    normed = torch.rand(ROWS, 8).bfloat16()
    assert given["select"](normed, "q latent") is None
    names = [name for name, _ in layer.calls]
    assert names == ["compressor", "compressor.insert_cache", "indexer._produce_k", "indexer.weights_proj",
                     "indexer.forward_q", "indexer.indexer_op"]  # fmt: skip
    calls = dict(layer.calls)
    score, positions = calls["compressor"]
    assert score.dtype == torch.float32
    assert torch.allclose(score, normed.float().sum(1, keepdim=True).expand(ROWS, 2))
    assert positions == "positions"
    assert calls["compressor.insert_cache"] == ("latent", "positions", layer.attn.rotary_emb)
    assert calls["indexer._produce_k"] == ("latent", "positions", "indexer rope")
    assert calls["indexer.weights_proj"][0] is normed
    assert calls["indexer.forward_q"] == ("q latent", None, "projected", "positions", "indexer rope")
    assert calls["indexer.indexer_op"][1:] == (("q", "q scale"), None, "head weights")


def test_v41_index_source_without_compressor_or_scale(v41: Docked, host: Host) -> None:
    layer = v41_layer(2, index=True)
    layer.attn.compressor = None
    layer.attn.indexer.method("forward_q", ("q", None, "head weights"))
    _, given = _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())
    given["select"](torch.rand(ROWS, 8), "q latent")
    assert [name for name, _ in layer.calls] == ["indexer.weights_proj", "indexer.forward_q", "indexer.indexer_op"]
    assert layer.calls[-1][1][1:] == ("q", None, "head weights")


def test_v41_first_layer(v41: Docked, host: Host) -> None:
    """The embedding once a stream, settled; the first layer's mix; mixes the launch does not read."""
    x = torch.rand(ROWS, 8)
    _, given = _v41(v41, host, v41_layer(), x, residual=None, post_mix=None, res_mix=None, pre_mix=None)
    assert torch.equal(given["residual"], x[:, None].expand(-1, 4, -1))
    assert given["residual"].is_contiguous()
    assert given["pre_mix"] == ("pre_mix", ROWS)
    assert given["fold"] is False


def test_v41_after_engram(v41: Docked, host: Host) -> None:
    layer, mixes = v41_layer(engram=True), _mixes()
    x, hashes = torch.rand(ROWS, 8), torch.arange(ROWS * 2).view(ROWS, 2)
    _, given = _v41(v41, host, layer, x, **mixes, engram_hashes=hashes, engram_mask="mask")
    calls = dict(layer.calls)
    settle = (x, mixes["residual"], mixes["post_mix"], mixes["res_mix"])
    assert all(a is b for a, b in zip(calls["mhc_post"], settle, strict=True))
    residual, hashed, mask = calls["engram"]
    assert residual is layer.mhc_post.returns
    assert torch.equal(hashed, hashes[:, 1])
    assert mask == "mask"
    assert given["residual"] is layer.engram.returns
    assert given["fold"] is False
    assert given["pre_mix"] is mixes["pre_mix"]


def test_v41_engram_layer_without_hashes_folds(v41: Docked, host: Host) -> None:
    layer = v41_layer(engram=True)
    _, given = _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())
    assert given["fold"] is True
    assert not layer.calls


def test_v41_draft_layers(v41: Docked, host: Host) -> None:
    """Their own runner; the first one's embedding comes once a stream already."""
    _v41(v41, host, v41_layer(), torch.rand(ROWS, 8), **_mixes())
    streams = torch.rand(ROWS, 4, 8)
    _, given = _v41(v41, host, v41_layer(number=40), streams, residual=None)
    assert given["residual"] is streams
    assert torch.equal(given["x"], streams[:, 0])
    assert given["x"].is_contiguous()
    assert given["fold"] is False
    _v41(v41, host, v41_layer(number=41), torch.rand(ROWS, 8), **_mixes())
    target, draft = v41.recorded.runners
    assert target.given.options == {"experts": 384, "topk": 6, "ug_groups": 2, "swa_width": 128}
    assert draft.given.options == {"experts": 128, "topk": 3, "ug_groups": 1, "swa_width": 192}


def test_v41_tail(v41: Docked, host: Host) -> None:
    layer = v41_layer()
    layer.attn.kv_cache_dtype = "bf16"
    mono = v41.create(layer, v41_config())
    host.decode(layer, decode_swa_width=999)  # the tail reads no window
    part, mixes = torch.rand(ROWS, 8), _mixes()
    assert mono.ffn(layer, part, *mixes.values()) == V41_OUT
    name, weights, given = v41.recorded.calls[-1]
    assert name == "ffn"
    assert weights.attn is None
    assert given == {"part": part, **mixes, "topk": 6}


def test_attributes(v41: Docked, host: Host) -> None:
    mono = v41.create(v41_layer(), v41_config())
    assert mono.ffn_only is False
    assert mono.unfolded_entry is False
    assert mono.ffn(v41_layer(), *[torch.zeros(ROWS, 8)] * 5) is None  # a whole layer has no tail to run


# ---------------------------------------------------------------- V4-Pro


def _pro(docked: Docked, host: Host, layer: Any, **given: Any) -> tuple[Any, dict[str, Any]]:
    mono = docked.create(layer, pro_config())
    host.decode(layer)
    x = given.pop("x", torch.rand(ROWS, 8))
    out = mono(layer, x, "positions", given.pop("input_ids", None), **given)
    assert out == ("out!", "residual_out!", "post_out!", "comb_out!")
    return docked.recorded.calls[-1][1:]


def test_pro_csa(pro: Docked, host: Host) -> None:
    layer, mixes = pro_layer(), _mixes()
    del mixes["pre_mix"]
    _, given = _pro(pro, host, layer, **mixes)
    assert (given["fold"], given["global_keys"]) == (True, False)
    assert (given["topk_indices"], given["comp_block_table"]) == ("topk", "table")
    assert not {"topk", "route_ids"} & given.keys()
    assert given["comp_cache"].shape == (1, 64, 584)
    given["select"](torch.rand(ROWS, 8).bfloat16(), "q latent")
    names = [name for name, _ in layer.calls]
    assert names == ["compressor", "indexer.weights_proj", "indexer", "indexer.indexer_op"]
    calls = dict(layer.calls)
    assert calls["compressor"][1:] == ("positions", layer.attn.rotary_emb)
    _, latent, score, projected, positions, rope = calls["indexer"]
    assert (latent, projected, positions, rope) == ("q latent", "projected", "positions", "indexer rope")
    assert score.shape == (ROWS, 2)
    assert calls["indexer.indexer_op"][1:] == (("q", "q scale"), None, "head weights")


@pytest.mark.parametrize(("returns", "given"), [((None, None, None), None), (("q", None, "w"), "q")])
def test_pro_indexer_results(pro: Docked, host: Host, returns: Any, given: Any) -> None:
    """Without a query the top-k is filled already; without a scale the query goes alone."""
    layer = pro_layer()
    layer.attn.indexer.returns = returns
    _, arguments = _pro(pro, host, layer, residual=None)
    arguments["select"](torch.rand(ROWS, 8), "q latent")
    scored = dict(layer.calls).get("indexer.indexer_op")
    assert (scored is None) is (given is None)
    assert scored is None or scored[1:] == ("q", None, "w")


def test_pro_hca(pro: Docked, host: Host) -> None:
    layer, mixes = pro_layer(128), _mixes()
    del mixes["pre_mix"]
    _, given = _pro(pro, host, layer, **mixes)
    assert given["global_keys"] is True
    assert given["topk"] == 896  # ceil(100000 / 128) = 782, a multiple of 128
    assert given["topk_indices"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert "comp_block_table" not in given
    assert given["comp_cache"].shape == (1, 2, 584)
    given["select"](torch.rand(ROWS, 8), "q latent")
    assert [name for name, _ in layer.calls] == ["compressor"]
    _pro(pro, host, pro_layer(), **mixes)
    (runner,) = pro.recorded.runners  # one for both kinds of layers
    assert runner.given.options == {"max_topk": 896}
    assert (runner.given.tp, runner.given.rank, runner.given.group) == (8, 0, "cpu group")


def test_pro_first_layer_and_hash(pro: Docked, host: Host) -> None:
    layer, streams = pro_layer(hashed=True), torch.rand(ROWS, 4, 8)
    ids = torch.tensor([2, 9, 0, 7, 7])
    weights, given = _pro(pro, host, layer, x=streams, input_ids=ids, residual=None)
    assert given["fold"] is False
    assert all(given[name] is streams for name in ("x", "residual", "post_mix", "res_mix"))
    assert torch.equal(given["route_ids"], layer.ffn.gate.tid2eid[ids[:ROWS]])
    assert given["route_ids"].is_contiguous()
    assert weights.bias is None


# ---------------------------------------------------------------- weights and runner

SEAMS = {f"hc_{seam}_{part}": f"{seam} {part}" for seam in ("attn", "ffn") for part in ("fn", "scale", "base")}
LINEARS = {name: f"{name} weight" for name in ("wqkv", "q_norm", "kv_norm", "wq_b", "wo_a", "wo_b")}
REST = {"gate_w": "gate weight", "bias": "bias", "w13": "w13", "w13_s": "w13_s", "w2": "w2", "w2_s": "w2_s",
        "sgu": "sgu weight", "sw2": "sw2 weight",
        "attn_norm": "attn_norm weight", "ffn_norm": "ffn_norm weight"}  # fmt: skip


def _code_sources(layer: Any) -> dict[str, tuple[Any, str]]:
    """The object and attribute each converted scale is taken from."""
    a, shared = layer.attn, layer.ffn.shared_experts
    if hasattr(a, "_wqa_wkv_scale"):
        return {"wqkv_scale": (a, "_wqa_wkv_scale"), "wq_b_scale": (a.wq_b, "block_scale"),
                "wo_a_scale": (a.wo_a, "block_scale"), "wo_b_scale": (a, "_wo_b_scale"),
                "sgu_s": (shared, "_gateup_scale"), "sw2_s": (shared.down_proj, "block_scale")}  # fmt: skip
    linears = {"wqkv_scale": a.fused_wqa_wkv, "wq_b_scale": a.wq_b, "wo_a_scale": a.wo_a, "wo_b_scale": a.wo_b,
               "sgu_s": shared.gate_up_proj, "sw2_s": shared.down_proj}  # fmt: skip
    return {name: (linear, "weight_scale") for name, linear in linears.items()}


@pytest.mark.parametrize("model", ["v41", "pro"])
def test_every_weight_is_its_own(v41: Docked, pro: Docked, host: Host, model: str) -> None:
    """No field is taken from another tensor: each has a value no other has."""
    layer = v41_layer() if model == "v41" else pro_layer()
    host.tp = 4 if model == "v41" else 8
    sources = _code_sources(layer)
    for number, (owner, attribute) in enumerate(sources.values()):
        setattr(owner, attribute, torch.full((1, 1), 100 + number, dtype=torch.uint8))
    if model == "v41":
        weights, _ = _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())
    else:
        weights, _ = _pro(pro, host, layer, residual=None)
    attn = vars(weights.attn)
    assert {n: attn[n] for n in LINEARS} == LINEARS
    assert (attn["attn_sink"], attn["cos_sin"], attn["layer_id"]) == ("sink", "rope", 5)
    assert attn["ratio"] == layer.attn.compress_ratio
    rest = vars(weights)
    assert {n: rest[n] for n in (*SEAMS, *REST)} == SEAMS | REST
    codes = {n: int((attn | rest)[n].unique()) for n in sources}
    assert codes == {n: 100 + number for number, n in enumerate(sources)}


def test_codes_pass_as_they_are(v41: Docked, host: Host) -> None:
    layer = v41_layer()
    layer.attn.wo_a.weight_scale = torch.tensor([[127, 1]], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    weights, _ = _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())
    assert weights.attn.wqkv_scale.tolist() == [[0, 1], [2, 3]]
    assert weights.attn.wo_a_scale.tolist() == [[127, 1]]
    assert weights.attn.wo_a_scale.dtype == torch.uint8
    dims, root = v41.recorded.checks
    assert (dims[0], dims[1][0].tp) == ("AttnWeights", 4)
    assert root == ("MonoLayerWeights", (4,), {"experts": 384})


def test_scales_of_128_blocks_are_repeated(pro: Docked, host: Host) -> None:
    layer = pro_layer()
    layer.attn._wqa_wkv_scale = torch.tensor([[1.0, 2.0**-126], [2.0**127, 0.125]])
    weights, _ = _pro(pro, host, layer, residual=None)
    codes = weights.attn.wqkv_scale
    assert (codes.shape, codes.dtype, codes.is_contiguous()) == ((8, 8), torch.uint8, True)
    blocks = codes.view(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(4, 16)
    assert [row.unique().tolist() for row in blocks] == [[127], [1], [254], [124]]
    assert weights.attn.wq_b_scale.tolist() == [[126] * 8] * 8  # 0.5 of its block scale
    assert weights.sgu_s.unique().tolist() == [128]
    assert weights.sw2_s.unique().tolist() == [126]


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (torch.tensor([[1.5]]), "wqkv_scale: fp32 scales that are no powers of two"),
        (torch.tensor([[-1.0]]), "no powers of two"),
        (torch.tensor([[float("inf")]]), "no powers of two"),
        (torch.ones(1, 1, dtype=torch.bfloat16), "wqkv_scale: scales of torch.bfloat16"),
        (None, "wqkv_scale: the layer has no such scale"),
    ],
)
def test_scales_that_are_no_codes(pro: Docked, host: Host, scale: Any, says: str) -> None:
    layer = pro_layer()
    layer.attn._wqa_wkv_scale = scale
    with pytest.raises(AssertionError, match=says):
        _pro(pro, host, layer, residual=None)


def test_zero_scales_are_code_zero(pro: Docked, host: Host) -> None:
    """A code of 0 is 2^-127, which fp32 flushes to 0 as a loader may have."""
    layer = pro_layer()
    layer.attn._wqa_wkv_scale = torch.zeros(1, 1)
    weights, _ = _pro(pro, host, layer, residual=None)
    assert weights.attn.wqkv_scale.unique().tolist() == [0]


def test_record_views(v41: Docked, host: Host) -> None:
    layer = v41_layer()
    padded = torch.zeros(3, BLOCK * 584 + 24, dtype=torch.uint8)[:, : BLOCK * 584].view(torch.float8_e4m3fn)
    layer.attn.swa_cache_layer.kv_cache = padded
    _, given = _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())
    view = given["swa_cache"]
    assert (view.shape, view.stride(), view.dtype) == ((3, BLOCK, 584), (BLOCK * 584 + 24, 584, 1), torch.uint8)
    assert view.data_ptr() == padded.data_ptr()
    layer.attn.swa_cache_layer.kv_cache = torch.zeros(3, BLOCK * 584 - 1, dtype=torch.uint8)
    with pytest.raises(AssertionError, match="a KV block of 2335 bytes, 4 records have 2336"):
        _v41(v41, host, layer, torch.rand(ROWS, 8), **_mixes())


def test_weights_are_taken_once(v41: Docked, host: Host) -> None:
    layer = v41_layer()
    mono = v41.create(layer, v41_config())
    host.decode(layer)
    for _ in range(2):
        mono(layer, torch.rand(ROWS, 8), "positions", **_mixes())
    (_, first, _), (_, second, _) = v41.recorded.calls
    assert first is second
    assert len(v41.recorded.runners) == 1
    assert [name for name, _, _ in v41.recorded.checks] == ["AttnWeights", "MonoLayerWeights"]


def test_a_runner_is_not_made_inside_a_capture(v41: Docked, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = v41_layer()
    mono = v41.create(layer, v41_config())
    host.decode(layer)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="--monokernel was first reached inside a CUDA graph capture"):
        mono(layer, torch.rand(ROWS, 8), "positions", **_mixes())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert mono(layer, torch.rand(ROWS, 8), "positions", **_mixes()) == V41_OUT
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert mono(layer, torch.rand(ROWS, 8), "positions", **_mixes()) == V41_OUT


def test_steps_that_are_left_are_logged_once_each(v41: Docked, host: Host) -> None:
    layer = v41_layer()
    mono = v41.create(layer, v41_config())
    assert host.log == ["DSv4.1 mono decode: on, target layers"]
    host.decode(layer)
    mono(layer, torch.rand(ROWS, 8), "positions", **_mixes())
    assert host.log[1:] == ["DSv4.1 mono decode: `forward` runs decode steps"]


@pytest.mark.parametrize("model", ["v41", "pro"])
def test_a_tp_group_has_a_runner_of_its_own(
    model: str, host: Host, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    docked = request.getfixturevalue(model)
    make, device = docked.module._rank_runner, torch.device("cpu")
    first = make(device, ())
    assert make(device, ()) is first
    another = SimpleNamespace(cpu_group="another group")
    monkeypatch.setattr(sys.modules["vllm.distributed"], "get_tp_group", lambda: another)
    second = make(device, ())
    assert second is not first
    assert second.given.group == "another group"
    host.tp //= 2
    assert make(device, ()).given.tp == host.tp
