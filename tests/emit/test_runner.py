"""The emitted runner: its interface, what it refuses, what it keeps from step to step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from monoc.build.device import DeviceLaunch
from monoc.build.package import EmittedPackage
from monoc.sim.host import DeviceMemory, SimulatedHost, simulate

ROWS = 3


class Recorder:
    """An engine that runs nothing and keeps the launches."""

    arch = "gfx950"

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.launches: list[DeviceLaunch] = []

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> int:
        self.launches += launches.values()
        return len(self.launches)


def _zeros(want: Any) -> torch.Tensor:
    dtype, axes, _ = want
    shape = [a[0] if isinstance(a, tuple) else 2 if a is None else a for a in axes]
    return (
        torch.zeros(shape, dtype=torch.uint8, device="cuda").view(dtype)
        if dtype.itemsize == 1
        else torch.zeros(shape, dtype=dtype, device="cuda")
    )


@dataclass
class Bench:
    """A runner of rank 0 of 1 with weights and one step's arguments."""

    package: EmittedPackage
    engine: Recorder
    host: SimulatedHost
    runner: Any
    weights: Any
    forward: dict[str, Any]
    ffn: dict[str, Any]

    @property
    def module(self) -> Any:
        return self.package.part("runner")


def _wants(module: Any, call: Callable[[], Any]) -> dict[str, Any]:
    """What a call of the runner module checks, without checking it."""
    found: dict[str, Any] = {}

    class CollectedError(Exception):
        pass

    def collect(owner: str, tensors: Any, wants: Mapping[str, Any]) -> None:
        found.update(wants)
        raise CollectedError

    real = module.check_tensors
    module.check_tensors = collect
    try:
        with pytest.raises(CollectedError):
            call()
    finally:
        module.check_tensors = real
    return found


def _class_wants(module: Any, kind: type, *arguments: Any) -> dict[str, Any]:
    return _wants(module, lambda: kind.check(object.__new__(kind), *arguments))  # type: ignore[attr-defined]


@pytest.fixture
def bench(tiny: EmittedPackage) -> Iterator[Bench]:
    engine, m = Recorder(1), tiny.part("runner")
    with simulate(engine) as host:
        attn = {n: _zeros(w) for n, w in _class_wants(m, m.AttnWeights, m.Dims(1)).items()}
        rest = {n: _zeros(w) for n, w in _class_wants(m, m.MonoLayerWeights, 1).items()}
        weights = m.MonoLayerWeights(attn=m.AttnWeights(layer_id=0, ratio=2, **attn), **rest)
        kind = getattr(m, m.__all__[-1])
        runner = kind(1, 0, host.group, "cuda")
        steps = {}
        for name in ("forward", "ffn"):
            method = getattr(runner, name)
            given = [p for p in inspect.signature(method).parameters if p not in ("outs", "fold", "select", "topk")]
            blank = {n: torch.zeros(ROWS, 1) for n in given[1:]}
            wants = _wants(m, lambda method=method, blank=blank: method(weights, **blank))  # type: ignore[misc]
            steps[name] = {n: _zeros(w) for n, w in wants.items()}
        yield Bench(tiny, engine, host, runner, weights, steps["forward"], steps["ffn"])
        runner.close()
        runner.close()  # again is harmless


def test_names_are_the_hand_written_ones(bench: Bench) -> None:
    m = bench.module
    assert {"BLOCKS", "MAX_TOKENS", "AttnWeights", "MonoLayerWeights"} <= set(m.__all__)
    assert list(inspect.signature(bench.runner.forward).parameters) == [
        "w", "x", "residual", "post_mix", "res_mix", "pre_mix", "positions", "slot_mapping", "swa_cache", "swa_indices",
        "swa_lens", "token_to_req", "topk_indices", "comp_cache", "comp_block_table", "outs", "fold", "select",
    ]  # fmt: skip
    assert list(inspect.signature(bench.runner.ffn).parameters) == [
        "w", "part", "residual", "post_mix", "res_mix", "pre_mix", "outs", "topk",
    ]  # fmt: skip
    constructor = list(inspect.signature(type(bench.runner)).parameters)
    assert constructor[:9] == [
        "tp", "rank", "group", "device", "timeline", "experts", "topk", "ug_groups", "swa_width",
    ]  # fmt: skip
    assert list(inspect.signature(bench.runner.kernels).parameters) == ["tokens", "ratio", "fold", "index"]
    assert list(inspect.signature(bench.runner.ffn_kernel).parameters) == ["tokens", "experts", "topk"]


def test_first_pre_mix(bench: Bench) -> None:
    assert bench.runner.first_pre_mix(2).tolist() == [[1.0, 0.0, 0.0, 0.0]] * 2


def test_supports(bench: Bench) -> None:
    assert [bench.runner.supports(n) for n in (0, 1, bench.module.MAX_TOKENS, bench.module.MAX_TOKENS + 1)] == [
        False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("x", lambda t: t[:, :-1].contiguous(), r"x is torch\.bfloat16 \[3, 255\], want torch\.bfloat16 \[3, 256\]"),
        ("x", lambda t: t.float(), r"x is torch\.float32 \[3, 256\]"),
        ("residual", lambda t: t.transpose(1, 2).contiguous().transpose(1, 2), r"residual is not contiguous"),
        ("post_mix", lambda t: t[..., 0].contiguous(), r"post_mix is torch\.float32 \[3, 4\], want .* \[3, 4, 1\]"),
        ("positions", lambda t: t.int(), r"positions is torch\.int32 \[3\], want torch\.int64"),
        ("slot_mapping", lambda t: t[:2], r"slot_mapping is torch\.int64 \[2\]"),
        ("swa_lens", lambda t: t[:2], r"swa_lens is torch\.int32 \[2\], want torch\.int32 \[>= 3\]"),
        ("swa_indices", lambda t: torch.cat([t, t], 2)[..., : t.shape[2]], r"swa_indices has strides"),
        ("swa_cache", lambda t: t.view(torch.int8), r"swa_cache is torch\.int8"),
        ("comp_cache", lambda t: t.transpose(0, 1), r"comp_cache has strides"),
        ("topk_indices", lambda t: None, r"topk_indices is NoneType"),
        ("comp_block_table", lambda t: t.t().contiguous().t(), r"comp_block_table has strides"),
    ],
)
def test_wrong_tensors_are_refused(bench: Bench, name: str, value: Any, says: str) -> None:
    given = {**bench.forward, name: value(bench.forward[name])}
    with pytest.raises(AssertionError, match=says):
        bench.runner.forward(bench.weights, **given)
    assert not bench.engine.launches


def test_every_wrong_tensor_in_one_message(bench: Bench) -> None:
    given = {
        **bench.forward,
        "residual": bench.forward["residual"].float(),
        "swa_lens": bench.forward["swa_lens"].long(),
    }
    with pytest.raises(AssertionError, match=r"residual is torch\.float32.*; swa_lens is torch\.int64"):
        bench.runner.forward(bench.weights, **given)


def test_wrong_outs_are_refused(bench: Bench) -> None:
    outs = bench.runner._ffn_outs(ROWS, torch.device("cuda"))
    with pytest.raises(AssertionError, match=r"4 outs, want 5"):
        bench.runner.ffn(bench.weights, **bench.ffn, outs=outs[:4])
    with pytest.raises(AssertionError, match=r"ffn outs: out is torch\.float32"):
        bench.runner.ffn(bench.weights, **bench.ffn, outs=(outs[0].float(), *outs[1:]))


def test_widths_and_builds_not_served_are_refused(bench: Bench) -> None:
    wide = {n: torch.zeros(21, *t.shape[1:], dtype=t.dtype) for n, t in bench.ffn.items()}
    with pytest.raises(AssertionError, match="21 rows; a step has 1 to 20"):
        bench.runner.ffn(bench.weights, **wide)
    with pytest.raises(AssertionError, match=r"no build with .*topk 5"):
        bench.runner.ffn(bench.weights, **bench.ffn, topk=5)
    unknown = replace(bench.weights, attn=replace(bench.weights.attn, ratio=3))
    with pytest.raises(AssertionError, match=r"no build with .*ratio 3"):
        bench.runner.forward(unknown, **bench.forward)
    window_only = replace(bench.weights, attn=replace(bench.weights.attn, ratio=0))
    with pytest.raises(AssertionError, match=r"no build with .*index True.*ratio 0"):
        bench.runner.forward(window_only, **bench.forward, select=lambda y, q: None)


def test_a_layer_without_attention_weights_has_no_forward(bench: Bench) -> None:
    with pytest.raises(AssertionError, match="attn weights are missing"):
        bench.runner.forward(replace(bench.weights, attn=None), **bench.forward)


@pytest.mark.parametrize("tp", [0, 3, 8])
def test_tp_sizes_not_served_are_refused(bench: Bench, tp: int) -> None:
    with pytest.raises(AssertionError, match=f"no build with tp {tp}"):
        type(bench.runner)(tp, 0, bench.host.group, "cuda")
    with pytest.raises(AssertionError, match=f"no build with tp {tp}"):
        bench.weights.check(tp)


def test_weights_check(bench: Bench) -> None:
    m = bench.module
    bench.weights.check(1)
    bench.weights.attn.check(m.Dims(1))
    with pytest.raises(AssertionError, match=r"AttnWeights: wqkv is torch.uint8"):
        replace(bench.weights.attn, wqkv=bench.weights.attn.wqkv.view(torch.uint8)).check(m.Dims(1))
    with pytest.raises(AssertionError, match=r"MonoLayerWeights: gate_w is .*\[15, 256\]"):
        replace(bench.weights, gate_w=bench.weights.gate_w[1:]).check(1)
    with pytest.raises(AssertionError, match=r"w13"):
        bench.weights.check(2)


def test_a_width_first_used_inside_a_capture_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = type(bench.runner)(1, 0, bench.host.group, "cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="3 rows was first reached inside a CUDA graph capture"):
        fresh.ffn(bench.weights, **bench.ffn)
    with pytest.raises(RuntimeError, match="capture"):
        fresh.scratch(ROWS)
    monkeypatch.undo()
    fresh.scratch(ROWS)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="a launch was first reached inside a CUDA graph capture; warm it up"):
        fresh.ffn(bench.weights, **bench.ffn)
    fresh.close()


def test_steps_launch_compiled_kernels_and_allocate_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.runner.warmup([ROWS])
    traces = bench.host.traces
    assert not bench.engine.launches  # warming up launches nothing
    outs = bench.runner._ffn_outs(ROWS, torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for name in ("empty", "zeros", "empty_like"):
        monkeypatch.setattr(torch, name, lambda *a, **k: pytest.fail("a step allocated"))
    for _ in range(2):
        assert bench.runner.ffn(bench.weights, **bench.ffn, outs=outs) is outs
        bench.runner.forward(bench.weights, **bench.forward, outs=outs)
    assert [launch.symbol.split("_")[1] for launch in bench.engine.launches] == ["ffn", "k1", "k2"] * 2
    assert bench.engine.launches[0].values == bench.engine.launches[3].values  # every argument is fixed
    assert bench.host.traces == traces


def test_the_host_call_comes_between_the_launches(bench: Bench) -> None:
    seen: list[Any] = []

    def select(y: torch.Tensor, q: torch.Tensor) -> None:
        seen.append((len(bench.engine.launches), tuple(y.shape), tuple(q.shape), y.dtype))

    bench.runner.forward(bench.weights, **bench.forward, select=select)
    plan = bench.package.plan
    assert seen == [(1, (ROWS, plan.HIDDEN), (ROWS, plan.Q_RANK), torch.bfloat16)]
    assert [launch.symbol.split("_")[1] for launch in bench.engine.launches] == ["k1", "k2"]


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"gcnArchName": "gfx942:sramecc+"}, "compiled for gfx950, the GPU is gfx942"),
        ({"multi_processor_count": 4}, "keeps 8 CTAs resident, one a compute unit; the GPU has 4"),
    ],
)
def test_gpus_that_cannot_run_it_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, properties: dict[str, Any], says: str
) -> None:
    real = torch.cuda.get_device_properties("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: replace(real, **properties))
    with pytest.raises(RuntimeError, match=says):
        type(bench.runner)(1, 0, bench.host.group, "cuda")
