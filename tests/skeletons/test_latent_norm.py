"""The front's latents: partials summed, the query latent normed to MXFP8, the key-value record written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, from_bits, to_bits
from reference import mx_rows, quantise, random_bf16, record_bytes
from seam import divided_rstd, scale

from monoc.schedule.model import Form
from monoc.skeletons.latent_norm import LatentNormParams, NormedSegment
from monoc.skeletons.row_norm import MxOutput, RowWeight


def latents(latent: int, record: int) -> LatentNormParams:
    return LatentNormParams(
        stage="latents",
        partials="partials",
        parts=2,
        partial_units="UNITS",
        latent=NormedSegment(
            "LATENT",
            scale("q_scale", "q", "qw"),
            "q",
            divided_rstd("q_rstd", latent),
            weights=(RowWeight("qw", "q_weight"),),
        ),
        record=NormedSegment(
            "RECORD",
            scale("kv_scale", "kv", "kw"),
            "kv",
            divided_rstd("kv_rstd", record),
            weights=(RowWeight("kw", "kv_weight"),),
        ),
        nope="NOPE",
        rope="ROPE",
        positions="positions",
        cache_slots="slots",
        table="cos_sin",
        cache="cache",
        cache_block="cache_block",
        cache_stride="cache_stride",
        mx=(MxOutput("q8"),),
        out="q_out",
    )


def bench(
    tmp: Path,
    tokens: int,
    latent: int,
    nope: int,
    rope: int,
    grid: int = 4,
    threads: int = 512,
    form: Form = Form.PAIR,
) -> Bench:
    record = nope + rope
    units = 2 * (latent + record) // 16
    dims = {"LATENT": latent, "RECORD": record, "NOPE": nope, "ROPE": rope, "UNITS": units}
    external = {"partials": (2 * tokens * (latent + record), units)}
    params = latents(latent, record)
    stages, build = [Placed(params)], {"tokens": tokens}
    return Bench(stages, dims, build, tmp, grid=grid, threads=threads, form=form, external=external)


@pytest.mark.parametrize(("tokens", "latent"), [(48, 1280), (64, 1536)])
def test_compiles_lean(tmp_path: Path, tokens: int, latent: int) -> None:
    (result,) = bench(tmp_path, tokens, latent, 448, 64, 256).compile()
    assert result.resources.vgprs <= 128
    assert result.resources.scratch_bytes == 0


def _normed(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """bf16-valued f32 RMSNorm of bf16-valued x."""
    wide = x.astype(np.float64)
    rstd = (1 / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-20)).astype(np.float32)
    return from_bits(to_bits((x * rstd) * from_bits(w)))


def _turned(y: np.ndarray, angles: np.ndarray, nope: int) -> np.ndarray:
    """GPT-J RoPE of the values past ``nope``, rounded to bf16; the others by cosine 1 and sine 0."""
    half = angles.shape[1] // 2
    cos = np.concatenate([np.ones((len(y), nope // 2), np.float32), angles[:, :half]], 1)
    sin = np.concatenate([np.zeros((len(y), nope // 2), np.float32), angles[:, half:]], 1)
    e, o = y[:, ::2], y[:, 1::2]
    out = np.empty_like(y)
    out[:, ::2], out[:, 1::2] = e * cos - o * sin, e * sin + o * cos
    return from_bits(to_bits(out))


@pytest.mark.parametrize(
    ("tokens", "latent", "nope", "rope", "threads", "form"),
    [
        (2, 1280, 448, 64, 512, Form.PAIR),
        (6, 64, 64, 32, 256, Form.FLAG),
        (3, 1536, 448, 64, 256, Form.BARRIER),
    ],
)
def test_latents(tmp_path: Path, tokens: int, latent: int, nope: int, rope: int, threads: int, form: Form) -> None:
    rng = np.random.default_rng(latent)
    record, block = nope + rope, 4
    size = nope + 2 * rope + 8
    partials = rng.standard_normal((2, tokens, latent + record)).astype(np.float32)
    slots = np.arange(tokens, dtype=np.int64)[::-1] * 3
    slots[0] = -1
    cache = np.full((5, block * size + 16), 0xEE, np.uint8)
    arguments = {
        "q_weight": random_bf16(rng, latent),
        "kv_weight": random_bf16(rng, record),
        "positions": np.arange(tokens, dtype=np.int64) + 5,
        "slots": slots,
        "cos_sin": rng.standard_normal((tokens + 6, rope)).astype(np.float32),
        "cache": cache,
        "cache_block": block,
        "cache_stride": cache.shape[1],
        "q_out": np.zeros((tokens, latent), np.uint16),
    }
    bench_ = bench(tmp_path, tokens, latent, nope, rope, threads=threads, form=form)
    out = bench_.run([arguments], [{"partials": partials}])
    x = from_bits(to_bits(partials[0] + partials[1]))
    q = to_bits(_normed(x[:, :latent], arguments["q_weight"]))
    steps = np.abs(arguments["q_out"].astype(np.int64) - q)  # the square's sum has an order of its own
    assert steps.max() <= 1
    assert (steps == 0).mean() > 0.99
    values, codes = mx_rows(out.region("q8"), tokens, latent)
    want_values, want_codes = quantise(from_bits(arguments["q_out"]), "V")
    assert np.array_equal(codes, want_codes)
    assert np.array_equal(values, want_values)
    angles = arguments["cos_sin"][arguments["positions"]]
    kv = _turned(_normed(x[:, latent:], arguments["kv_weight"]), angles, nope)
    untouched = np.ones_like(cache, bool)
    for t in range(tokens):
        if slots[t] < 0:
            continue
        page, inside = divmod(int(slots[t]), block)
        data = slice(inside * (size - 8), (inside + 1) * (size - 8))
        tail = slice(block * (size - 8) + inside * 8, block * (size - 8) + inside * 8 + 8)
        untouched[page, data] = untouched[page, tail] = False
        want, want_code = record_bytes(kv[t], nope)
        assert (cache[page, data] == want).mean() > 0.99
        assert np.array_equal(cache[page, tail][: nope // 64], want_code)
        assert not cache[page, tail][nope // 64 : record // 64].any()
    assert np.all(cache[untouched | (cache == 0xEE)] == 0xEE)
