"""The emitted docking inside its own package: the real runner takes what the docking hands it, for every layer kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from docking.fakes import GraphMode, Host, pro_config, pro_layer, v41_config, v41_layer

from monoc.build.device import DeviceLaunch
from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package
from monoc.reference.weights import sizes
from monoc.sim.host import DeviceMemory, simulate
from monoc.spec.program import Layout, Program
from monoc.verify.docked import block_scales, place_weights
from monoc.verify.inputs.step import Contexts, make_step
from monoc.verify.inputs.weights import Weights

SPECS = Path(__file__).parents[2] / "layer_specs"
ROWS, STREAMS = 3, 4


class Nothing:
    """An engine of one rank for a simulation in which nothing is launched."""

    arch, ranks = "gfx950", 1

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> None:
        raise AssertionError("nothing is launched here")


@dataclass(frozen=True)
class Emitted:
    program: Program
    package: EmittedPackage

    @classmethod
    def of(cls, name: str, folder: Path) -> Emitted:
        package = compile_spec(str(SPECS / f"{name}.yaml"))
        assert not package.proof.failures
        write_package(folder / name, package.files)
        return cls(package.program, EmittedPackage.load(folder / name))

    @property
    def docking(self) -> Any:
        return self.package.part("mono_decode")

    def inputs(self, entry: str, **fixed: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Weights and step inputs of one build at tp 1."""
        build = next(self.program.space.builds(tokens=ROWS, tp=1, **fixed))
        env = self.program.environment(build)
        weights = Weights(self.program, env, 1, 0)
        block_scales(self.program, weights.tensors[0])
        docked = next(e for e in self.program.entries if e.name == entry)
        here = weights.tensors[0]
        for decl in self.program.tensors:
            if decl.layout is Layout.ROWS_PAD256:  # the rows without what lies between them, as the loader shows them
                here[decl.name] = here[decl.name][:, : sizes(decl.shape, env)[1]]
        return here, make_step(self.program, docked, env, 1, 0, Contexts(narrow=0)).tensors[0]

    def launches(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
        """From now on the runner's launches are kept, with their builds, instead of compiled and run."""
        kept: list[tuple[str, Any]] = []
        runner = getattr(self.package.part("runner"), self.program.runner.class_name)

        def launch(_: Any, name: str, build: Any) -> Any:
            return lambda *values, stream: kept.append((name, build))

        monkeypatch.setattr(runner, "_launch", launch)
        return kept


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return Emitted.of("tiny", tmp_path_factory.mktemp("docked"))


@pytest.fixture(scope="module")
def tiny_pro(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    return Emitted.of("tiny_pro", tmp_path_factory.mktemp("docked"))


def _routing(layer: Any, program: Program, **fixed: int) -> None:
    env = program.environment(next(program.space.builds(tokens=ROWS, tp=1, **fixed)))
    layer.ffn.n_routed_experts, layer.ffn.n_activated_experts = env["experts"], env["topk"]


def _gates(layer: Any, hidden: int) -> None:
    """Compressors' weights as wide as the layer."""
    for owner in (layer.attn, layer.attn.indexer):
        if getattr(owner, "compressor", None) is not None:
            owner.compressor.fused_wkv_wgate.weight = torch.ones(2, hidden, dtype=torch.bfloat16)


def _metadata(host: Host, layer: Any, given: Mapping[str, torch.Tensor], ratio: int) -> None:
    """A decode-only step whose metadata are the inputs, for either kind of layer."""
    host.decode(layer)
    swa, comp = (host.context.attn_metadata[p] for p in list(host.context.attn_metadata)[:2])
    layer.attn.swa_cache_layer.kv_cache = given["swa_cache"]
    vars(swa).update(
        block_size=given["swa_cache"].shape[1], decode_swa_width=given["swa_indices"].shape[2],
        decode_swa_indices=given["swa_indices"], decode_swa_lens=given["swa_lens"],
        token_to_req_indices=given["token_to_req"], slot_mapping=given["slot_mapping"],
    )  # fmt: skip
    if ratio:
        cache, picks = given["comp_cache"], given["topk_indices"]
        vars(comp).update(block_size=cache.shape[1] * ratio, block_table=given.get("comp_block_table"))
        comp.c128a_global_decode_topk_indices = picks[:, None]
        layer.attn.topk_indices_buffer = picks
        layer.attn.kv_cache, layer.attn._compressed_kv_cache = cache, lambda: cache


V41_KINDS = {
    "window": {},
    "ratio 1": {"ratio": 1},
    "ratio 2": {"ratio": 2},
    "index": {"ratio": 2, "index": True},
    "first": {},
    "engram": {"engram": True},
    "draft first": {"number": 40},
    "draft": {"number": 41},
}


@pytest.mark.parametrize("kind", V41_KINDS)
def test_v41_layer_kinds(tiny: Emitted, host: Host, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    layer, launches = v41_layer(**V41_KINDS[kind]), tiny.launches(monkeypatch)  # type: ignore[arg-type]
    ratio, draft = layer.attn.compress_ratio, "draft" in kind
    fixed = {"experts": 8} if draft else {"experts": 16, "ratio": ratio}
    weights, given = tiny.inputs("forward", **fixed)
    host.tp = 1
    with simulate(Nothing()) as simulated:
        for tensor in (*weights.values(), *given.values()):
            simulated.register(tensor)
        place_weights(tiny.program, layer, weights)
        _routing(layer, tiny.program, **fixed)
        _gates(layer, given["x"].shape[1])
        _metadata(host, layer, given, ratio)
        mono = tiny.docking.MonoDecodeLayer.create(layer, v41_config())
        mixes = {n: given[n] for n in ("residual", "post_mix", "res_mix", "pre_mix")}
        x = given["x"]
        if kind == "engram":
            layer.engram.returns = layer.mhc_post.returns = given["residual"]
            mixes |= {"engram_hashes": torch.zeros(ROWS, 2), "engram_mask": None}
        if "first" in kind:
            x, mixes = given["residual"] if draft else x, {}
        out = mono(layer, x, given["positions"], **mixes)
        assert [tuple(t.shape) for t in out[:2]] == [tuple(given["x"].shape), tuple(given["residual"].shape)]
        tiny.docking._runner.cache_clear()
    assert [name for name, _ in launches] == ["k1", "k2"]
    build = launches[0][1]
    assert build.fold is (kind not in ("first", "engram", "draft first"))
    assert (build.index, build.ratio, build.variant) == (kind == "index", ratio, "draft" if draft else "target")
    assert ("indexer.indexer_op" in dict(layer.calls)) is (kind == "index")


def test_v41_tail(tiny: Emitted, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, launches = v41_layer(), tiny.launches(monkeypatch)
    weights, given = tiny.inputs("ffn", experts=16, ratio=0)
    host.tp = 1
    layer.attn.kv_mxfp8 = True
    with simulate(Nothing()) as simulated:
        for tensor in (*weights.values(), *given.values()):
            simulated.register(tensor)
        place_weights(tiny.program, layer, weights)
        _routing(layer, tiny.program, experts=16)
        layer.attn.fused_wqa_wkv = None  # a layer whose attention the launches cannot read
        host.context = SimpleNamespace(cudagraph_runtime_mode=GraphMode.NONE, attn_metadata={})
        host.context.attn_metadata["swa"] = SimpleNamespace(num_prefills=0, num_decodes=1, num_decode_tokens=ROWS)
        mono = tiny.docking.MonoDecodeLayer.create(layer, v41_config())
        names = ("part", "residual", "post_mix", "res_mix", "pre_mix")
        assert len(mono.ffn(layer, *(given[n] for n in names))) == 5
        tiny.docking._runner.cache_clear()
    assert [name for name, _ in launches] == ["ffn"]


@pytest.mark.parametrize("kind", ["csa", "hca", "csa hashed", "hca hashed", "first"])
def test_pro_layer_kinds(tiny_pro: Emitted, host: Host, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    program, launches = tiny_pro.program, tiny_pro.launches(monkeypatch)
    variant = next(v for v in program.space.variants if v.name == ("hca" if "hca" in kind else "csa"))
    ratio = dict(variant.values)["ratio"][0]
    layer = pro_layer(ratio, hashed="hashed" in kind or kind == "first")
    hashed = layer.ffn.gate.tid2eid is not None
    fixed = {"ratio": ratio, "hash_route": int(hashed)}
    weights, given = tiny_pro.inputs("forward", **fixed)
    host.tp = 1
    config = pro_config()
    config.model_config.max_model_len = 128 * 100
    with simulate(Nothing()) as simulated:
        for tensor in (*weights.values(), *given.values()):
            simulated.register(tensor)
        place_weights(program, layer, {n: t for n, t in weights.items() if n != "bias" or not hashed})
        _routing(layer, program, **fixed)
        _gates(layer, given["x"].shape[1])
        _metadata(host, layer, given, ratio)
        ids = None
        if hashed:
            layer.ffn.gate.tid2eid, ids = given["route_ids"], torch.arange(ROWS)
        mono = tiny_pro.docking.MonoDecodeLayer.create(layer, config)
        mixes = {} if kind == "first" else {n: given[n] for n in ("residual", "post_mix", "res_mix")}
        x = given["residual"] if kind == "first" else given["x"]
        out = mono(layer, x, given["positions"], ids, **mixes)
        assert [tuple(t.shape) for t in out[:2]] == [tuple(given["x"].shape), tuple(given["residual"].shape)]
        tiny_pro.docking._runner.cache_clear()
    assert [name for name, _ in launches] == ["k1", "k2"]
    build = launches[0][1]
    assert (build.fold, build.hash_route, build.variant) == (kind != "first", hashed, variant.name)
    assert [name for name, _ in layer.calls][:1] == ["compressor"]


def test_docking_imports_without_flydsl(tiny: Emitted) -> None:
    """The package and its docking need neither FlyDSL nor vLLM to be imported."""

    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('flydsl', 'vllm', 'aiter', 'monoc'):\n"
        "            raise ImportError(f'no {name}')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        f"sys.path.insert(0, {str(tiny.package.folder.parent)!r})\n"
        "from tiny import MonoDecodeLayer\n"
        "from tiny.mono_decode import _import_error\n"
        "assert 'no flydsl' in str(_import_error()), _import_error()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
