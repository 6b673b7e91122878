"""The core's builds for different host instruction sets execute the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from run_asm import run_body

from monoc.sim import _core

BUILDS = ("baseline", "avx2", "avx512")
BODY = """\
\tv_lshlrev_b32_e32 v1, 4, v0
\tv_lshlrev_b32_e32 v9, 2, v0
\tglobal_load_dwordx4 v[2:5], v1, s[4:5]
\ts_mov_b32 exec_lo, 0x7fff3c5a
\ts_mov_b32 exec_hi, 0x10f0f0f1
\tv_add_f32_e32 v2, v2, v3
\tv_mov_b32_dpp v2, v4 row_shr:5 row_mask:0xf bank_mask:0xf
\tv_mad_u64_u32 v[4:5], s[20:21], v0, v3, v[4:5]
\tds_write_b128 v1, v[2:5]
\tds_read2_b32 v[2:3], v1 offset0:1 offset1:3
\ts_mov_b64 exec, -1
\tds_bpermute_b32 v6, v9, v3 offset:20
\tv_mfma_f32_16x16x4_f32 v[12:15], v2, v6, 0
\tglobal_store_dwordx4 v1, v[12:15], s[6:7]
\tglobal_store_dwordx4 v1, v[3:6], s[8:9]
"""


@pytest.fixture
def restore() -> Iterator[None]:
    before = _core.isa()
    yield
    _core.alu_use_isa(before)


def test_builds_agree_bit_for_bit(restore: None) -> None:
    data = np.random.default_rng(3).normal(size=256).astype(np.float32)
    results = []
    for build in BUILDS:
        if not _core.alu_use_isa(build):
            continue
        assert _core.isa() == build
        sums, words = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
        run_body(BODY, [data, sums, words], lds=1024)
        results.append((sums, words))
    for sums, words in results[1:]:
        np.testing.assert_array_equal(sums, results[0][0])
        np.testing.assert_array_equal(words, results[0][1])
