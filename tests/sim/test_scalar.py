"""Scalar instructions against exact integer arithmetic."""

# ruff: noqa: E501  (assembly lines stay whole)

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_asm import scalar_results

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1
words = st.one_of(st.sampled_from([0, 1, 2, 0x7FFFFFFF, 0x80000000, M32, 0xFFFF, 0x8000]), st.integers(0, M32))
doubles = st.one_of(st.sampled_from([0, 1, M64, 1 << 63, (1 << 63) - 1, 1 << 32]), st.integers(0, M64))


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def overflows(value: int) -> bool:
    return not -(1 << 31) <= value < 1 << 31


def binary(mnemonic: str, a: int, b: int, setup: str = "") -> list[int]:
    return scalar_results(f"\ts_mov_b32 s10, {a:#x}\n\ts_mov_b32 s11, {b:#x}\n{setup}\t{mnemonic} s20, s10, s11")


CASES_32 = {
    "s_add_u32": lambda a, b: ((a + b) & M32, a + b > M32),
    "s_sub_u32": lambda a, b: ((a - b) & M32, b > a),
    "s_add_i32": lambda a, b: ((a + b) & M32, overflows(signed(a) + signed(b))),
    "s_sub_i32": lambda a, b: ((a - b) & M32, overflows(signed(a) - signed(b))),
    "s_min_i32": lambda a, b: (min(signed(a), signed(b)) & M32, signed(a) < signed(b)),
    "s_max_u32": lambda a, b: (max(a, b), a > b),
    "s_and_b32": lambda a, b: (a & b, (a & b) != 0),
    "s_andn2_b32": lambda a, b: (a & ~b & M32, (a & ~b & M32) != 0),
    "s_xnor_b32": lambda a, b: (~(a ^ b) & M32, (~(a ^ b) & M32) != 0),
    "s_lshl_b32": lambda a, b: (a << (b & 31) & M32, (a << (b & 31) & M32) != 0),
    "s_lshr_b32": lambda a, b: (a >> (b & 31), a >> (b & 31) != 0),
    "s_ashr_i32": lambda a, b: (signed(a) >> (b & 31) & M32, signed(a) >> (b & 31) & M32 != 0),
    "s_absdiff_i32": lambda a, b: (
        abs(signed(signed(a) - signed(b))) & M32,
        abs(signed(signed(a) - signed(b))) & M32 != 0,
    ),
    "s_lshl2_add_u32": lambda a, b: (((a << 2) + b) & M32, (a << 2) + b > M32),
}
KEEPS_SCC = {
    "s_mul_i32": lambda a, b: a * b & M32,
    "s_mul_hi_u32": lambda a, b: a * b >> 32,
    "s_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32 & M32,
    "s_pack_ll_b32_b16": lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16,
    "s_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31) & M32,
}


@pytest.mark.parametrize("mnemonic", CASES_32)
@settings(max_examples=20, deadline=None)
@given(a=words, b=words)
def test_sop2_and_scc(mnemonic: str, a: int, b: int) -> None:
    value, scc = CASES_32[mnemonic](a, b)
    assert binary(mnemonic, a, b) == [value, int(scc)]


@pytest.mark.parametrize("mnemonic", KEEPS_SCC)
@pytest.mark.parametrize("scc", [0, 1])
@settings(max_examples=10, deadline=None)
@given(a=words, b=words)
def test_sop2_that_keep_scc(mnemonic: str, scc: int, a: int, b: int) -> None:
    got = binary(mnemonic, a, b, setup=f"\ts_cmp_eq_u32 s10, s10\n\ts_cmp_{'eq' if scc else 'lg'}_u32 s10, s10\n")
    assert got == [KEEPS_SCC[mnemonic](a, b), scc]


@settings(max_examples=30, deadline=None)
@given(a=doubles, b=doubles)
def test_carry_chain_adds_64_bits(a: int, b: int) -> None:
    body = "".join(f"\ts_mov_b32 s{10 + i}, {v:#x}\n" for i, v in enumerate([a & M32, a >> 32, b & M32, b >> 32]))
    low, high, carry = scalar_results(body + "\ts_add_u32 s20, s10, s12\n\ts_addc_u32 s21, s11, s13", 2)
    assert low | high << 32 | carry << 64 == a + b
    low, high, borrow = scalar_results(body + "\ts_sub_u32 s20, s10, s12\n\ts_subb_u32 s21, s11, s13", 2)
    assert (low | high << 32, borrow) == ((a - b) & M64, int(b > a))


@settings(max_examples=30, deadline=None)
@given(a=words, offset=st.integers(0, 31), width=st.integers(0, 33))
def test_bit_fields(a: int, offset: int, width: int) -> None:
    spec = offset | width << 16
    field = a >> offset & ((1 << width) - 1)
    assert binary("s_bfe_u32", a, spec)[0] == field
    if width == 0:
        expected = 0
    elif offset + width >= 32:
        expected = signed(a) >> offset
    else:
        expected = signed(field, width)
    assert binary("s_bfe_i32", a, spec)[0] == expected & M32


@settings(max_examples=30, deadline=None)
@given(a=doubles)
def test_64_bit_searches_and_counts(a: int) -> None:
    setup = f"\ts_mov_b32 s10, {a & M32:#x}\n\ts_mov_b32 s11, {a >> 32:#x}\n"
    body = setup + "\ts_ff1_i32_b64 s20, s[10:11]\n\ts_flbit_i32_b64 s21, s[10:11]\n\ts_bcnt1_i32_b64 s22, s[10:11]"
    first, leading, count, scc = scalar_results(body, 3)
    assert signed(first) == (a & -a).bit_length() - 1
    assert signed(leading) == (64 - a.bit_length() if a else -1)
    assert (count, scc) == (a.bit_count(), int(a != 0))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("\ts_mov_b64 s[20:21], -1", M64),
        ("\ts_mov_b64 s[20:21], 0xffffffff", M32),  # hex literals zero-extend
        ("\ts_mov_b64 s[20:21], 1.0", 0x3FF0000000000000),
        ("\ts_mov_b64 s[10:11], 5\n\ts_lshl_b64 s[20:21], s[10:11], 36", 5 << 36),
        ("\ts_mov_b64 s[10:11], -8\n\ts_ashr_i64 s[20:21], s[10:11], 1", -4 & M64),
        ("\ts_movk_i32 s20, 0x8000\n\ts_mov_b32 s21, 0", 0xFFFF8000),
        ("\ts_mov_b32 s20, 7\n\ts_mulk_i32 s20, 0xfffe\n\ts_mov_b32 s21, 0", -14 & M32),
        ("\ts_mov_b32 s20, 1.0\n\ts_mov_b32 s21, 0", 0x3F800000),
        ("\ts_brev_b32 s20, 1\n\ts_mov_b32 s21, 0", 1 << 31),
    ],
)
def test_constants_and_immediates(body: str, expected: int) -> None:
    low, high, _ = scalar_results(body, 2)
    assert low | high << 32 == expected


def test_saveexec_writes_old_mask_and_scc() -> None:
    body = (
        "\ts_mov_b64 s[10:11], 0xf0\n\ts_and_saveexec_b64 s[12:13], s[10:11]\n"
        "\ts_cselect_b32 s22, 1, 0\n\ts_mov_b64 s[20:21], exec\n\ts_mov_b64 exec, s[12:13]"
    )
    low, high, scc, _ = scalar_results(body, 3)
    assert (low, high, scc) == (0xF0, 0, 1)


@pytest.mark.parametrize(("op", "value", "immediate", "taken"), [("s_cmpk_lt_i32", 5, "6", 1), ("s_cmpk_gt_u32", 0xFFFF, "0xfffe", 1),
                                                                 ("s_cmpk_eq_i32", M32, "0xffff", 1), ("s_cmpk_eq_u32", M32, "0xffff", 0)])  # fmt: skip
def test_compare_with_immediate(op: str, value: int, immediate: str, taken: int) -> None:
    assert scalar_results(f"\ts_mov_b32 s20, {value:#x}\n\t{op} s20, {immediate}")[-1] == taken


def test_branches() -> None:
    body = "\ts_mov_b32 s20, 0\n.LBB0_1:\n\ts_add_i32 s20, s20, 3\n\ts_cmp_lt_i32 s20, 30\n\ts_cbranch_scc1 .LBB0_1"
    assert scalar_results(body) == [30, 0]
