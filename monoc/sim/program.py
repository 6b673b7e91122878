"""Loading a program: assembly text to decoded native kernels, cached by content."""

from __future__ import annotations

import atexit
import ctypes
import difflib
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from monoc.sim import _core
from monoc.sim.asm import AsmModule, Instruction, Kernel, Operand, OperandKind, parse_asm
from monoc.sim.errors import AsmError, UsageError

__all__ = ["Program", "load_program"]


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel ready to launch.

    `native` is the decoded form; `data` holds the bytes of constant sections (kept alive, read by address).
    """

    kernel: Kernel
    module: AsmModule
    native: Any
    data: tuple[tuple[str, Any, int], ...]
    digest: str

    @property
    def name(self) -> str:
        """Symbol of the kernel."""
        return self.kernel.name

    def source(self, file: int, line: int) -> str:
        """`file:line` of debug info numbers, empty without."""
        return f"{self.module.files.get(file, '?')}:{line}" if line else ""

    def kernarg(self, args: Sequence[Any], grid: tuple[int, int, int], block: tuple[int, int, int]) -> bytes:
        """The kernarg segment of one launch.

        `args` in the order of the metadata: ints (addresses, scalars), floats (4 or 8 bytes by the argument's
        size), bytes, or anything with `data_ptr()`; hidden arguments are filled from grid and block. Raises
        `UsageError` for a wrong count or size.
        """
        explicit = self.kernel.explicit_arguments
        if len(args) != len(explicit):
            raise UsageError(f"kernel {self.name} takes {len(explicit)} arguments, not {len(args)}")
        segment = bytearray(max(self.kernel.descriptor.get("kernarg_size", 0), 16))
        for argument, value in zip(explicit, args, strict=True):
            packed = _pack(value, argument.size)
            segment[argument.offset : argument.offset + argument.size] = packed
        for argument in self.kernel.arguments:
            if argument.hidden:
                hidden = _hidden(argument.kind, grid, block)
                packed = (hidden & (1 << 64) - 1).to_bytes(8, "little")[: argument.size]
                segment[argument.offset : argument.offset + argument.size] = packed
        return bytes(segment)


def _pack(value: Any, size: int) -> bytes:
    if hasattr(value, "data_ptr"):
        value = value.data_ptr()
    if isinstance(value, (bytes, bytearray)):
        if len(value) != size:
            raise UsageError(f"argument has {len(value)} bytes, the kernel wants {size}")
        return bytes(value)
    if isinstance(value, float):
        if size not in (4, 8):
            raise UsageError(f"a float argument has 4 or 8 bytes, the kernel wants {size}")
        return struct.pack("<f" if size == 4 else "<d", value)
    if isinstance(value, (bool, int, np.integer)):
        if not -(1 << (8 * size - 1)) <= int(value) < 1 << (8 * size):
            raise UsageError(f"argument {value} does not fit the kernel's {size} bytes")
        return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    if isinstance(value, np.floating):
        return _pack(float(value), size)
    raise UsageError(f"argument {value!r} is no int, float, bytes or tensor")


def _hidden(kind: str, grid: tuple[int, int, int], block: tuple[int, int, int]) -> int:
    name, _, axis = kind.removeprefix("hidden_").rpartition("_")
    if axis in ("x", "y", "z"):
        index = "xyz".index(axis)
        values = {"block_count": grid[index], "group_size": block[index]}
        return values.get(name, 0)
    if kind == "hidden_grid_dims":
        return 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
    return 0


# Largest values of descriptor directives: registers of a wave, LDS of a CTA, scratch of a lane (COMPUTE_TMPRING_SIZE
# holds 8 MB a wave), user SGPRs.
_LIMITS = {
    "next_free_vgpr": 512,
    "accum_offset": 256,
    "group_segment_fixed_size": 160 * 1024,
    "private_segment_fixed_size": 128 * 1024,
    "kernarg_size": 64 * 1024,
    "user_sgpr_count": 32,
    "user_sgpr_kernarg_preload_length": 32,
    "user_sgpr_kernarg_preload_offset": 16 * 1024,
}


def _entry(kernel: Kernel, path: str) -> dict[str, int]:
    """Kernel entry state from the descriptor directives (LLVM AMDGPUUsage, "Initial Kernel Execution State").

    Raises `AsmError` for values no gfx950 kernel can have.
    """
    d = kernel.descriptor
    for key, value in d.items():
        if not 0 <= value <= _LIMITS.get(key, 0xFFFFFFFF):
            limit = _LIMITS.get(key, 0xFFFFFFFF)
            raise AsmError(f"kernel {kernel.name}: .amdhsa_{key} {value} is not within 0 to {limit}", path=path)
    preload = d.get("user_sgpr_kernarg_preload_offset", 0) + d.get("user_sgpr_kernarg_preload_length", 0)
    if 4 * preload > d.get("kernarg_size", 0):
        raise AsmError(f"kernel {kernel.name} preloads {preload} dwords, more than its arguments have", path=path)
    for argument in kernel.arguments:
        if argument.offset + argument.size > d.get("kernarg_size", 0):
            where = f"argument {argument.name or argument.offset} of kernel {kernel.name}"
            raise AsmError(f"{where} lies behind .amdhsa_kernarg_size {d.get('kernarg_size', 0)}", path=path)
    vgprs = max(d.get("next_free_vgpr", 0), 1)
    vgprs = -(-vgprs // 8) * 8  # allocation granule of gfx90a and later
    mode = (
        d.get("float_round_mode_32", 0)
        | d.get("float_round_mode_16_64", 0) << 2
        | d.get("float_denorm_mode_32", 0) << 4
        | d.get("float_denorm_mode_16_64", 3) << 6
        | d.get("dx10_clamp", 1) << 8
        | d.get("ieee_mode", 1) << 9
    )
    if mode & 0xF:
        raise AsmError(f"kernel {kernel.name} asks for a rounding mode other than to nearest even", path=path)
    sets_mode = any(i.mnemonic.startswith("s_setreg") for i in kernel.instructions)
    return {
        "vgprs": vgprs,
        "accum_offset": d.get("accum_offset", vgprs),
        "lds_bytes": kernel.lds_bytes,
        "scratch_bytes": -(-kernel.scratch_bytes // 4) * 4,
        "kernarg_bytes": d.get("kernarg_size", 0),
        "user_sgprs": d.get("user_sgpr_count", 0),
        "preload_length": d.get("user_sgpr_kernarg_preload_length", 0),
        "preload_offset": d.get("user_sgpr_kernarg_preload_offset", 0),
        "private_buffer": d.get("user_sgpr_private_segment_buffer", 0),
        "dispatch_ptr": d.get("user_sgpr_dispatch_ptr", 0),
        "queue_ptr": d.get("user_sgpr_queue_ptr", 0),
        "kernarg_ptr": d.get("user_sgpr_kernarg_segment_ptr", 0),
        "dispatch_id": d.get("user_sgpr_dispatch_id", 0),
        "flat_scratch_init": d.get("user_sgpr_flat_scratch_init", 0),
        "private_size": d.get("user_sgpr_private_segment_size", 0),
        "group_x": d.get("system_sgpr_workgroup_id_x", 1),
        "group_y": d.get("system_sgpr_workgroup_id_y", 0),
        "group_z": d.get("system_sgpr_workgroup_id_z", 0),
        "group_info": d.get("system_sgpr_workgroup_info", 0),
        "mode": mode,
        "default_mode": int(mode & 0xF0 == 0xF0 and not sets_mode),
    }


@lru_cache(maxsize=1)
def _known() -> tuple[str, ...]:
    return tuple(_core.known_mnemonics())


def _nearest(mnemonic: str) -> str:
    base = mnemonic
    for suffix in ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"):
        base = base.removesuffix(suffix)
    close = difflib.get_close_matches(base, _known(), n=3, cutoff=0.5)
    return f"; nearest known: {', '.join(close)}" if close else ""


class _Decoder:
    def __init__(self, module: AsmModule, kernel: Kernel, addresses: dict[str, int]) -> None:
        self.module = module
        self.kernel = kernel
        self.addresses = addresses

    def operand(self, operand: Operand) -> tuple[int, int, int, int, str]:
        kind, value = operand.kind, operand.value
        if kind == OperandKind.LABEL:
            name, _, relocation = operand.name.partition("@")
            if relocation:
                return self.relocated(name, relocation)
            value = self.kernel.labels.get(name, -1)
        return int(kind), value, operand.count, operand.mods, operand.name

    def relocated(self, name: str, relocation: str) -> tuple[int, int, int, int, str]:
        """`sym@rel32@lo+4` and `@hi+12` behind an `s_getpc_b64`, which reads as 0 here: the address's halves."""
        address = self.addresses.get(name)
        if address is None:
            return int(OperandKind.LABEL), -1, 1, 0, f"{name}@{relocation}"
        half = address >> 32 if "hi" in relocation else address & 0xFFFFFFFF
        return int(OperandKind.HEX), half, 1, 0, ""

    def error(self, instruction: Instruction, message: str) -> AsmError:
        return AsmError(message, path=self.module.path, line=instruction.line, source=instruction.text)

    def run(self) -> Any:
        native = _core.Program(self.kernel.name, _entry(self.kernel, self.module.path))
        for instruction in self.kernel.instructions:
            operands = [self.operand(operand) for operand in instruction.operands]
            failure = native.append(
                instruction.mnemonic,
                instruction.text,
                operands,
                list(instruction.modifiers),
                instruction.line,
                *instruction.loc,
            )
            if failure is not None:
                message, unknown = failure
                if unknown:
                    raise self.error(instruction, message + _nearest(instruction.mnemonic))
                raise self.error(instruction, f"{instruction.mnemonic} {message}")
        if not self.kernel.instructions:
            raise AsmError(f"kernel {self.kernel.name} has no instructions", path=self.module.path)
        native.finish()
        return native


def _data(module: AsmModule) -> tuple[tuple[str, Any, int], ...]:
    placed = []
    for symbol in module.data.values():
        if symbol.name.startswith((".Ldebug", ".Linfo", ".Lcu", ".Lstr", ".Lfunc", ".Laddr", ".Lsec", ".Lrng", ".Llo")):
            continue
        storage = (ctypes.c_uint8 * (len(symbol.content) + symbol.align + 16))()
        start = -(-ctypes.addressof(storage) // symbol.align) * symbol.align
        ctypes.memmove(start, symbol.content, len(symbol.content))
        placed.append((symbol.name, storage, start))
    return tuple(placed)


@lru_cache(maxsize=64)
def _load(digest: str, text: str, path: str, kernel_name: str | None, arch: str, isa: str) -> Program:
    module = parse_asm(text, path)
    if module.target and not module.target.endswith(arch) and f"-{arch}:" not in module.target:
        raise AsmError(f"assembly is for {module.target.rpartition('-')[2]}, the simulator runs {arch}", path=path)
    if kernel_name is None:
        if len(module.kernels) != 1:
            raise UsageError(f"{path} has {len(module.kernels)} kernels ({', '.join(module.kernels)}); name one")
        kernel_name = next(iter(module.kernels))
    if kernel_name not in module.kernels:
        raise UsageError(f"{path} has no kernel {kernel_name}; it has {', '.join(module.kernels)}")
    kernel = module.kernels[kernel_name]
    data = _data(module)
    native = _Decoder(module, kernel, {name: start for name, _, start in data}).run()
    return Program(kernel, module, native, data, digest)


# The cache would outlive the native module's types at interpreter exit.
atexit.register(_load.cache_clear)


def load_program(text: str, path: str = "<asm>", kernel: str | None = None, arch: str = "gfx950") -> Program:
    """Parse and decode the kernel of an assembly text; the same text is decoded once.

    Raises `AsmError` naming the line of an instruction that cannot be executed and the nearest known ones.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    return _load(digest, text, path, kernel, arch, _core.isa())
