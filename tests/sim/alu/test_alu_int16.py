"""16-bit integer instructions: values, saturation, halves picked by op_sel, the rest of the destination."""

from collections.abc import Callable

import numpy as np
import pytest
from alu_support import pairs, run

EDGES = np.array([0, 1, 2, 15, 16, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF], np.uint32)


def s16(x: int) -> int:
    return x - (1 << 16) if x >> 15 else x


def clamp_u(x: int) -> int:
    return max(0, min(0xFFFF, x))


def clamp_s(x: int) -> int:
    return max(-(1 << 15), min((1 << 15) - 1, x))


# mnemonic: (wrapping, saturating); the last group keeps the destination's other half.
CLASSIC: dict[str, tuple[Callable[..., int], Callable[..., int] | None]] = {
    "v_add_u16": (lambda a, b: a + b, lambda a, b: clamp_u(a + b)),
    "v_sub_u16": (lambda a, b: a - b, lambda a, b: clamp_u(a - b)),
    "v_subrev_u16": (lambda a, b: b - a, lambda a, b: clamp_u(b - a)),
    "v_add_i16": (lambda a, b: a + b, lambda a, b: clamp_s(s16(a) + s16(b))),
    "v_sub_i16": (lambda a, b: a - b, lambda a, b: clamp_s(s16(a) - s16(b))),
    "v_mul_lo_u16": (lambda a, b: a * b, None),
    "v_lshlrev_b16": (lambda a, b: b << (a & 15), None),
    "v_lshrrev_b16": (lambda a, b: b >> (a & 15), None),
    "v_ashrrev_i16": (lambda a, b: s16(b) >> (a & 15), None),
    "v_min_u16": (min, None),
    "v_max_u16": (max, None),
    "v_min_i16": (lambda a, b: min(s16(a), s16(b)), None),
    "v_max_i16": (lambda a, b: max(s16(a), s16(b)), None),
}
KEEPING: dict[str, tuple[Callable[..., int], Callable[..., int] | None]] = {
    "v_min3_u16": (min, None),
    "v_max3_u16": (max, None),
    "v_med3_u16": (lambda a, b, c: sorted([a, b, c])[1], None),
    "v_min3_i16": (lambda a, b, c: min(s16(a), s16(b), s16(c)), None),
    "v_max3_i16": (lambda a, b, c: max(s16(a), s16(b), s16(c)), None),
    "v_med3_i16": (lambda a, b, c: sorted([s16(a), s16(b), s16(c)])[1], None),
    "v_mad_u16": (lambda a, b, c: a * b + c, lambda a, b, c: clamp_u(a * b + c)),
    "v_mad_i16": (lambda a, b, c: s16(a) * s16(b) + s16(c), lambda a, b, c: clamp_s(s16(a) * s16(b) + s16(c))),
}


def expected(function: Callable[..., int], sources: list[np.ndarray]) -> np.ndarray:
    return np.array([function(*map(int, o)) & 0xFFFF for o in zip(*sources, strict=True)], np.uint32)


@pytest.mark.parametrize("mnemonic", sorted(CLASSIC | KEEPING))
def test_values_and_halves(mnemonic: str) -> None:
    arity = 3 if mnemonic in KEEPING else 2
    wrapping, saturating = (CLASSIC | KEEPING)[mnemonic]
    sources = pairs(EDGES, arity)
    old = np.full(sources[0].size, 0xABCD1234, np.uint32)
    for function, clamp in ((wrapping, False), (saturating, True)):
        if function is None:
            continue
        want = expected(function, sources)
        low = run(mnemonic, *sources, old=old, clamp=clamp)
        np.testing.assert_array_equal(low, want | (0xABCD0000 if mnemonic in KEEPING else 0))
        high = run(mnemonic, *(s << 16 for s in sources), old=old, clamp=clamp, op_sel=0b1111 if arity == 3 else 0b1011)
        np.testing.assert_array_equal(high, want << 16 | 0x1234)


def test_wide_multiply_add() -> None:
    a, b, c = pairs(EDGES, 3)
    addend = c << 16 | 0xFFF0
    unsigned = run("v_mad_u32_u16", a, b, addend)
    signed = run("v_mad_i32_i16", a, b << 16, addend, op_sel=0b010)
    saturated = run("v_mad_i32_i16", a, b, addend, clamp=True)
    for i in range(a.size):
        x, y, z = int(a[i]), int(b[i]), int(addend[i])
        z_signed = z - (1 << 32) if z >> 31 else z
        exact = s16(x) * s16(y) + z_signed
        assert int(unsigned[i]) == (x * y + z) & 0xFFFFFFFF
        assert int(signed[i]) == exact & 0xFFFFFFFF
        assert int(saturated[i]) == max(-(1 << 31), min((1 << 31) - 1, exact)) & 0xFFFFFFFF


def test_pack() -> None:
    a, b = np.array([0xAAAA1111], np.uint32), np.array([0xBBBB2222], np.uint32)
    for op_sel, want in ((0, 0x22221111), (1, 0x2222AAAA), (2, 0xBBBB1111), (3, 0xBBBBAAAA)):
        assert run("v_pack_b32_f16", a, b, op_sel=op_sel)[0] == want
