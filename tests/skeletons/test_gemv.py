"""The GEMV skeleton: every epilogue, weight layout and hand-off form, on numbers whose sums are exact in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Bench, Placed, from_bits, to_bits
from mxref import e4m3, e8m0, from_e4m3, mx_region, quantise, shuffle16

from monoc.expr.ir import Binary, BinaryOp, Const, Local
from monoc.expr.slot import Slot, SlotInput
from monoc.schedule.formula import Formula
from monoc.schedule.model import Form, Units
from monoc.skeletons.gemv import GemvParams, MxOut, Partials, Push, Rope, Rows, Source

TINY = {"THREADS": 512, "N": 64, "K": 576, "HEAD": 64, "ROPE": 32}
FORMS = (Form.PAIR, Form.FLAG, Form.BARRIER)


def product_slot() -> Slot:
    """min(gate, 3) * up."""
    gate = Binary(BinaryOp.MIN, Local("gate"), Const(3.0))
    return Slot(
        "gate_times_up",
        (SlotInput("gate"), SlotInput("up")),
        (),
        (Binary(BinaryOp.MUL, gate, Local("up")),),
        ("m = min(gate, 3) * up",),
    )


@dataclass(frozen=True)
class Linear:
    """Small integers times powers of two: every sum of products is exact in fp32, whatever its order."""

    x: np.ndarray  # e4m3 [tokens, k]
    x_codes: np.ndarray
    w: np.ndarray  # e4m3 [n, k]
    w_codes: np.ndarray  # [n / 32, k / 32]

    @property
    def rows(self) -> np.ndarray:
        return from_e4m3(self.x) * np.repeat(e8m0(self.x_codes), 32, axis=1)

    @property
    def weight(self) -> np.ndarray:
        return from_e4m3(self.w) * np.repeat(np.repeat(e8m0(self.w_codes), 32, axis=0), 32, axis=1)

    @property
    def result(self) -> np.ndarray:
        exact = self.rows @ self.weight.T
        assert np.array_equal(exact, exact.astype(np.float32))
        return exact.astype(np.float32)


def linear(tokens: int, n: int, k: int, seed: int = 0) -> Linear:
    rng = np.random.default_rng(seed)
    return Linear(
        e4m3(rng.integers(-4, 5, (tokens, k)).astype(np.float32)),
        rng.integers(126, 129, (tokens, k // 32)).astype(np.uint8),
        e4m3(rng.integers(-4, 5, (n, k)).astype(np.float32)),
        rng.integers(126, 129, (n // 32, k // 32)).astype(np.uint8),
    )


def params(epilogue: Any, **more: Any) -> GemvParams:
    return GemvParams("linear", "weight", "scale", "N", "K", Source("x", "K"), epilogue, **more)


def run(
    p: GemvParams,
    data: Linear,
    tmp: Path,
    form: Form = Form.FLAG,
    *,
    dims: Mapping[str, int] = TINY,
    inputs: Mapping[str, Any] | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    tp: int = 1,
    grid: int = 3,
    units: int = 0,
) -> Any:
    tokens = data.x.shape[0]
    words = {"x": mx_region(data.x, data.x_codes)} if given is None else dict(given)
    bench = Bench(
        [Placed(p, 1)],
        dims,
        {"tokens": tokens, "tp": tp},
        tmp,
        grid=grid,
        threads=dims["THREADS"],
        form=form,
        external={name: (value.size, units or tokens) for name, value in words.items()},
    )
    arguments = {"weight": data.w, "scale": data.w_codes, **(inputs or {})}
    ranks: list[dict[str, Any]] = [{k: np.array(v) for k, v in arguments.items()} for _ in range(tp)]
    if isinstance(p.epilogue, Push):
        ranks = [{**own, "rank": r} for r, own in enumerate(ranks)]
    return bench.run(ranks, [words] * tp)


def bf16(values: np.ndarray) -> np.ndarray:
    return from_bits(to_bits(values))


def bf16_rows(outcome: Any, region: str, shape: tuple[int, ...]) -> np.ndarray:
    return from_bits(outcome.region(region).view(np.uint16)).reshape(shape)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [1, 5, 17])
def test_rows(tmp_path: Path, tokens: int, form: Form) -> None:
    data = linear(tokens, 64, 576)
    out = run(params(Rows("y"), tiles=2), data, tmp_path, form)
    assert np.array_equal(bf16_rows(out, "y", (tokens, 64)), bf16(data.result))


@pytest.mark.parametrize(
    ("tiles", "groups", "k"), [(1, 1, 576), (2, 2, 576), (4, 2, 64), (4, 4, 1056), (2, 1, 2048), (1, 1, 32)]
)
def test_ragged_windows_and_wave_groups(tmp_path: Path, tiles: int, groups: int, k: int) -> None:
    data = linear(3, 64, k, seed=k)
    out = run(params(Rows("y"), tiles=tiles, wave_groups=groups), data, tmp_path, dims={**TINY, "K": k})
    assert np.array_equal(bf16_rows(out, "y", (3, 64)), bf16(data.result))


@pytest.mark.parametrize("tiles", ["cdiv(N // 16, 3)", 3])
def test_last_task_with_fewer_tiles(tmp_path: Path, tiles: int | str) -> None:
    """Seven and eight row tiles, three a task: what lies past the weight is neither loaded nor stored."""
    for n in (112, 128):
        data = linear(2, 128, 256)
        data = replace(data, w=np.ascontiguousarray(data.w[:n]))
        p = replace(params(Rows("y"), tiles=tiles), rows="N")
        out = run(p, data, tmp_path, dims={**TINY, "N": n, "K": 256})
        wanted = bf16((data.rows @ linear(2, 128, 256).weight[:n].T).astype(np.float32))
        assert np.array_equal(bf16_rows(out, "y", (2, n)), wanted)


@pytest.mark.parametrize("threads", [256, 512])
def test_partials_of_k_parts(tmp_path: Path, threads: int) -> None:
    data = linear(18, 64, 640)
    dims = {**TINY, "K": 640, "THREADS": threads}
    out = run(params(Partials("y"), parts=2), data, tmp_path, Form.PAIR, dims=dims)
    got = out.region("y").view(np.float32).reshape(2, 18, 64)
    for part in range(2):
        half = slice(320 * part, 320 * (part + 1))
        assert np.array_equal(got[part], (data.rows[:, half] @ data.weight[:, half].T).astype(np.float32))


@pytest.mark.parametrize("padding", [0, 256])
@pytest.mark.parametrize("shuffled", [False, True])
def test_weight_layouts(tmp_path: Path, padding: int, shuffled: bool) -> None:
    data = linear(2, 64, 512)
    stored = shuffle16(data.w) if shuffled else np.pad(data.w, ((0, 0), (0, padding)), constant_values=0x7F)
    p = params(Rows("y"), shuffled=shuffled, pitch=f"K + {padding}")
    out = run(p, data, tmp_path, dims={**TINY, "K": 512}, inputs={"weight": np.ascontiguousarray(stored)})
    assert np.array_equal(bf16_rows(out, "y", (2, 64)), bf16(data.result))


@pytest.mark.parametrize("ahead", ["True", "False"])
def test_token_tiles(tmp_path: Path, ahead: str) -> None:
    data = linear(21, 64, 256)
    p = params(Rows("y"), tile_tokens=8, rows_ahead=ahead)
    out = run(p, data, tmp_path, dims={**TINY, "K": 256})
    assert np.array_equal(bf16_rows(out, "y", (21, 64)), bf16(data.result))


@pytest.mark.parametrize("tokens", [1, 17])
def test_rope(tmp_path: Path, tokens: int) -> None:
    """Rows 32 .. 64 of every head of 64 turned; rows 0 .. 32 as they are."""
    data = linear(tokens, 128, 256)
    rng = np.random.default_rng(1)
    table = rng.standard_normal((40, 32)).astype(np.float32)
    positions = rng.integers(0, 40, tokens)
    p = params(Rows("y", Rope("table", "positions", "HEAD", "ROPE")), tiles=2)
    dims = {**TINY, "N": 128, "K": 256}
    out = run(p, data, tmp_path, dims=dims, inputs={"table": table, "positions": positions.astype(np.int64)})
    y = bf16(data.result).reshape(tokens, 2, 64)
    pairs = y[..., 32:].reshape(tokens, 2, 16, 2)
    cos, sin = (table[positions][:, None, half] for half in (slice(0, 16), slice(16, 32)))
    even = pairs[..., 0] * cos - pairs[..., 1] * sin
    odd = pairs[..., 0] * sin + pairs[..., 1] * cos
    wanted = np.concatenate([y[..., :32], np.stack([even, odd], -1).reshape(tokens, 2, 32)], -1)
    assert np.array_equal(bf16_rows(out, "y", (tokens, 2, 64)), bf16(wanted))


@pytest.mark.parametrize("form", FORMS)
def test_mx_output(tmp_path: Path, form: Form) -> None:
    data = linear(5, 128, 256)
    out = run(params(MxOut("y"), tiles=2), data, tmp_path, form, dims={**TINY, "N": 128, "K": 256})
    assert np.array_equal(out.region("y").reshape(5, 36), mx_region(*quantise(bf16(data.result))))


@pytest.mark.parametrize("form", [Form.PAIR, Form.FLAG])
def test_two_in_a_launch(tmp_path: Path, form: Form) -> None:
    """MXFP8 rows of 96, whose words end in padding nobody stores, from one GEMV to the next."""
    one, two = linear(5, 96, 256), linear(5, 64, 96, seed=6)
    first = replace(params(MxOut("middle"), tiles=2), stage="first", rows="96")
    second = replace(
        params(Partials("y")),
        weight="weight2",
        scale="scale2",
        k="96",
        source=Source("middle", "96", units=Units(Formula("0"), Formula("3"))),
    )
    words = {"x": mx_region(one.x, one.x_codes)}
    bench = Bench(
        [Placed(first), Placed(second, 2)],
        {**TINY, "K": 256},
        {"tokens": 5},
        tmp_path,
        grid=3,
        form=form,
        external={"x": (words["x"].size, 5)},
    )
    inputs = {"weight": one.w, "scale": one.w_codes, "weight2": two.w, "scale2": two.w_codes}
    got = bench.run([inputs], [words]).region("y").view(np.float32).reshape(5, 64)
    codes, scales = quantise(bf16(one.result))
    wanted = replace(two, x=codes, x_codes=scales)
    scale = np.abs(wanted.rows) @ np.abs(wanted.weight).T
    assert np.all(np.abs(got - wanted.rows @ wanted.weight.T) <= 96 * 2.0**-24 * scale)


@pytest.mark.parametrize("tiles", [1, 2])
def test_activation_of_gate_and_up_rows(tmp_path: Path, tiles: int) -> None:
    data = linear(17, 64, 256)
    p = params(Rows("y"), tiles=tiles, activation=product_slot())
    out = run(p, data, tmp_path, dims={**TINY, "K": 256})
    gate, up = bf16(data.result)[:, :32], bf16(data.result)[:, 32:]
    assert np.array_equal(bf16_rows(out, "y", (17, 32)), bf16(np.minimum(gate, np.float32(3)) * up))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [1, 9, 16, 18])
def test_rows_quantised_in_the_cta(tmp_path: Path, tokens: int, form: Form) -> None:
    """A bf16 source: the same as MXFP8 of it by rule V, also for zero rows and a window of a wider row."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((tokens, 960)).astype(np.float32) * np.exp2(rng.integers(-8, 8, (tokens, 1)))
    rows[-1, :700] = 0
    rows = bf16(rows)
    codes, scales = quantise(rows[:, 384:])
    data = replace(linear(tokens, 64, 576), x=codes, x_codes=scales)
    p = replace(params(Partials("y")), source=Source("x", "960", "384", quantised=False))
    out = run(p, data, tmp_path, form, given={"x": to_bits(rows).view(np.uint32)})
    got = out.region("y").view(np.float32).reshape(tokens, 64)
    scale = np.abs(data.rows) @ np.abs(data.weight).T
    assert np.all(np.abs(got - data.rows @ data.weight.T) <= 576 * 2.0**-24 * scale)


@pytest.mark.parametrize("addend", [False, True])
def test_push_to_every_rank(tmp_path: Path, addend: bool) -> None:
    data = linear(3, 64, 256)
    more = bf16(np.random.default_rng(3).standard_normal((3, 64)).astype(np.float32) * 30)
    given = {"x": mx_region(data.x, data.x_codes)}
    epilogue = Push("out", "rank")
    if addend:
        given["more"] = to_bits(more).view(np.uint32)
        epilogue = Push("out", "rank", "more", Units(Formula("0"), Formula("b.tokens")))
    out = run(params(epilogue), data, tmp_path, dims={**TINY, "K": 256}, given=given, tp=2)
    wanted = bf16(bf16(data.result) + more) if addend else bf16(data.result)
    for rank in range(2):
        got = from_bits(out.region("out", rank).view(np.uint16)).reshape(2, 3, 64)
        assert np.array_equal(got, np.stack([wanted, wanted]))


class Early(Bench):
    """Weights requested ahead of the stage's function, those of task 0 not wanted."""

    def _kernel(self, name: str, stages: Any) -> str:
        call = 'early = linear_weights(cta, B, args["weight"], args["scale"], task, task != 0)'
        text = super()._kernel(name, stages).replace("        linear(\n", f"        {call}\n        linear(\n")
        return text.replace("            task,\n        )", "            task,\n            early,\n        )")


@pytest.mark.parametrize("k", [256, 1056])
def test_weights_requested_early(tmp_path: Path, k: int) -> None:
    data = linear(2, 64, k)
    words = mx_region(data.x, data.x_codes)
    external = {"x": (words.size, 2)}
    stages = [Placed(params(Rows("y")))]
    bench = Early(stages, {**TINY, "K": k}, {"tokens": 2}, tmp_path, form=Form.FLAG, external=external)
    out = bench.run([{"weight": data.w, "scale": data.w_codes}], [{"x": words}])
    wanted = bf16(data.result)
    wanted[:, :16] = 0
    assert np.array_equal(bf16_rows(out, "y", (2, 64)), wanted)


def test_group_offsets(tmp_path: Path) -> None:
    """Every 32 outputs read another window of the activation row and wait for its own units only."""
    data = linear(2, 64, 256)
    wide = linear(2, 64, 512, seed=4)
    p = replace(
        params(Rows("y"), tiles=2),
        source=Source("x", "2 * K", "i * K", Units(Formula("i * b.tokens"), Formula("b.tokens"))),
    )
    given = {"x": mx_region(wide.x, wide.x_codes)}
    out = run(p, data, tmp_path, dims={**TINY, "K": 256}, given=given, units=4)
    wanted = np.concatenate(
        [wide.rows[:, 256 * g : 256 * (g + 1)] @ data.weight[32 * g : 32 * (g + 1)].T for g in range(2)], 1
    )
    assert np.array_equal(bf16_rows(out, "y", (2, 64)), bf16(wanted.astype(np.float32)))


def test_wide_exponents(tmp_path: Path) -> None:
    """Codes from 2^-60 to 2^40 and zero groups."""
    data = linear(4, 64, 256)
    rng = np.random.default_rng(5)
    codes = rng.integers(67, 168, (4, 8)).astype(np.uint8)
    data = replace(data, x_codes=codes)
    out = run(params(Partials("y")), data, tmp_path, dims={**TINY, "K": 256})
    got = out.region("y").view(np.float32).reshape(4, 64)
    scale = np.abs(data.rows) @ np.abs(data.weight).T
    assert np.all(np.abs(got - data.rows @ data.weight.T) <= 256 * 2.0**-24 * scale)


@pytest.mark.parametrize(
    ("p", "named"),
    [
        (params(MxOut("y"), tiles=1), "groups of 32"),
        (params(Rows("y"), tiles=3, wave_groups=2), "wave groups"),
        (params(Rows("y"), parts=2), "partials"),
        (params(Partials("y"), activation=product_slot()), "activation"),
    ],
)
def test_parameters_no_task_table_serves(p: GemvParams, named: str) -> None:
    with pytest.raises(ValueError, match=f"stage linear: .*{named}"):
        p.describe()


FULL = {"THREADS": 512, "N": 1024, "K": 4096, "HEAD": 512, "ROPE": 64}


@pytest.mark.parametrize("tokens", [1, 16, 48])
@pytest.mark.parametrize(
    ("p", "n", "k"),
    [
        (params(Partials("y"), parts=2), 1792, 5120),
        (params(Rows("y", Rope("table", "positions", "HEAD", "ROPE")), tiles=2, wave_groups=2), 8192, 1280),
        (params(MxOut("y"), tiles=2), 2048, 4096),
        (params(Push("y", "rank"), tiles=2), 5120, 2048),
        (params(Rows("y"), activation=product_slot()), 1152, 5120),
        (params(Rows("y")), 5120, 576),
    ],
)
def test_real_sizes_compile_lean(tmp_path: Path, p: GemvParams, n: int, k: int, tokens: int) -> None:
    dims = {**FULL, "N": n, "K": k}
    external = {"x": (tokens * 2 * k, tokens)}
    bench = Bench([Placed(p)], dims, {"tokens": tokens, "tp": 4}, tmp_path, grid=256, form=Form.FLAG, external=external)
    (result,) = bench.compile()
    assert result.resources.vgprs <= 200
    assert (result.resources.scratch_bytes, result.resources.sgpr_spills) == (0, 0)
    assert result.resources.lds_bytes <= 160 * 1024
