"""Assembly outside the syntax or the machine: an error naming the line, never a crash or a silent no-op."""

from pathlib import Path

import pytest
from asm_text import kernel_text

from monoc.sim import AsmError, Simulator, UsageError

_BODIES = {
    "s_mov_b32 s20, 99999999999999999999": "more than 32 bits",
    "v_mov_b32_e32 v3, 0x123456789": "more than 32 bits",
    "v_mov_b32_e32 v999, 0": "v999 does not exist",
    "s_mov_b32 s200, 0": "s200 does not exist",
    "v_mov_b32_dpp v1, v0 quad_perm:[9,a,0,0] row_mask:0xf bank_mask:0xf": "list",
    "v_mov_b32_dpp v1, v0 quad_perm:[0,1] row_mask:0xf bank_mask:0xf": "list",
    "v_mov_b32_dpp v1, v0 row_shl:99 row_mask:0xf bank_mask:0xf": "row_shl must be 1 to 15",
    "v_mov_b32_dpp v1, v0 row_newbcast:16 row_mask:0xf bank_mask:0xf": "row_newbcast must be 0 to 15",
    "v_mov_b32_dpp v1, v0 row_ror:1 row_shl:2": "more than one DPP control",
    "v_pk_add_f16 v1, v0, v0 op_sel:[2,0]": "list",
    "v_add_u32_e32 v1, v0, v0 offset:4": "does not take offset",
    "global_load_dword v4, v[2:3], off offset:99999999999999": "32-bit number",
    "global_load_dword v4, v[2:3], off offset:4096": "not within -4096 to 4095",
    "buffer_load_dword v4, off, s[4:7], 0 offset:4096": "not within 0 to 4095",
    "ds_read2_b32 v[4:5], v0 offset0:256": "not within 0 to 255",
    "buffer_load_dword v8, v1, s[4:7], 0 offen tfe": "does not take tfe",
    "buffer_store_dword v8, v1, s[4:7], 0 offen lds": "does not take lds",
    "buffer_load_dwordx2 v1, s[4:7], 0 offen lds": "no form that loads to LDS",
    "scratch_load_lds_dword v0, off": "no form that loads to LDS",
    "scratch_load_dword v0, off lds": "no form that loads to LDS",
    "global_atomic_add_x2 v[2:3], v31, off": "moves 2 dwords",
    "global_atomic_cmpswap v[2:3], v31, off": "moves 2 dwords",
    "buffer_atomic_cmpswap_x2 v31, v1, s[4:7], 0 offen": "moves 4 dwords",
    "s_getreg_b32 s20, hwreg(1, x)": "hwreg",
    "s_getreg_b32 s20, hwreg(99999999999999999999)": "not modelled",
    "s_getreg_b32 s20, hwreg(HW_REG_MODE, 30, 8)": "inside 32 bits",
    "s_sethalt 1": "unknown instruction",
    "s_barrier 3": "takes 0 operands",
    "s_sleep": "takes 1 operands",
    "s_waitcnt vmcnt(x)": "wait counter",
    "ds_swizzle_b32 v1, v0 offset:swizzle(SWAP)": "cannot read",
}


@pytest.mark.parametrize("body", _BODIES)
def test_instruction_outside_the_machine(body: str) -> None:
    with pytest.raises(AsmError, match=_BODIES[body]) as caught:
        Simulator().load(kernel_text("\t" + body))
    assert caught.value.line == 7
    assert caught.value.source == body


def _replaced(old: str, new: str) -> str:
    text = kernel_text("\ts_nop 0", arguments=(8,))
    assert old in text
    return text.replace(old, new)


_TEXTS = {
    "negative LDS": (
        ".amdhsa_group_segment_fixed_size 0",
        ".amdhsa_group_segment_fixed_size -5",
        "not within 0 to 163840",
    ),
    "too much LDS": (".amdhsa_group_segment_fixed_size 0", ".amdhsa_group_segment_fixed_size 163841", "not within"),
    "scratch": (".amdhsa_private_segment_fixed_size 0", ".amdhsa_private_segment_fixed_size 2147483648", "not within"),
    "registers": (".amdhsa_next_free_vgpr 32", ".amdhsa_next_free_vgpr 100000", "not within 0 to 512"),
    "user registers": (".amdhsa_user_sgpr_count 2", ".amdhsa_user_sgpr_count 99", "not within 0 to 32"),
    "preload": (".amdhsa_user_sgpr_count 2", ".amdhsa_user_sgpr_kernarg_preload_length 9", "preloads 9 dwords"),
    "kernarg": (".amdhsa_kernarg_size 8", ".amdhsa_kernarg_size 4", "lies behind .amdhsa_kernarg_size"),
    "no number": (".amdhsa_kernarg_size 8", ".amdhsa_kernarg_size x", "cannot read the value"),
    "no name": (".amdhsa_kernel kernel", ".amdhsa_kernel", "wants the kernel's name"),
    "not YAML": ("amdhsa.kernels:", "amdhsa.kernels: [", ".amdgpu_metadata: no YAML"),
    "no entries": ("amdhsa.kernels:\n", "amdhsa.kernels: 3\nx:\n", "not laid out as code object metadata"),
    "no offset": ("- .offset: 0", "- .other: 0", "no .offset"),
    "argument": (".size: 8", ".size: -8", "argument at 0 of -8 bytes"),
    "cut short": ("\t.end_amdgpu_metadata", "", "no .end_amdgpu_metadata"),
    "line": ("\ts_nop 0", "\t.loc 1\n\ts_nop 0", ".loc wants"),
    "other GPU": ("gfx950", "gfx942", "assembly is for"),
}


@pytest.mark.parametrize("case", _TEXTS)
def test_directives_outside_the_machine(case: str) -> None:
    old, new, message = _TEXTS[case]
    with pytest.raises(AsmError, match=message):
        Simulator().load(_replaced(old, new))


def test_truncated_anywhere() -> None:
    """Every prefix of a text is either a program or an error on purpose."""
    text = kernel_text("\tv_mov_b32_e32 v1, 0x10\n\tglobal_store_dword v1, v0, s[4:5] offset:8", arguments=(8, 4))
    for end in range(0, len(text), 3):
        try:
            Simulator().load(text[:end])
        except (AsmError, UsageError):
            continue


def test_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "kernel.s"
    file.write_bytes(bytes(range(256)))
    with pytest.raises(UsageError, match="no assembly text"):
        Simulator().load(file)


def test_negation_list_of_f64_mfma() -> None:
    body = "\tv_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7] neg:[1,0,1]"
    assert dict(Simulator().load(kernel_text(body)).kernel.instructions[0].modifiers) == {"blgp": 5}
