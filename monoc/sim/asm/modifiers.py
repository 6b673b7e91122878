"""Instruction modifiers: `name`, `name:value`, `name:[list]`, DPP controls, waits."""

from __future__ import annotations

import re
from functools import lru_cache

from monoc.sim.asm.operands import OperandSyntaxError

__all__ = ["parse_modifier", "parse_waitcnt"]

_FLAGS = frozenset(
    ["offen", "idxen", "addr64", "glc", "slc", "dlc", "sc0", "sc1", "nt", "lds", "gds", "tfe", "clamp", "unorm",
     "row_mirror", "row_half_mirror", "high", "scope"]
)  # fmt: skip
_LISTS = frozenset(["op_sel", "op_sel_hi", "neg_lo", "neg_hi"])
_SDWA = {"BYTE_0": 0, "BYTE_1": 1, "BYTE_2": 2, "BYTE_3": 3, "WORD_0": 4, "WORD_1": 5, "DWORD": 6}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_SEXT": 1, "UNUSED_PRESERVE": 2}
_PAIR = re.compile(r"([a-z_0-9]+):(.+)\Z")
_CONTROLS = frozenset(
    ["offset", "offset0", "offset1", "row_shl", "row_shr", "row_ror", "row_bcast", "row_newbcast", "row_share",
     "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mask", "bank_mask", "bound_ctrl", "fi", "mul", "div",
     "cbsz", "abid", "blgp", "bitop3", "neg"]
)  # fmt: skip
_SHUFFLE = re.compile(r"swizzle\((.*)\)\Z")


def _swizzle(body: str) -> int:
    """`ds_swizzle_b32` macros of LLVM's syntax as the 16-bit offset they stand for."""
    words = [word.strip() for word in body.split(",")]
    mode, args = words[0], words[1:]
    if mode == "QUAD_PERM":
        return 0x8000 | sum((int(arg) & 3) << (2 * i) for i, arg in enumerate(args))
    if mode == "BITMASK_PERM":
        and_mask = or_mask = xor_mask = 0
        for bit, char in enumerate(reversed(args[0].strip('"'))):
            and_mask |= (char in "pi") << bit
            or_mask |= (char == "1") << bit
            xor_mask |= (char == "i") << bit
        return and_mask | or_mask << 5 | xor_mask << 10
    if mode == "BROADCAST":
        size, lane = int(args[0]), int(args[1])
        return (0x1F & ~(size - 1)) | lane << 5
    if mode == "SWAP":
        return 0x1F | int(args[0]) << 10
    if mode == "REVERSE":
        return 0x1F | (int(args[0]) - 1) << 10
    raise OperandSyntaxError(f"unknown swizzle mode {mode!r}")


def _numbers(text: str, count: int | None, limit: int) -> list[int]:
    """`[a,b,...]` of numbers below `limit`."""
    words = text.strip("[]").split(",")
    if (count is not None and len(words) != count) or not all(w.isdecimal() and int(w) < limit for w in words):
        raise OperandSyntaxError(f"cannot read the list {text!r} of a modifier")
    return [int(word) for word in words]


@lru_cache(maxsize=16384)
def parse_modifier(word: str) -> tuple[str, int] | None:
    """The (name, value) of a modifier, or None where `word` is not one; lists are packed one bit an entry.

    `op_sel`-like lists also report their length by a set bit 16 + length - 1, so that defaults can be told from lists.
    """
    if word in _FLAGS:
        return word, 1
    match = _PAIR.match(word)
    if match is None:
        return None
    name, value = match[1], match[2]
    if name in _LISTS:
        bits = _numbers(value, None, 2)
        return name, sum(bit << i for i, bit in enumerate(bits)) | len(bits) << 16
    if name == "quad_perm":
        lanes = _numbers(value, 4, 4)
        return name, sum(lane << (2 * i) for i, lane in enumerate(lanes))
    if name in ("dst_sel", "src0_sel", "src1_sel") and value in _SDWA:
        return name, _SDWA[value]
    if name == "dst_unused" and value in _UNUSED:
        return name, _UNUSED[value]
    if name == "offset" and (shuffle := _SHUFFLE.match(value)):
        try:
            return name, _swizzle(shuffle[1])
        except (ValueError, IndexError):
            raise OperandSyntaxError(f"cannot read {value!r}") from None
    if name == "neg" and value.startswith("["):  # f64 MFMA: the bits blgp has elsewhere
        return "blgp", sum(bit << i for i, bit in enumerate(_numbers(value, 3, 2)))
    if name not in _CONTROLS:
        return None
    try:
        number = int(value, 0)
    except ValueError:
        number = 1 << 32
    if not -(1 << 31) <= number < 1 << 31:
        raise OperandSyntaxError(f"modifier {name} wants a 32-bit number, not {value!r}")
    return name, number


_WAIT = re.compile(r"(vmcnt|expcnt|lgkmcnt|vscnt)\((\d+|0x[0-9a-f]+)\)\Z")


def parse_waitcnt(text: str) -> tuple[tuple[str, int], ...]:
    """Counters of `s_waitcnt`, e.g. `vmcnt(0) lgkmcnt(0)`; a bare number is gfx9's packed form."""
    words = [word for word in re.split(r"[\s&,]+", text) if word]
    if len(words) == 1 and re.fullmatch(r"\d+|0x[0-9a-fA-F]+", words[0]):
        packed = int(words[0], 0)
        if packed > 0xFFFF:
            raise OperandSyntaxError(f"wait counters {words[0]} have more than 16 bits")
        vm = (packed & 0xF) | (packed >> 10 & 0x30)
        return (("vmcnt", vm), ("expcnt", packed >> 4 & 7), ("lgkmcnt", packed >> 8 & 0xF))
    counters: list[tuple[str, int]] = []
    for word in words:
        match = _WAIT.match(word)
        if match is None:
            raise OperandSyntaxError(f"cannot read wait counter {word!r}")
        if int(match[2], 0) > 63:
            raise OperandSyntaxError(f"wait counter {word!r} is above 63")
        counters.append((match[1], int(match[2], 0)))
    return tuple(counters)
