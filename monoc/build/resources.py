"""What a compiled kernel asks of the hardware, read from the metadata of its assembly text.

The metadata is the `amdhsa.kernels` YAML document LLVM writes into every `.s` (LLVM, AMDGPUUsage,
"Code Object V5 Metadata"). Code size is not in it, so it is counted from the instructions.
"""

import re
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

__all__ = ["KernelArgument", "MetadataError", "Resources", "parse_resources"]


class MetadataError(ValueError):
    """The text carries no kernel metadata, or not for the kernel asked for."""


@dataclass(frozen=True)
class KernelArgument:
    """One explicit kernel argument: byte offset and size inside the kernarg segment."""

    offset: int
    size: int


@dataclass(frozen=True)
class Resources:
    """Static needs of one kernel. Registers are per lane (VGPR, AGPR) or per wave (SGPR), sizes in bytes."""

    symbol: str
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds_bytes: int
    scratch_bytes: int
    code_bytes: int
    kernarg_bytes: int
    arguments: tuple[KernelArgument, ...]
    max_threads: int

    def ctas_per_cu(self, threads: int, lds_dynamic: int = 0, lds_capacity: int = 160 * 1024) -> int:
        """CTAs of `threads` lanes that fit one CU at once (CDNA3/4: 4 SIMDs of 512 VGPRs and 8 waves)."""
        waves = -(-threads // 64)
        # gfx90a and later allocate VGPRs in blocks of 8 out of 512 a lane.
        by_registers = 512 // max(8, -(-self.vgprs // 8) * 8)
        waves_per_simd = min(8, by_registers)
        by_waves = 4 * waves_per_simd // waves
        lds = self.lds_bytes + lds_dynamic
        return min(by_waves, lds_capacity // lds) if lds else by_waves


def _metadata(text: str) -> list[dict[str, Any]]:
    match = re.search(r"^\s*\.amdgpu_metadata\s*$(.*?)^\s*\.end_amdgpu_metadata", text, re.S | re.M)
    if match is None:
        raise MetadataError("no .amdgpu_metadata section: is this the final assembly of a kernel?")
    try:
        document = YAML(typ="safe", pure=True).load(match[1].strip().removesuffix("..."))
        kernels: list[dict[str, Any]] = document["amdhsa.kernels"]
    except (YAMLError, KeyError, TypeError) as error:
        raise MetadataError(f"malformed .amdgpu_metadata section: {error}") from error
    return kernels


_LITERAL = re.compile(r"(?:^|[\s,\[|\-])(0x[0-9a-f]+|-?\d+(?:\.\d+)?)(?=$|[\s,|\]])")
_INLINE_FLOATS = frozenset({"0.5", "1.0", "2.0", "4.0", "-0.5", "-1.0", "-2.0", "-4.0", "0.15915494"})
_LONG_PREFIXES = ("global_", "flat_", "scratch_", "buffer_", "ds_", "v_mfma", "v_pk_", "v_dot")
_LONG_SCALAR = ("s_load", "s_buffer_load", "s_store", "s_atomic", "s_memtime", "s_memrealtime", "s_dcache")


def _is_inline(value: str) -> bool:
    if "." in value:
        return value in _INLINE_FLOATS
    number = int(value, 0)
    return -16 <= number <= 64


def instruction_bytes(mnemonic: str, operands: str) -> int:
    """Encoded size: 4, 8 (wide formats, or a 32-bit literal) or 16 (scaled MFMA) bytes."""
    if mnemonic.startswith("v_mfma_scale"):
        return 16
    if mnemonic.startswith(_LONG_PREFIXES) or mnemonic.startswith(_LONG_SCALAR):
        return 8
    if mnemonic.endswith(("_e64", "_dpp", "_sdwa")):
        return 8
    if mnemonic.startswith("v_") and not mnemonic.endswith("_e32"):
        return 8  # VOP3 without a short form is printed without a suffix
    if mnemonic.startswith(("s_waitcnt", "s_cbranch", "s_branch", "s_barrier", "s_nop", "s_endpgm")):
        return 4
    if mnemonic.startswith(("s_movk", "s_addk", "s_mulk", "s_cmpk", "s_sleep", "s_setprio", "s_getreg")):
        return 4
    return 8 if any(not _is_inline(value) for value in _LITERAL.findall(operands)) else 4


def _code_bytes(text: str, symbol: str) -> int:
    start = re.search(rf"^{re.escape(symbol)}:", text, re.M)
    if start is None:
        raise MetadataError(f"no label for kernel {symbol!r}")
    total = 0
    for line in text[start.end() :].splitlines():
        stripped = line.split(";", 1)[0].strip()
        if stripped.startswith(".Lfunc_end"):
            break
        if not stripped or stripped.startswith((".", "//")) or stripped.endswith(":"):
            continue
        mnemonic, _, operands = stripped.partition(" ")
        total += instruction_bytes(mnemonic, operands)
    return total


def parse_resources(text: str, symbol: str | None = None) -> Resources:
    """Resources of kernel `symbol` (of the only kernel when None) in assembly `text`.

    Raises MetadataError when the text has no metadata or several kernels and no symbol was given.
    """
    kernels = _metadata(text)
    if symbol is None:
        if len(kernels) != 1:
            names = ", ".join(str(kernel[".name"]) for kernel in kernels)
            raise MetadataError(f"{len(kernels)} kernels ({names}): name one")
        kernel = kernels[0]
    else:
        found = [kernel for kernel in kernels if kernel[".name"] == symbol]
        if not found:
            names = ", ".join(str(kernel[".name"]) for kernel in kernels) or "none"
            raise MetadataError(f"no kernel {symbol!r} in this assembly; it has: {names}")
        kernel = found[0]
    name = str(kernel[".name"])
    explicit = [a for a in kernel.get(".args", ()) if not str(a[".value_kind"]).startswith("hidden_")]
    return Resources(
        symbol=name,
        vgprs=int(kernel[".vgpr_count"]),
        agprs=int(kernel.get(".agpr_count", 0)),
        sgprs=int(kernel[".sgpr_count"]),
        vgpr_spills=int(kernel.get(".vgpr_spill_count", 0)),
        sgpr_spills=int(kernel.get(".sgpr_spill_count", 0)),
        lds_bytes=int(kernel[".group_segment_fixed_size"]),
        scratch_bytes=int(kernel[".private_segment_fixed_size"]),
        code_bytes=_code_bytes(text, name),
        kernarg_bytes=int(kernel[".kernarg_segment_size"]),
        arguments=tuple(KernelArgument(int(a[".offset"]), int(a[".size"])) for a in explicit),
        max_threads=int(kernel.get(".max_flat_workgroup_size", 1024)),
    )
