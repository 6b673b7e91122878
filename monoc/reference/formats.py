"""Number formats: e4m3, E8M0, MXFP8 with its rules, e2m1, KV records (OCP Microscaling 1.0; docs/language.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

__all__ = [
    "E2M1", "KV_GROUP", "MX_GROUP", "Mx", "code_scale", "decode_e4m3", "decode_records", "encode_records",
    "quantise_mx", "smallest_power",
]  # fmt: skip

Tensor = torch.Tensor
MX_GROUP = 32  # values under one code
KV_GROUP = 64  # values under one code of a KV record
E4M3_MAX = 448.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@cache
def _e4m3_values() -> Tensor:
    return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float32)


def decode_e4m3(x: Tensor) -> Tensor:
    """e4m3 bytes (uint8) as fp32."""
    return torch.from_numpy(np.asarray(np.take(_e4m3_values().numpy(), x.numpy(), mode="clip")))


def code_scale(code: Tensor) -> Tensor:
    """E8M0 codes (uint8) as fp64 scales 2^(code - 127); 255 is NaN."""
    scale = torch.pow(2.0, code.double() - 127)
    return torch.where(code == 255, torch.nan, scale)


def smallest_power(q: Tensor) -> Tensor:
    """Biased exponent of the smallest power of two >= ``q`` (fp32, not negative): the exponent field, one more if the
    mantissa is not zero."""
    bits = q.contiguous().view(torch.int32)
    return (bits >> 23) + (bits & 0x7FFFFF != 0).to(torch.int32)


def _scaled(numbers: Tensor, codes: Tensor, group: int) -> Tensor:
    """``numbers`` [.., k] in place times their group's scale."""
    groups = numbers.view(*numbers.shape[:-1], -1, group)
    groups *= code_scale(codes)[..., None]
    return numbers


@dataclass(frozen=True)
class Mx:
    """MXFP8: e4m3 ``values`` (uint8) and ``codes`` (uint8), one per 32 values of the last axis."""

    values: Tensor
    codes: Tensor

    def exact(self) -> Tensor:
        """The numbers, fp64."""
        return _scaled(decode_e4m3(self.values).double(), self.codes, MX_GROUP)


def _scaled_e4m3(x: Tensor, code: Tensor) -> Tensor:
    """``x * 2^(127 - code)`` clamped to +-448, as e4m3 bytes, ties to even; a NaN is the byte 0x7f."""
    inverse = ((254 - code) << 23).to(torch.int32).contiguous().view(torch.float32)
    scaled = (x * inverse).clamp(-E4M3_MAX, E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn).view(torch.uint8)


def quantise_mx(x: Tensor, rule: str) -> Mx:
    """fp32 ``x`` [.., k] as MXFP8 by ``rule``: V (q = max(amax, 2^-126) / 448, codes 0..254) or M (q = max(amax, 1e-10)
    * fp32(1 / 448), codes 1..254); the code is that of the smallest power of two >= q."""
    groups = x.reshape(*x.shape[:-1], -1, MX_GROUP)
    amax = groups.abs().amax(dim=-1)
    if rule == "V":
        code = smallest_power(amax.clamp(min=2.0**-126) / E4M3_MAX).clamp(0, 254)
    else:
        floor = torch.tensor(1e-10, dtype=torch.float32)
        inverse = torch.tensor(1.0 / E4M3_MAX, dtype=torch.float32)
        code = smallest_power(torch.maximum(amax, floor) * inverse).clamp(1, 254)
    values = _scaled_e4m3(groups, code[..., None])
    return Mx(values.reshape(x.shape), code.to(torch.uint8))


def encode_records(x: Tensor, rope: int) -> tuple[Tensor, Tensor]:
    """KV records of bf16 rows ``x`` [n, d] (as fp32): data bytes [n, d - rope + 2 rope] and codes [n, padded to 8].

    Codes: q = max(amax, 1e-4) / 448 of every 64 columns, the smallest power of two >= q; the pad is 0."""
    nope = x.shape[1] - rope
    groups = x[:, :nope].reshape(x.shape[0], nope // KV_GROUP, KV_GROUP)
    floor = torch.tensor(1e-4, dtype=torch.float32)
    code = smallest_power(torch.maximum(groups.abs().amax(dim=-1), floor) / E4M3_MAX)
    values = _scaled_e4m3(groups, code[..., None]).reshape(x.shape[0], nope)
    tail = x[:, nope:].to(torch.bfloat16).contiguous().view(torch.uint8)
    codes = torch.zeros(x.shape[0], -(-code.shape[1] // 8) * 8, dtype=torch.uint8)
    codes[:, : code.shape[1]] = code.to(torch.uint8)
    return torch.cat([values, tail], dim=1), codes


def decode_records(data: Tensor, codes: Tensor, rope: int) -> Tensor:
    """KV records as numbers [n, d], fp64, from data bytes and codes as :func:`encode_records` gives them."""
    nope = data.shape[1] - 2 * rope
    numbers = torch.empty(len(data), nope + rope, dtype=torch.float64)
    numbers[:, :nope] = decode_e4m3(data[:, :nope])
    _scaled(numbers[:, :nope], codes[:, : nope // KV_GROUP], KV_GROUP)
    numbers[:, nope:] = data[:, nope:].contiguous().view(torch.bfloat16)
    return numbers
