"""Formats against their definitions, one number at a time."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monoc.reference.formats import (
    E2M1,
    Mx,
    code_scale,
    decode_e4m3,
    decode_records,
    encode_records,
    quantise_mx,
    smallest_power,
)
from monoc.reference.layouts import (
    cache_rows,
    deinterleave,
    interleave,
    shuffle16,
    shuffle_scale,
    store_records,
    unshuffle16,
    unshuffle_scale,
)


def test_e4m3_by_its_fields() -> None:
    for byte in range(256):
        exponent, mantissa, sign = byte >> 3 & 15, byte & 7, -1 if byte & 128 else 1
        if byte & 127 == 127:
            assert decode_e4m3(torch.tensor(byte)).isnan()
            continue
        value = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
        assert decode_e4m3(torch.tensor(byte)).item() == sign * value


def test_e2m1_by_its_fields() -> None:
    for code in range(8):
        exponent, mantissa = code >> 1, code & 1
        assert E2M1[code] == ((2 + mantissa) * 2.0 ** (exponent - 2) if exponent else mantissa / 2)
        assert E2M1[code + 8] == -E2M1[code]


@given(st.floats(min_value=2.0**-126, max_value=2.0**120, width=32))
def test_smallest_power(q: float) -> None:
    power = 2.0 ** (int(smallest_power(torch.tensor([q]))) - 127)
    assert power >= q > power / 2


@pytest.mark.parametrize("rule", ["V", "M"])
@pytest.mark.parametrize("scale", [2.0**-140, 1e-12, 1e-3, 1.0, 1e6, 2.0**120])
def test_quantised_groups(rule: str, scale: float) -> None:
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1)) * scale
    got = quantise_mx(x, rule)
    for row in range(3):
        for group in range(2):
            values = x[row, 32 * group : 32 * group + 32]
            amax = float(values.abs().max())
            q = max(amax, 2.0**-126) / 448 if rule == "V" else max(amax, 1e-10) / 448
            code = min(max(math.ceil(math.log2(q)) + 127, 1), 254)  # a denormal q has exponent field 0 and a mantissa
            assert got.codes[row, group] == code
            scaled = (values.double() * 2.0 ** (127 - code)).clamp(-448, 448).float()
            want = scaled.to(torch.float8_e4m3fn).view(torch.uint8)
            assert torch.equal(got.values[row, 32 * group : 32 * group + 32], want)


def test_zero_rows_have_the_least_codes() -> None:
    assert quantise_mx(torch.zeros(1, 32), "V").codes.item() == 1  # 2^-126 / 448 is denormal, not zero
    assert quantise_mx(torch.zeros(1, 32), "M").codes.item() == 127 - 42  # of 1e-10 / 448
    assert not quantise_mx(torch.zeros(1, 32), "V").values.any()


def test_mx_numbers() -> None:
    mx = Mx(torch.full((1, 32), 0x38, dtype=torch.uint8), torch.tensor([[129]], dtype=torch.uint8))
    assert torch.equal(mx.exact(), torch.full((1, 32), 4.0, dtype=torch.float64))
    assert code_scale(torch.tensor([255], dtype=torch.uint8)).isnan()


def test_records_come_back() -> None:
    x = torch.randn(5, 192, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16).float()
    data, codes = encode_records(x, 64)
    assert data.shape == (5, 256)
    assert codes.shape == (5, 8)
    back = decode_records(data, codes, 64)
    assert torch.equal(back[:, 128:].float(), x[:, 128:])
    assert (back[:, :128] - x[:, :128]).abs().max() <= x.abs().max() / 16


def test_records_in_a_cache_with_gaps() -> None:
    record, blocks, size = 264, 3, 4
    whole = torch.full((blocks * 2000,), 0xFF, dtype=torch.uint8)
    cache = whole.as_strided((blocks, size, record), (2000, record, 1))
    x = torch.randn(2, 192, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16).float()
    data, codes = encode_records(x, 64)
    store_records(cache, torch.tensor([9, 2]), data, codes, 2)
    assert whole[2 * 2000 + 256] == data[0, 0]  # block 2, row 1
    assert whole[2 * 2000 + 4 * 256 + 8] == codes[0, 0]
    assert whole[2 * 2000 + 4 * 256 + 8 + 2] == 0xFF  # a pad is left alone
    got, kept = cache_rows(cache, torch.tensor([2, 9]), 256)
    assert torch.equal(got, data.flip(0))
    assert torch.equal(kept[:, :2], codes.flip(0)[:, :2])


def test_layouts_by_their_definitions() -> None:
    rows = torch.arange(32 * 64).reshape(32, 64) % 251
    stored = shuffle16(rows)
    flat = stored.flatten()
    for row, column in [(0, 0), (17, 5), (31, 63), (5, 40)]:
        at = (row // 16) * 16 * 64 + (column // 16) * 256 + (row % 16) * 16 + column % 16
        assert flat[at] == rows[row, column]
    assert torch.equal(unshuffle16(stored), rows)
    codes = torch.arange(64 * 16).reshape(64, 16)
    shuffled = shuffle_scale(codes)
    at = ((1 * 2 + 1) * 4 + 2) * 16 * 4 + 3 * 4 + 1 * 2 + 1  # row 32 + 16 + 3, column 8 + 4 + 2
    assert shuffled.flatten()[at] == codes[51, 14]
    assert torch.equal(unshuffle_scale(shuffled), codes)
    tiles = interleave(torch.arange(64)[:, None], 16).flatten()
    assert tiles.tolist() == [*range(16), *range(32, 48), *range(16, 32), *range(48, 64)]
    assert torch.equal(deinterleave(interleave(rows, 16), 16), rows)
