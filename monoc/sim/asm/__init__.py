"""Parser of the final gfx950 assembly text LLVM writes: kernels, descriptors, operands."""

from monoc.sim.asm.module import Argument, AsmModule, DataSymbol, Kernel
from monoc.sim.asm.operands import Operand, OperandKind
from monoc.sim.asm.parse import Instruction, parse_asm

__all__ = [
    "Argument",
    "AsmModule",
    "DataSymbol",
    "Instruction",
    "Kernel",
    "Operand",
    "OperandKind",
    "parse_asm",
]
