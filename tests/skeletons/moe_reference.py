"""Expert matrices and picks as the format documents state them, in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from harness import TAG, Outcome, to_bits

from monoc.expr.ir import Binary, BinaryOp, Const, DType, Expr, Local, Round
from monoc.expr.slot import Slot, SlotInput
from monoc.schedule.model import Form

__all__ = [
    "ADD",
    "E2M1",
    "EXACT_ACTIVATION",
    "JOIN",
    "WEIGH",
    "Experts",
    "bf16",
    "e4m3_values",
    "exact_activation",
    "mx_quantise_m",
    "pick_tiles",
    "region_words",
    "shuffle16",
    "shuffle_scale",
]  # fmt: skip

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def _slot(name: str, inputs: str, result: Expr) -> Slot:
    return Slot(name, tuple(SlotInput(i) for i in inputs.split()), (), (result,), (name,))


def _op(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b)


# Activations of the models use the hardware's exp2 and rcp; this one rounds exactly, so results compare bit for bit.
EXACT_ACTIVATION = _slot(
    "up_activation",
    "gate up",
    Round(
        DType.BF16,
        _op(
            BinaryOp.MUL,
            _op(BinaryOp.MIN, Local("gate"), Const(10.0)),
            _op(BinaryOp.MAX, _op(BinaryOp.MIN, Local("up"), Const(10.0)), Const(-10.0)),
        ),
    ),
)
WEIGH = _slot("down_weigh", "value weight", Round(DType.BF16, _op(BinaryOp.MUL, Local("value"), Local("weight"))))
ADD = _slot("down_add", "total value", Round(DType.BF16, _op(BinaryOp.ADD, Local("total"), Local("value"))))
JOIN = _slot("down_join", "routed shared", Round(DType.BF16, _op(BinaryOp.ADD, Local("routed"), Local("shared"))))


def bf16(x: np.ndarray) -> np.ndarray:
    """f32 values rounded to bf16, as f32."""
    return (to_bits(x).astype(np.uint32) << 16).view(np.float32)


def exact_activation(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    g = np.minimum(gate.astype(np.float32), np.float32(10))
    u = np.clip(up.astype(np.float32), np.float32(-10), np.float32(10))
    return bf16(g * u)


def e4m3_values(codes: np.ndarray) -> np.ndarray:
    """OCP e4m3 bytes as f64 (no NaN among them)."""
    exponent, mantissa = (codes >> 3) & 15, (codes & 7).astype(np.float64)
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.float64) - 7))
    return np.where(codes & 0x80, -value, value)


_E4M3 = e4m3_values(np.arange(127, dtype=np.uint8))


def _e4m3_codes(x: np.ndarray) -> np.ndarray:
    """Nearest e4m3, ties to the even code; |x| <= 448."""
    magnitude = np.abs(x.astype(np.float64))
    above = np.clip(np.searchsorted(_E4M3, magnitude), 1, len(_E4M3) - 1)
    low, high = _E4M3[above - 1], _E4M3[above]
    middle = (low + high) / 2
    code = np.where(magnitude > middle, above, above - 1)
    code = np.where(magnitude == middle, np.where(above % 2 == 0, above, above - 1), code)
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def mx_quantise_m(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(e4m3 bytes, E8M0 codes) of rows of f32, groups of 32, rule M."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    q = np.maximum(np.abs(groups).max(-1), np.float32(1e-10)) * np.float32(1 / 448)
    bits = q.astype(np.float32).view(np.uint32)
    code = np.clip((bits >> 23) + ((bits & 0x7FFFFF) != 0), 1, 254).astype(np.int64)
    inverse = ((254 - code) << 23).astype(np.uint32).view(np.float32)
    scaled = np.clip(groups * inverse[..., None], np.float32(-448), np.float32(448))
    return _e4m3_codes(scaled).reshape(x.shape), code.astype(np.uint8)


def shuffle16(rows: np.ndarray) -> np.ndarray:
    """Bytes [rows, bytes] in the (16, 16) shuffle."""
    n, width = rows.shape
    return np.ascontiguousarray(rows.reshape(n // 16, 16, width // 16, 16).transpose(0, 2, 1, 3))


def shuffle_scale(codes: np.ndarray) -> np.ndarray:
    """E8M0 [rows, columns] in aiter's order; columns padded to a multiple of 8 with 1.0."""
    n, columns = codes.shape
    padded = np.full((n, -(-columns // 8) * 8), 127, np.uint8)
    padded[:, :columns] = codes
    return np.ascontiguousarray(padded.reshape(n // 32, 2, 16, -1, 2, 4).transpose(0, 3, 5, 2, 4, 1))


@dataclass(frozen=True)
class Experts:
    """Random MXFP4 matrices [experts, rows, k] whose products with small values sum exactly in fp32."""

    nibbles: np.ndarray
    codes: np.ndarray

    @classmethod
    def random(cls, rng: np.random.Generator, experts: int, rows: int, k: int) -> Experts:
        nibbles = rng.integers(0, 16, (experts, rows, k), dtype=np.uint8)
        return cls(nibbles, rng.integers(126, 129, (experts, rows, k // 32), dtype=np.uint8))

    def values(self) -> np.ndarray:
        return E2M1[self.nibbles] * 2.0 ** (np.repeat(self.codes, 32, -1).astype(np.float64) - 127)

    def weights(self) -> np.ndarray:
        experts, rows, k = self.nibbles.shape
        packed = self.nibbles[..., 0::2] | (self.nibbles[..., 1::2] << 4)
        return shuffle16(packed.reshape(experts * rows, k // 2))

    def scales(self) -> np.ndarray:
        experts, rows, columns = self.codes.shape
        return shuffle_scale(self.codes.reshape(experts * rows, columns))


def pick_tiles(ids: np.ndarray) -> tuple[list[int], list[tuple[int, int]]]:
    """The picks (t * topk + k) in table order, and the tiles of 16 as (expert, first position).

    By expert, then by token; one token's as they come.
    """
    topk = ids.shape[1]
    if len(ids) == 1:
        return list(range(topk)), [(expert, k) for k, expert in enumerate(ids[0].tolist())]
    order: list[int] = []
    tiles: list[tuple[int, int]] = []
    for expert in sorted(set(ids.ravel().tolist())):
        mine = [t * topk + k for t, row in enumerate(ids.tolist()) for k, e in enumerate(row) if e == expert]
        tiles += [(expert, len(order) + i) for i in range(0, len(mine), 16)]
        order += mine
    return order, tiles


def region_words(outcome: Outcome, name: str) -> np.ndarray:
    """The words of a region that need not be complete; in pair form 0xDEADBEEF where none was put."""
    place = outcome.places[name]
    at = place.offset // 4
    if place.form is Form.PAIR:
        pairs = outcome.scratch[0][at : at + 2 * place.words].reshape(-1, 2)
        return np.where(pairs[:, 1] == TAG, pairs[:, 0], np.uint32(0xDEADBEEF))
    return outcome.scratch[0][at : at + place.words].copy()
