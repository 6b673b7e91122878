"""Loads, stores, atomics and LDS against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_asm import run_body

LANE = "\tv_lshlrev_b32_e32 v9, 2, v0\n"
RESOURCE = "\ts_mov_b64 s[12:13], s[4:5]\n\ts_mov_b32 s14, {records}\n\ts_mov_b32 s15, 0x27000\n"


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [("ubyte", np.uint8), ("sbyte", np.int8), ("ushort", np.uint16), ("sshort", np.int16), ("dword", np.uint32)],
)
@pytest.mark.parametrize("form", ["global", "buffer", "flat"])
def test_narrow_loads_extend(form: str, suffix: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    data = rng().integers(0, 256, 64 * size, dtype=np.uint8).view(dtype)
    out = np.zeros(64, np.uint32)
    address = f"\tv_mul_u32_u24_e32 v1, {size}, v0\n"
    if form == "global":
        load = f"\tglobal_load_{suffix} v2, v1, s[4:5]\n"
    elif form == "buffer":
        load = RESOURCE.format(records=-1) + f"\tbuffer_load_{suffix} v2, v1, s[12:15], 0 offen\n"
    else:
        load = (
            "\tv_mov_b32_e32 v5, s5\n\tv_add_co_u32_e32 v4, vcc, s4, v1\n\tv_addc_co_u32_e32 v5, vcc, 0, v5, vcc\n"
            f"\tflat_load_{suffix} v2, v[4:5]\n"
        )
    run_body(address + load + LANE + "\tglobal_store_dword v9, v2, s[6:7]\n", [data, out])
    np.testing.assert_array_equal(out, data.astype(np.int64).astype(np.uint32))


@pytest.mark.parametrize(("count", "suffix"), [(1, "dword"), (2, "dwordx2"), (3, "dwordx3"), (4, "dwordx4")])
@pytest.mark.parametrize("partial", [False, True])
def test_wide_moves_keep_order_and_lanes(count: int, suffix: str, partial: bool) -> None:
    data = rng().integers(0, 1 << 32, 64 * count, dtype=np.uint32)
    out = np.full(64 * count, 7, np.uint32)
    mask = "\ts_mov_b32 exec_lo, 0x0ff0f00f\n\ts_mov_b32 exec_hi, 0x80000001\n" if partial else ""
    registers = "v2" if count == 1 else f"v[2:{1 + count}]"
    body = (
        f"\tv_mul_u32_u24_e32 v1, {4 * count}, v0\n{mask}\tglobal_load_{suffix} {registers}, v1, s[4:5]\n"
        f"\tglobal_store_{suffix} v1, {registers}, s[6:7]\n"
    )
    run_body(body, [data, out])
    bits = 0x800000010FF0F00F if partial else (1 << 64) - 1
    lanes = np.array([bits >> lane & 1 for lane in range(64)], dtype=bool)
    np.testing.assert_array_equal(out, np.where(np.repeat(lanes, count), data, 7))


def test_d16_loads_keep_the_other_half() -> None:
    data = rng().integers(0, 1 << 16, 64, dtype=np.uint16)
    out = np.zeros(64, np.uint32)
    body = (
        "\tv_lshlrev_b32_e32 v1, 1, v0\n\tv_mov_b32_e32 v2, 0x12345678\n"
        "\tglobal_load_short_d16_hi v2, v1, s[4:5]\n" + LANE + "\tglobal_store_dword v9, v2, s[6:7]\n"
    )
    run_body(body, [data, out])
    np.testing.assert_array_equal(out, data.astype(np.uint32) << 16 | 0x5678)


@settings(max_examples=25, deadline=None)
@given(records=st.integers(0, 1100), width=st.sampled_from([1, 2, 4]), soffset=st.integers(0, 64))
def test_buffer_loads_outside_num_records_give_zero(records: int, width: int, soffset: int) -> None:
    soffset *= 4
    data = np.arange(1, 1 + 64 * width + 64, dtype=np.uint32)
    out = np.full(64 * width, 9, np.uint32)
    suffix = {1: "dword", 2: "dwordx2", 4: "dwordx4"}[width]
    registers = "v2" if width == 1 else f"v[2:{1 + width}]"
    body = (
        RESOURCE.format(records=hex(records))
        + f"\ts_mov_b32 s20, {soffset}\n\tv_mul_u32_u24_e32 v1, {4 * width}, v0\n"
        + f"\tbuffer_load_{suffix} {registers}, v1, s[12:15], s20 offen\n"
        + f"\tglobal_store_{suffix} v1, {registers}, s[6:7]\n"
    )
    run_body(body, [data, out])
    offsets = np.arange(64 * width) * 4
    inside = offsets + 4 <= records - soffset  # each dword on its own
    expected = np.where(inside, data[(offsets + soffset) // 4], 0)
    np.testing.assert_array_equal(out, expected)


def test_buffer_stores_outside_num_records_are_dropped() -> None:
    out = np.full(64, 9, np.uint32)
    body = RESOURCE.format(records=100) + LANE + "\tbuffer_store_dword v0, v9, s[12:15], 0 offen\n"
    run_body(body, [out])
    np.testing.assert_array_equal(out, np.where(np.arange(64) * 4 + 4 <= 100, np.arange(64), 9))


def test_buffer_offset_wraps_at_32_bits() -> None:
    data = np.arange(128, dtype=np.uint32)
    out = np.zeros(64, np.uint32)
    body = (
        RESOURCE.format(records=-1)
        + LANE
        + "\tv_add_u32_e32 v1, -16, v9\n\tbuffer_load_dword v2, v1, s[12:15], 0 offen offset:16\n"
        + "\tglobal_store_dword v9, v2, s[6:7]\n"
    )
    run_body(body, [data, out])
    np.testing.assert_array_equal(out, data[:64])


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("add", lambda a, b: a + b),
        ("umax", np.maximum),
        ("and", np.bitwise_and),
        ("or", np.bitwise_or),
        ("xor", np.bitwise_xor),
        ("sub", lambda a, b: a - b),
        ("swap", lambda a, b: b),
    ],
)
def test_global_atomics_return_the_old_value(operation: str, function) -> None:  # type: ignore[no-untyped-def]
    memory = rng().integers(0, 1 << 32, 64, dtype=np.uint32)
    before = memory.copy()
    out = np.zeros(64, np.uint32)
    body = (
        LANE + "\tv_mul_u32_u24_e32 v1, 0x1235, v0\n"
        f"\tglobal_atomic_{operation} v2, v9, v1, s[4:5] sc0\n\tglobal_store_dword v9, v2, s[6:7]\n"
    )
    run_body(body, [memory, out])
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(memory, function(before, np.arange(64, dtype=np.uint32) * 0x1235))


def test_compare_and_swap_and_float_add() -> None:
    memory = np.array([5, 9], np.uint32)
    sums = np.zeros(1, np.float32)
    body = (
        "\tv_mov_b32_e32 v3, 0\n\tv_mov_b32_e32 v4, 77\n\tv_mov_b32_e32 v5, 5\n\tv_mov_b32_e32 v6, 1.0\n"
        "\tglobal_atomic_add_f32 v3, v6, s[6:7]\n\ts_mov_b64 exec, 1\n"
        "\tglobal_atomic_cmpswap v3, v[4:5], s[4:5]\n\tglobal_atomic_cmpswap v3, v[4:5], s[4:5] offset:4\n"
    )
    run_body(body, [memory, sums])
    assert list(memory) == [77, 9]  # the second one compares 9 with 5
    assert sums[0] == 64


def test_lds_transpose_reads_and_pairs() -> None:
    data = rng().integers(0, 1 << 32, 256, dtype=np.uint32)
    out = np.zeros(256, np.uint32)
    body = (
        "\tv_lshlrev_b32_e32 v1, 4, v0\n\tglobal_load_dwordx4 v[2:5], v1, s[4:5]\n\tds_write_b128 v1, v[2:5]\n"
        + LANE
        + "\tds_read2st64_b32 v[10:11], v9 offset1:1\n\tds_read2_b32 v[12:13], v9 offset0:128 offset1:192\n"
        "\tglobal_store_dword v9, v10, s[6:7]\n\tglobal_store_dword v9, v11, s[6:7] offset:256\n"
        "\tglobal_store_dword v9, v12, s[6:7] offset:512\n\tglobal_store_dword v9, v13, s[6:7] offset:768\n"
    )
    run_body(body, [data, out], lds=1024)
    np.testing.assert_array_equal(out, data)


@settings(max_examples=10, deadline=None)
@given(perm=st.lists(st.integers(0, 63), min_size=64, max_size=64), mask=st.integers(1, (1 << 64) - 1))
def test_bpermute_pulls_from_active_lanes(perm: list[int], mask: int) -> None:
    index = np.array(perm, np.uint32) * 4
    out = np.full(64, 999, np.uint32)
    body = (
        LANE + "\tglobal_load_dword v1, v9, s[4:5]\n\tv_add_u32_e32 v2, 0x64, v0\n"
        f"\ts_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}\n\ts_mov_b32 exec_hi, {mask >> 32:#x}\n"
        "\tds_bpermute_b32 v3, v1, v2\n\tglobal_store_dword v9, v3, s[6:7]\n"
    )
    run_body(body, [index, out])
    on = np.array([mask >> lane & 1 for lane in range(64)], bool)
    source = np.array(perm)
    np.testing.assert_array_equal(out, np.where(on, np.where(on[source], source + 100, 0), 999))


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_transposed_lds_reads(bits: int) -> None:
    """16 lanes hold a matrix of 64 / bits rows by 16 columns, row by row; lane i gets column i."""
    elements = 64 // bits
    rows = rng().integers(0, 1 << bits, (4, elements, 16), dtype=np.uint32)
    packed = np.zeros((4, 16), np.uint64)
    flat = rows.reshape(4, 16, elements)  # row-major: the fetch of lane l is elements l * n .. of the block
    for e in range(elements):
        packed |= flat[:, :, e].astype(np.uint64) << np.uint64(bits * e)
    out = np.zeros(64, np.uint64)
    body = (
        "\tv_lshlrev_b32_e32 v1, 3, v0\n\tglobal_load_dwordx2 v[2:3], v1, s[4:5]\n\tds_write_b64 v1, v[2:3]\n"
        f"\tds_read_b64_tr_b{bits} v[4:5], v1\n\tglobal_store_dwordx2 v1, v[4:5], s[6:7]\n"
    )
    run_body(body, [packed.reshape(-1), out], lds=512)
    got = np.stack([out >> np.uint64(bits * e) & np.uint64((1 << bits) - 1) for e in range(elements)])
    np.testing.assert_array_equal(got.reshape(elements, 4, 16), rows.transpose(1, 0, 2))


def test_lds_atomics_and_swizzle() -> None:
    out = np.zeros(64, np.uint32)
    body = (
        "\tv_mov_b32_e32 v1, 0\n\tv_mov_b32_e32 v2, 3\n\tds_write_b32 v1, v1\n\tds_add_rtn_u32 v3, v1, v2\n"
        "\tds_swizzle_b32 v4, v3 offset:swizzle(SWAP,16)\n" + LANE + "\tglobal_store_dword v9, v4, s[4:5]\n"
    )
    run_body(body, [out], lds=64)
    np.testing.assert_array_equal(out, 3 * (np.arange(64) ^ 16))


def test_buffer_load_to_lds() -> None:
    data = rng().integers(0, 1 << 32, 256, dtype=np.uint32)
    out = np.zeros(256, np.uint32)
    body = (
        RESOURCE.format(records=-1) + "\tv_lshlrev_b32_e32 v1, 4, v0\n\ts_mov_b32 m0, 64\n"
        "\tbuffer_load_dwordx4 v1, s[12:15], 0 offen lds\n\ts_waitcnt vmcnt(0)\n"
        "\tds_read_b128 v[4:7], v1 offset:64\n\tglobal_store_dwordx4 v1, v[4:7], s[6:7]\n"
    )
    run_body(body, [data, out], lds=2048)
    np.testing.assert_array_equal(out, data)


def test_scratch_is_private_to_the_lane() -> None:
    out = np.zeros(64, np.uint32)
    body = (
        "\tv_mul_u32_u24_e32 v1, 7, v0\n\tscratch_store_dword off, v1, off offset:4\n\tv_mov_b32_e32 v1, 0\n"
        "\tscratch_load_dword v2, off, off offset:4\n" + LANE + "\tglobal_store_dword v9, v2, s[4:5]\n"
    )
    run_body(body, [out], scratch=16)
    np.testing.assert_array_equal(out, np.arange(64) * 7)


def test_agprs_live_behind_the_vgprs() -> None:
    out = np.zeros(64, np.uint32)
    body = (
        "\tv_accvgpr_write_b32 a3, v0\n\tv_accvgpr_read_b32 v2, a3\n" + LANE + "\tglobal_store_dword v9, v2, s[4:5]\n"
    )
    run_body(body, [out], agprs=4)
    np.testing.assert_array_equal(out, np.arange(64))
