"""The front's latents: partials summed, the query latent normed to MXFP8, the key-value record written."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Bench, Placed
from seam import divided_rstd, scale

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
            divided_rstd("q_rstd", latent),
            scale("q_scale", "q", "qw"),
            "q",
            weights=(RowWeight("qw", "q_weight"),),
        ),
        record=NormedSegment(
            "RECORD",
            divided_rstd("kv_rstd", record),
            scale("kv_scale", "kv", "kw"),
            "kv",
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


def bench(tmp: Path, tokens: int, latent: int, nope: int, rope: int, grid: int = 4, threads: int = 512) -> Bench:
    record = nope + rope
    units = 2 * (latent + record) // 16
    dims = {"LATENT": latent, "RECORD": record, "NOPE": nope, "ROPE": rope, "UNITS": units}
    external = {"partials": (2 * tokens * (latent + record), units)}
    params = latents(latent, record)
    return Bench([Placed(params)], dims, {"tokens": tokens}, tmp, grid=grid, threads=threads, external=external)


@pytest.mark.parametrize(("tokens", "latent"), [(48, 1280), (64, 1536)])
def test_compiles_lean(tmp_path: Path, tokens: int, latent: int) -> None:
    (result,) = bench(tmp_path, tokens, latent, 448, 64, 256).compile()
    assert result.resources.vgprs <= 128
    assert result.resources.scratch_bytes == 0
