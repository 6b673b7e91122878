"""FlyDSL source to gfx9 assembly text without a GPU."""

from monoc.build.isa import CompileError, IsaResult, compile_isa
from monoc.build.resources import KernelArgument, MetadataError, Resources, parse_resources

__all__ = [
    "CompileError",
    "IsaResult",
    "KernelArgument",
    "MetadataError",
    "Resources",
    "compile_isa",
    "parse_resources",
]
