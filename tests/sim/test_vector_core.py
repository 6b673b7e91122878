"""What the core adds around the lane functions: EXEC, DPP, SDWA, modifiers, lane access, entry state."""

# ruff: noqa: E501  (assembly lines stay whole)

from __future__ import annotations

import numpy as np
import pytest
from run_asm import run_body

LANE = "\tv_lshlrev_b32_e32 v9, 2, v0\n"
STORE = LANE + "\tglobal_store_dword v9, v2, s[4:5]\n"


def lanes(body: str, dtype: type = np.uint32, **kernel: int) -> np.ndarray:  # type: ignore[type-arg]
    out = np.zeros(64, dtype)
    run_body(body + "\ts_mov_b64 exec, -1\n" + STORE, [out], **kernel)
    return out


@pytest.mark.parametrize(
    ("control", "source"),
    [
        ("row_shl:3", lambda lane: lane + 3 if (lane + 3) // 16 == lane // 16 else None),
        ("row_shr:3", lambda lane: lane - 3 if lane % 16 >= 3 else None),
        ("row_ror:5", lambda lane: lane // 16 * 16 + (lane - 5) % 16),
        ("quad_perm:[1,0,3,2]", lambda lane: lane ^ 1),
        ("row_mirror", lambda lane: lane // 16 * 16 + 15 - lane % 16),
        ("row_half_mirror", lambda lane: lane // 8 * 8 + 7 - lane % 8),
        ("row_bcast:15", lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None),
        ("row_bcast:31", lambda lane: 31 if lane >= 32 else None),
        ("row_newbcast:6", lambda lane: lane // 16 * 16 + 6),
        ("wave_shr:1", lambda lane: lane - 1 if lane else None),
    ],
)
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("mask", [(1 << 64) - 1, 0xF0F0_FFFF_1234_5678])
@pytest.mark.parametrize("mnemonic", ["v_mov_b32_dpp v2, v1", "v_add_u32_dpp v2, v1, v3"])
def test_dpp(control: str, source, bound: bool, mask: int, mnemonic: str) -> None:  # type: ignore[no-untyped-def]
    body = (
        "\tv_add_u32_e32 v1, 0x64, v0\n\tv_mov_b32_e32 v3, 0\n\tv_mov_b32_e32 v2, 7\n"
        f"\ts_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}\n\ts_mov_b32 exec_hi, {mask >> 32:#x}\n"
        f"\t{mnemonic} {control} row_mask:0xf bank_mask:0xf{' bound_ctrl:1' if bound else ''}\n"
    )
    expected = []
    for lane in range(64):
        from_lane = source(lane)
        valid = from_lane is not None and mask >> from_lane & 1
        write = mask >> lane & 1 and (bound or valid)
        expected.append((from_lane + 100 if valid else 0) if write else 7)
    np.testing.assert_array_equal(lanes(body), expected)


def test_dpp_masks_pick_rows_and_banks() -> None:
    body = (
        "\tv_mov_b32_e32 v1, v0\n\tv_mov_b32_e32 v2, 99\n"
        "\tv_mov_b32_dpp v2, v1 quad_perm:[0,1,2,3] row_mask:0x5 bank_mask:0x2\n"
    )
    expected = [lane if lane // 16 in (0, 2) and lane % 16 // 4 == 1 else 99 for lane in range(64)]
    np.testing.assert_array_equal(lanes(body), expected)


@pytest.mark.parametrize(
    ("select", "shift", "bits"),
    [("BYTE_0", 0, 8), ("BYTE_3", 24, 8), ("WORD_0", 0, 16), ("WORD_1", 16, 16), ("DWORD", 0, 32)],
)
@pytest.mark.parametrize("sign", [False, True])
def test_sdwa_sources(select: str, shift: int, bits: int, sign: bool) -> None:
    body = (
        "\tv_mul_u32_u24_e32 v1, 0x59a3, v0\n\tv_mul_lo_u32 v1, v1, v1\n\tv_mov_b32_e32 v3, 0\n"
        f"\tv_add_u32_sdwa v2, {'sext(v1)' if sign else 'v1'}, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select} src1_sel:DWORD\n"
    )
    value = (np.arange(64, dtype=np.int64) * 0x59A3) ** 2 & 0xFFFFFFFF
    field = value >> shift & ((1 << bits) - 1)
    if sign:
        field = np.where(field >> (bits - 1), field - (1 << bits), field)
    np.testing.assert_array_equal(lanes(body), field.astype(np.uint32))


@pytest.mark.parametrize(
    ("unused", "expected"), [("UNUSED_PAD", 0x00AB0000), ("UNUSED_SEXT", 0xFFAB0000), ("UNUSED_PRESERVE", 0x11AB1111)]
)
def test_sdwa_destination(unused: str, expected: int) -> None:
    body = (
        "\tv_mov_b32_e32 v1, 0xab\n\tv_mov_b32_e32 v3, 0\n\tv_mov_b32_e32 v2, 0x11111111\n"
        f"\tv_add_u32_sdwa v2, v1, v3 dst_sel:BYTE_2 dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD\n"
    )
    np.testing.assert_array_equal(lanes(body), expected)


def test_source_and_result_modifiers() -> None:
    body = (
        "\tv_cvt_f32_u32_e32 v1, v0\n\tv_add_f32_e64 v2, -v1, |v1|\n\tv_add_f32_e64 v3, v1, 1.0 mul:2\n"
        "\tv_add_f32_e64 v4, -v1, 0.5 clamp\n\tv_add_f32_e32 v2, v2, v3\n\tv_add_f32_e32 v2, v2, v4\n"
    )
    x = np.arange(64, dtype=np.float32)
    expected = (x + 1) * 2 + np.clip(0.5 - x, 0, 1)
    np.testing.assert_array_equal(lanes(body, np.float32), expected)


def test_compares_clear_lanes_that_are_off() -> None:
    body = "\ts_mov_b64 exec, 0xff\n\tv_cmp_gt_u32_e32 vcc, 4, v0\n\ts_mov_b64 exec, -1\n\tv_mov_b32_e32 v2, vcc_lo\n"
    np.testing.assert_array_equal(lanes(body), 0xF)


def test_lane_access() -> None:
    body = (
        "\tv_mul_u32_u24_e32 v1, 3, v0\n\tv_readlane_b32 s20, v1, 9\n\ts_mov_b64 exec, 0xf0\n"
        "\tv_readfirstlane_b32 s21, v1\n\ts_mov_b64 exec, -1\n\tv_mov_b32_e32 v2, s20\n\tv_writelane_b32 v2, s21, 5\n"
    )
    np.testing.assert_array_equal(lanes(body), [12 if lane == 5 else 27 for lane in range(64)])


def test_readfirstlane_without_lanes_takes_lane_0() -> None:
    body = "\tv_add_u32_e32 v1, 5, v0\n\ts_mov_b64 exec, 0\n\tv_readfirstlane_b32 s20, v1\n\ts_mov_b64 exec, -1\n\tv_mov_b32_e32 v2, s20\n"
    np.testing.assert_array_equal(lanes(body), 5)


def test_overlapping_wide_result() -> None:
    """v_mad_u64_u32 whose result covers a source: every lane is read before it is written."""
    body = "\tv_add_u32_e32 v2, 1, v0\n\tv_mov_b32_e32 v3, 10\n\tv_mov_b32_e32 v6, 0\n\tv_mov_b32_e32 v7, 0\n\tv_mad_u64_u32 v[2:3], s[20:21], v3, v2, v[6:7]\n"
    np.testing.assert_array_equal(lanes(body), (np.arange(64) + 1) * 10)


def test_mfma_ignores_exec() -> None:
    body = (
        "\tv_mov_b32_e32 v2, 0\n\tv_mov_b32_e32 v10, 1.0\n\ts_mov_b64 exec, 1\n"
        "\tv_mfma_f32_16x16x4_f32 v[4:7], v10, v10, 0\n\ts_mov_b64 exec, -1\n\tv_mov_b32_e32 v2, v5\n"
    )
    np.testing.assert_array_equal(lanes(body, np.float32), 4.0)


def test_entry_state_packs_thread_ids_and_counts_ctas() -> None:
    out = np.zeros(3 * 128, np.uint32)
    body = (
        "\tv_and_b32_e32 v1, 0x3ff, v0\n\ts_lshl_b32 s20, s2, 9\n\tv_lshl_add_u32 v3, v1, 2, s20\n"
        "\tv_lshl_or_b32 v2, s2, 16, v1\n\tglobal_store_dword v3, v2, s[4:5]\n"
    )
    run_body(body, [out], grid=3, block=128)
    np.testing.assert_array_equal(out, np.arange(384) % 128 | np.arange(384) // 128 << 16)


def test_last_wave_of_an_odd_block_is_cut() -> None:
    out = np.zeros(128, np.uint32)
    run_body(
        "\tv_lshlrev_b32_e32 v9, 2, v0\n\tv_mov_b32_e32 v2, 1\n\tglobal_store_dword v9, v2, s[4:5]\n", [out], block=100
    )
    assert out.sum() == 100
