"""Small kernels as assembly text, with the directives LLVM writes around them."""

from __future__ import annotations

__all__ = ["kernel_text"]


def kernel_text(
    body: str,
    *,
    arguments: tuple[int, ...] = (8,),
    lds: int = 0,
    scratch: int = 0,
    vgprs: int = 32,
    agprs: int = 0,
    block: int = 64,
    name: str = "kernel",
    extra: str = "",
) -> str:
    """A complete `.s` text whose kernel gets arguments of these sizes (bytes), s[0:1] = kernarg, s2 = CTA."""
    offset = 0
    entries = []
    for size in arguments:
        offset = -(-offset // size) * size
        entries.append(f"      - .offset: {offset}\n        .size: {size}\n        .value_kind: by_value")
        offset += size
    accum = -(-vgprs // 4) * 4
    return f"""\
\t.amdgcn_target "amdgcn-amd-amdhsa-unknown-gfx950"
\t.text
\t.globl\t{name}
\t.p2align\t8
\t.type\t{name},@function
{name}:
{body}
\ts_endpgm
.Lfunc_end0:
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel {name}
\t\t.amdhsa_group_segment_fixed_size {lds}
\t\t.amdhsa_private_segment_fixed_size {scratch}
\t\t.amdhsa_kernarg_size {offset}
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_system_vgpr_workitem_id 0
\t\t.amdhsa_next_free_vgpr {accum + agprs}
\t\t.amdhsa_next_free_sgpr 96
\t\t.amdhsa_accum_offset {accum}
\t\t.amdhsa_float_denorm_mode_32 3
\t\t.amdhsa_float_denorm_mode_16_64 3
\t.end_amdhsa_kernel
\t.text
{extra}
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .name: {name}
    .args:
{chr(10).join(entries)}
    .reqd_workgroup_size:
      - {block}
      - 1
      - 1
    .symbol: {name}.kd
...
\t.end_amdgpu_metadata
"""
