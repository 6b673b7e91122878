"""Integer and bit instructions against exact Python arithmetic, on edge values and at random."""

from collections.abc import Callable

import numpy as np
import pytest
from alu_support import EDGES_I32, pairs, run, run64, words64
from hypothesis import given, settings
from hypothesis import strategies as st

M32 = 0xFFFFFFFF


def s32(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def s24(x: int) -> int:
    x &= 0xFFFFFF
    return x - (1 << 24) if x >> 23 else x


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def clamp_i(x: int) -> int:
    return clamp(x, -(1 << 31), (1 << 31) - 1)


BINARY: dict[str, Callable[[int, int], int]] = {
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: s32(b) >> (a & 31),
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: (a * b) >> 32,
    "v_mul_hi_i32": lambda a, b: (s32(a) * s32(b)) >> 32,
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mul_hi_i32_i24": lambda a, b: (s24(a) * s24(b)) >> 32,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_hi_u32_u24": lambda a, b: ((a & 0xFFFFFF) * (b & 0xFFFFFF)) >> 32,
    "v_min_i32": lambda a, b: min(s32(a), s32(b)),
    "v_max_i32": lambda a, b: max(s32(a), s32(b)),
    "v_min_u32": min,
    "v_max_u32": max,
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
}


def bfe_i(x: int, offset: int, width: int) -> int:
    offset, width = offset & 31, width & 31
    if width == 0:
        return 0
    field = (s32(x) >> offset) & ((1 << width) - 1)
    return field - (1 << width) if field >> (width - 1) & 1 else field


def perm(a: int, b: int, selector: int) -> int:
    data = [(a << 32 | b) >> 8 * i & 0xFF for i in range(8)]
    signs = {8: 1, 9: 3, 10: 5, 11: 7}
    result = 0
    for i in range(4):
        sel = selector >> 8 * i & 0xFF
        byte = (
            data[sel]
            if sel < 8
            else (0xFF if data[signs[sel]] & 0x80 else 0)
            if sel in signs
            else 0
            if sel == 12
            else 0xFF
        )
        result |= byte << 8 * i
    return result


def sad(a: int, b: int, width: int, masked: bool = False) -> int:
    lanes = [((a >> i) & ((1 << width) - 1), (b >> i) & ((1 << width) - 1)) for i in range(0, 32, width)]
    return sum(abs(x - y) for x, y in lanes if y or not masked)


TERNARY: dict[str, Callable[[int, int, int], int]] = {
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & M32) << (c & 31),
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_lshl_or_b32": lambda a, b, c: (a << (b & 31)) | c,
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_bfe_u32": lambda a, b, c: (a >> (b & 31)) & ((1 << (c & 31)) - 1),
    "v_bfe_i32": bfe_i,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32": perm,
    "v_min3_i32": lambda a, b, c: min(s32(a), s32(b), s32(c)),
    "v_max3_i32": lambda a, b, c: max(s32(a), s32(b), s32(c)),
    "v_med3_i32": lambda a, b, c: sorted([s32(a), s32(b), s32(c)])[1],
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": lambda a, b, c: sorted([a, b, c])[1],
    "v_sad_u8": lambda a, b, c: sad(a, b, 8) + c,
    "v_sad_hi_u8": lambda a, b, c: (sad(a, b, 8) << 16) + c,
    "v_sad_u16": lambda a, b, c: sad(a, b, 16) + c,
    "v_sad_u32": lambda a, b, c: sad(a, b, 32) + c,
    "v_msad_u8": lambda a, b, c: sad(a, b, 8, masked=True) + c,
    "v_lerp_u8": lambda a, b, c: sum(
        ((((a >> i) & 255) + ((b >> i) & 255) + ((c >> i) & 1)) >> 1) << i for i in range(0, 32, 8)
    ),
    "v_ashr_pk_i8_i32": lambda a, b, c: (
        (clamp(s32(a) >> (c & 31), -128, 127) & 255) | (clamp(s32(b) >> (c & 31), -128, 127) & 255) << 8
    ),
    "v_ashr_pk_u8_i32": lambda a, b, c: clamp(s32(a) >> (c & 31), 0, 255) | clamp(s32(b) >> (c & 31), 0, 255) << 8,
}

UNARY: dict[str, Callable[[int], int]] = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1,
    "v_ffbh_i32": lambda a: 32 - b.bit_length() if (b := a ^ (M32 if a >> 31 else 0)) else -1,
    "v_prng_b32": lambda a: (a << 1) ^ (197 if a >> 31 else 0),
}

CLAMPED: dict[str, Callable[..., int]] = {
    "v_add_u32": lambda a, b: clamp(a + b, 0, M32),
    "v_sub_u32": lambda a, b: clamp(a - b, 0, M32),
    "v_subrev_u32": lambda a, b: clamp(b - a, 0, M32),
    "v_add_i32": lambda a, b: clamp_i(s32(a) + s32(b)),
    "v_sub_i32": lambda a, b: clamp_i(s32(a) - s32(b)),
    "v_mul_i32_i24": lambda a, b: clamp_i(s24(a) * s24(b)),
    "v_mul_u32_u24": lambda a, b: clamp((a & 0xFFFFFF) * (b & 0xFFFFFF), 0, M32),
    "v_mad_u32_u24": lambda a, b, c: clamp((a & 0xFFFFFF) * (b & 0xFFFFFF) + c, 0, M32),
    "v_mad_i32_i24": lambda a, b, c: clamp_i(s24(a) * s24(b) + s32(c)),
}


def check(mnemonic: str, expected: Callable[..., int], sources: list[np.ndarray], **modifiers: object) -> None:
    actual = run(mnemonic, *sources, **modifiers)
    want = [expected(*(int(x) for x in operands)) & M32 for operands in zip(*sources, strict=True)]
    bad = np.flatnonzero(actual != np.array(want, np.uint32))
    assert bad.size == 0, (
        mnemonic,
        [hex(int(s[bad[0]])) for s in sources],
        hex(int(actual[bad[0]])),
        hex(want[bad[0]]),
    )


@pytest.mark.parametrize("mnemonic", sorted(UNARY | BINARY | TERNARY))
def test_edges(mnemonic: str) -> None:
    if mnemonic in UNARY:
        check(mnemonic, UNARY[mnemonic], [EDGES_I32])
    elif mnemonic in BINARY:
        check(mnemonic, BINARY[mnemonic], pairs(EDGES_I32))
    else:
        check(mnemonic, TERNARY[mnemonic], pairs(EDGES_I32[::2], 3))


@pytest.mark.parametrize("mnemonic", sorted(CLAMPED))
def test_clamped_edges(mnemonic: str) -> None:
    arity = CLAMPED[mnemonic].__code__.co_argcount
    check(mnemonic, CLAMPED[mnemonic], pairs(EDGES_I32[:: arity - 1], arity), clamp=True)


word = st.integers(0, M32)


def test_byte_selectors_of_one_kind() -> None:
    """Waves with none but the usual selectors (0 to 7) take a path of their own."""
    rng = np.random.default_rng(1)
    sources = [rng.integers(0, 1 << 32, 256, dtype=np.uint32) for _ in range(2)]
    selector = rng.integers(0, 1 << 32, 256, dtype=np.uint32) & np.uint32(0x07070707)
    check("v_perm_b32", perm, [*sources, selector])


@given(st.lists(st.tuples(word, word, word), min_size=64, max_size=64))
@settings(max_examples=20, deadline=None)
def test_random(operands: list[tuple[int, int, int]]) -> None:
    columns = [np.array(c, np.uint32) for c in zip(*operands, strict=True)]
    for table, count in ((UNARY, 1), (BINARY, 2), (TERNARY, 3)):
        for mnemonic, expected in table.items():
            check(mnemonic, expected, columns[:count])


@given(st.integers(0, 255), word, word, word)
@settings(max_examples=60, deadline=None)
def test_bitop3(table: int, a: int, b: int, c: int) -> None:
    want = sum(1 << i for i in range(32) if table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1)
    operands = [np.array([x], np.uint32) for x in (a, b, c)]
    assert int(run("v_bitop3_b32", *operands, bitop3=table)[0]) == want
    for op_sel in range(16):
        picked = run("v_bitop3_b16", *operands, bitop3=table, op_sel=op_sel, old=np.array([0x12345678], np.uint32))[0]
        x, y, z = ((v >> 16 * (op_sel >> n & 1)) & 0xFFFF for n, v in enumerate((a, b, c)))
        half = sum(1 << i for i in range(16) if table >> (4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1)) & 1)
        assert int(picked) == (half << 16 | 0x5678 if op_sel & 8 else 0x12340000 | half)


def test_bitop3_tables_of_the_sources_themselves() -> None:
    operands = [np.array([x], np.uint32) for x in (0x13572468, 0xDEADBEEF, 0x0F0F3C3C)]
    for table, source in ((0xF0, 0), (0xCC, 1), (0xAA, 2)):
        assert run("v_bitop3_b32", *operands, bitop3=table)[0] == operands[source][0]


@pytest.mark.parametrize("clamped", [False, True])
@pytest.mark.parametrize(
    "mnemonic",
    ["v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"],
)
def test_carry(mnemonic: str, clamped: bool) -> None:
    a, b = pairs(EDGES_I32)
    carry = np.arange(a.size) % 3 == 0
    takes_carry = mnemonic in ("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
    out, flags = run64(mnemonic, a, b, mask=carry if takes_carry else None, clamp=clamped)
    for i in range(a.size):
        x, y, c = int(a[i]), int(b[i]), int(carry[i]) if takes_carry else 0
        exact = x + y + c if "add" in mnemonic else y - x - c if "rev" in mnemonic else x - y - c
        assert bool(flags[i]) == (not 0 <= exact <= M32)
        assert int(out[0, i]) == (clamp(exact, 0, M32) if clamped else exact & M32)


@given(st.lists(st.tuples(word, word, st.integers(0, (1 << 64) - 1)), min_size=64, max_size=64))
@settings(max_examples=20, deadline=None)
def test_wide(operands: list[tuple[int, int, int]]) -> None:
    a, b = (np.array([o[n] for o in operands], np.uint32) for n in (0, 1))
    c = np.array([o[2] for o in operands], np.uint64)
    m64 = (1 << 64) - 1

    def joined(result: np.ndarray) -> list[int]:
        return [int(lo) | int(hi) << 32 for lo, hi in zip(*result, strict=True)]

    unsigned, over = run64("v_mad_u64_u32", a, b, words64(c))
    signed, over_signed = run64("v_mad_i64_i32", a, b, words64(c))
    shifted = {m: joined(run(m, a, words64(c))) for m in ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")}
    added = joined(run("v_lshl_add_u64", words64(c), a & 7, words64(c[::-1].copy())))
    for i, (x, y, z) in enumerate(operands):
        s64 = z - (1 << 64) if z >> 63 else z
        assert joined(unsigned)[i] == (x * y + z) & m64
        assert bool(over[i]) == (x * y + z > m64)
        exact = s32(x) * s32(y) + s64
        assert joined(signed)[i] == exact & m64
        assert bool(over_signed[i]) == (not -(1 << 63) <= exact < 1 << 63)
        assert shifted["v_lshlrev_b64"][i] == (z << (x & 63)) & m64
        assert shifted["v_lshrrev_b64"][i] == z >> (x & 63)
        assert shifted["v_ashrrev_i64"][i] == (s64 >> (x & 63)) & m64
        assert added[i] == ((z << (x & 7)) + operands[-1 - i][2]) & m64


def test_sliding_sums_of_absolute_differences() -> None:
    window, reference, start = 0x1122334455667788, 0x00FF3055, 0xFFF0000100020003
    for mnemonic, masked in (("v_qsad_pk_u16_u8", False), ("v_mqsad_pk_u16_u8", True)):
        lo, hi = run(
            mnemonic,
            words64(np.array([window], np.uint64)),
            np.array([reference], np.uint32),
            words64(np.array([start], np.uint64)),
        )
        want = 0
        for j in range(4):
            total = (start >> 16 * j & 0xFFFF) + sad(window >> 8 * j & M32, reference, 8, masked)
            want |= min(total, 0xFFFF) << 16 * j
        assert int(lo[0]) | int(hi[0]) << 32 == want
