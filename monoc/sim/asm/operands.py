"""Operand syntax of LLVM's AMDGPU assembler (docs: AMDGPUOperandSyntax, AMDGPUModifierSyntax)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

__all__ = ["ABS", "NEG", "SEXT", "Operand", "OperandKind", "OperandSyntaxError", "parse_operand", "split_top"]

NEG = 1
ABS = 2
SEXT = 4


class OperandKind(IntEnum):
    """What an operand is; the values are shared with the native decoder."""

    VGPR = 0
    SGPR = 1
    AGPR = 2
    INT = 3
    FLOAT = 4
    OFF = 5
    SPECIAL = 6
    LABEL = 7
    HEX = 8


class OperandSyntaxError(ValueError):
    """Text that is no operand of the syntax; carries the offending text."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: registers are (first index, count of dwords), literals are in `value`.

    `value` of FLOAT is the bit pattern of the double; `mods` is a set of NEG, ABS, SEXT; LABEL and
    SPECIAL keep their `name`.
    """

    kind: OperandKind
    value: int = 0
    count: int = 1
    mods: int = 0
    name: str = ""


# SGPR encodings of the named registers (CDNA3 ISA, table of scalar operands).
_NAMED_SGPRS = {
    "flat_scratch": (102, 2),
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2),
    "xnack_mask_lo": (104, 1),
    "xnack_mask_hi": (105, 1),
    "vcc": (106, 2),
    "vcc_lo": (106, 1),
    "vcc_hi": (107, 1),
    "m0": (124, 1),
    "exec": (126, 2),
    "exec_lo": (126, 1),
    "exec_hi": (127, 1),
}
_SPECIAL = frozenset(
    ["src_scc", "scc", "src_vccz", "vccz", "src_execz", "execz", "src_shared_base", "src_shared_limit",
     "src_private_base", "src_private_limit", "src_pops_exiting_wave_id", "lds_direct", "null"]
)  # fmt: skip
_REGISTER = re.compile(r"(v|s|a|ttmp|acc)(\d+)\Z")
_RANGE = re.compile(r"(v|s|a|ttmp|acc)\[(\d+):(\d+)\]\Z")
_SINGLE = re.compile(r"(v|s|a|ttmp|acc)\[(\d+)\]\Z")
_INTEGER = re.compile(r"-?\d+\Z")
_HEX = re.compile(r"-?0[xX][0-9a-fA-F]+\Z|-?0b[01]+\Z")
_FLOAT = re.compile(r"-?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?\Z")
_FILES = {
    "v": OperandKind.VGPR,
    "s": OperandKind.SGPR,
    "ttmp": OperandKind.SGPR,
    "a": OperandKind.AGPR,
    "acc": OperandKind.AGPR,
}
_TTMP0 = 108


def split_top(text: str, separator: str = ",") -> list[str]:
    """Split `text` at `separator` outside brackets and parentheses; parts are stripped, empty text gives []."""
    if not text.strip():
        return []
    parts: list[str] = []
    depth = 0
    start = 0
    for i, char in enumerate(text):
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part] if separator == " " else parts


def _literal(text: str) -> int:
    """An integer that fits the 32 bits of a literal constant."""
    value = int(text) if _INTEGER.match(text) else int(text, 0)
    if not -(1 << 31) <= value < 1 << 32:
        raise OperandSyntaxError(f"literal {text} has more than 32 bits")
    return value


def _register(prefix: str, first: int, count: int, mods: int) -> Operand:
    limit = 16 if prefix == "ttmp" else 128 if prefix == "s" else 256
    if first + count > limit:
        raise OperandSyntaxError(f"register {prefix}{first + count - 1} does not exist")
    base = _TTMP0 if prefix == "ttmp" else 0
    return Operand(_FILES[prefix], base + first, count, mods)


@lru_cache(maxsize=65536)
def parse_operand(text: str) -> Operand:
    """Parse one operand; raises `OperandSyntaxError` for text outside the syntax."""
    mods = 0
    body = text
    if body.startswith("-") and not (_INTEGER.match(body) or _HEX.match(body) or _FLOAT.match(body)):
        mods |= NEG
        body = body[1:]
    if body.startswith("neg(") and body.endswith(")"):
        mods |= NEG
        body = body[4:-1]
    if len(body) > 2 and body.startswith("|") and body.endswith("|"):
        mods |= ABS
        body = body[1:-1]
    elif body.startswith("abs(") and body.endswith(")"):
        mods |= ABS
        body = body[4:-1]
    elif body.startswith("sext(") and body.endswith(")"):
        mods |= SEXT
        body = body[5:-1]
    if match := _REGISTER.match(body):
        return _register(match[1], int(match[2]), 1, mods)
    if match := _RANGE.match(body):
        first, last = int(match[2]), int(match[3])
        if last < first:
            raise OperandSyntaxError(f"register range {text!r} ends before it starts")
        return _register(match[1], first, last - first + 1, mods)
    if match := _SINGLE.match(body):
        return _register(match[1], int(match[2]), 1, mods)
    if body in _NAMED_SGPRS:
        first, count = _NAMED_SGPRS[body]
        return Operand(OperandKind.SGPR, first, count, mods)
    if body == "off":
        return Operand(OperandKind.OFF)
    if body in _SPECIAL:
        return Operand(OperandKind.SPECIAL, mods=mods, name=body.removeprefix("src_"))
    if _INTEGER.match(body):
        return Operand(OperandKind.INT, _literal(body), 1, mods)
    if _HEX.match(body):
        return Operand(OperandKind.HEX, _literal(body), 1, mods)
    if _FLOAT.match(body):
        (bits,) = struct.unpack("<q", struct.pack("<d", float(body)))
        return Operand(OperandKind.FLOAT, bits, 1, mods)
    if re.match(r"[A-Za-z_.$][\w.$@+\-]*(\(.*\))?\Z", body):
        return Operand(OperandKind.LABEL, mods=mods, name=body)
    raise OperandSyntaxError(f"cannot read operand {text!r}")
