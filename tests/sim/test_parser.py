"""The assembly parser: directives, operands, modifiers, metadata, and clear errors."""

from __future__ import annotations

import struct

import pytest
from asm_text import kernel_text

from monoc.sim.asm import OperandKind, parse_asm
from monoc.sim.asm.modifiers import parse_modifier, parse_waitcnt
from monoc.sim.asm.operands import ABS, NEG, SEXT, OperandSyntaxError, parse_operand, split_top
from monoc.sim.errors import AsmError


@pytest.mark.parametrize(
    ("text", "kind", "value", "count", "mods"),
    [
        ("v7", OperandKind.VGPR, 7, 1, 0),
        ("v[4:7]", OperandKind.VGPR, 4, 4, 0),
        ("v[9]", OperandKind.VGPR, 9, 1, 0),
        ("a[0:15]", OperandKind.AGPR, 0, 16, 0),
        ("s[10:11]", OperandKind.SGPR, 10, 2, 0),
        ("ttmp3", OperandKind.SGPR, 111, 1, 0),
        ("vcc", OperandKind.SGPR, 106, 2, 0),
        ("exec_hi", OperandKind.SGPR, 127, 1, 0),
        ("m0", OperandKind.SGPR, 124, 1, 0),
        ("-16", OperandKind.INT, -16, 1, 0),
        ("0x3f317217", OperandKind.HEX, 0x3F317217, 1, 0),
        ("-v3", OperandKind.VGPR, 3, 1, NEG),
        ("|v3|", OperandKind.VGPR, 3, 1, ABS),
        ("-|v3|", OperandKind.VGPR, 3, 1, NEG | ABS),
        ("sext(v5)", OperandKind.VGPR, 5, 1, SEXT),
        ("off", OperandKind.OFF, 0, 1, 0),
    ],
)
def test_operands(text: str, kind: OperandKind, value: int, count: int, mods: int) -> None:
    operand = parse_operand(text)
    assert (operand.kind, operand.value, operand.count, operand.mods) == (kind, value, count, mods)


@pytest.mark.parametrize(("text", "value"), [("1.0", 1.0), ("-0.5", -0.5), ("0.15915494", 0.15915494), ("4.0", 4.0)])
def test_float_constants_keep_their_bits(text: str, value: float) -> None:
    operand = parse_operand(text)
    assert operand.kind is OperandKind.FLOAT
    assert struct.unpack("<d", struct.pack("<q", operand.value))[0] == value


@pytest.mark.parametrize("text", ["v[5:3]", "%5", "", "v[1:2"])
def test_bad_operands_are_refused(text: str) -> None:
    with pytest.raises(OperandSyntaxError):
        parse_operand(text)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("offen", ("offen", 1)),
        ("offset:4080", ("offset", 4080)),
        ("row_mask:0xf", ("row_mask", 15)),
        ("quad_perm:[1,0,3,2]", ("quad_perm", 1 | 0 << 2 | 3 << 4 | 2 << 6)),
        ("op_sel:[0,1]", ("op_sel", 2 | 2 << 16)),
        ("op_sel_hi:[1,0,1]", ("op_sel_hi", 5 | 3 << 16)),
        ("src0_sel:WORD_1", ("src0_sel", 5)),
        ("dst_unused:UNUSED_PRESERVE", ("dst_unused", 2)),
        ("offset:swizzle(SWAP,16)", ("offset", 0x1F | 16 << 10)),
        ("offset:swizzle(QUAD_PERM,1,0,3,2)", ("offset", 0x8000 | 1 | 3 << 4 | 2 << 6)),
        ("v3", None),
    ],
)
def test_modifiers(word: str, expected: tuple[str, int] | None) -> None:
    assert parse_modifier(word) == expected


def test_wait_counters_named_and_packed() -> None:
    assert dict(parse_waitcnt("vmcnt(3) lgkmcnt(0)")) == {"vmcnt": 3, "lgkmcnt": 0}
    # gfx9: vmcnt in [3:0] and [15:14], expcnt [6:4], lgkmcnt [11:8]
    assert dict(parse_waitcnt("0xc07f")) == {"vmcnt": 63, "expcnt": 7, "lgkmcnt": 0}


def test_split_respects_brackets() -> None:
    assert split_top("v[0:1], s[2:3], 0 offen op_sel:[0,1]") == ["v[0:1]", "s[2:3]", "0 offen op_sel:[0,1]"]


def test_kernel_descriptor_arguments_labels_and_lines() -> None:
    text = kernel_text("\ts_branch .LBB0_1\n.LBB0_1:\n\ts_nop 0 ; a comment", arguments=(8, 4, 8), lds=512, block=256)
    module = parse_asm(text, "unit.s")
    kernel = module.kernels["kernel"]
    assert [(a.offset, a.size) for a in kernel.arguments] == [(0, 8), (8, 4), (16, 8)]
    assert kernel.lds_bytes == 512
    assert kernel.workgroup == (256, 1, 1)
    assert [i.mnemonic for i in kernel.instructions] == ["s_branch", "s_nop", "s_endpgm"]
    assert kernel.labels[".LBB0_1"] == 1
    assert kernel.instructions[1].text == "s_nop 0"
    assert text.splitlines()[kernel.instructions[1].line - 1].strip().startswith("s_nop")


def test_debug_lines_follow_loc() -> None:
    body = '\t.file 1 "/src" "kernel.py"\n\t.loc 1 42 0\n\ts_nop 0\n\t.loc 1 43 7\n\ts_nop 1'
    module = parse_asm(kernel_text(body))
    assert [i.loc for i in module.kernels["kernel"].instructions][:2] == [(1, 42), (1, 43)]
    assert module.files[1] == "/src/kernel.py"


def test_data_symbols() -> None:
    extra = '\t.section .rodata,"a",@progbits\ntable:\n\t.long 1, 2\n\t.byte 3\n\t.text'
    module = parse_asm(kernel_text("", extra=extra))
    assert module.data["table"].content == struct.pack("<IIB", 1, 2, 3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("\tv_add_f32_e32 v0, v1, %2", "cannot read operand '%2'"),
        ("\tds_read_b32 v0, v1 offset:abc", "offset wants a 32-bit number"),
        ("\ts_waitcnt foo(0)", "cannot read wait counter"),
    ],
)
def test_syntax_errors_name_the_line(body: str, message: str) -> None:
    with pytest.raises(AsmError, match=r"unit\.s:7: ") as caught:
        parse_asm(kernel_text(body), "unit.s")
    assert message in str(caught.value)
    assert body.strip() in str(caught.value)


def test_text_without_kernel_is_refused() -> None:
    with pytest.raises(AsmError, match="no kernel"):
        parse_asm("\t.text\n")


def test_local_labels() -> None:
    body = "1:\n\ts_cbranch_scc0 1f\n\ts_branch 1b\n1:\ts_nop 0\n2: s_branch 2b\n\ts_branch 1b"
    kernel = parse_asm(kernel_text(body)).kernels["kernel"]
    targets = [kernel.labels[i.operands[0].name] for i in kernel.instructions if "branch" in i.mnemonic]
    assert targets == [2, 0, 3, 2]
