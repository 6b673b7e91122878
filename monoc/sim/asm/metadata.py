"""Code object metadata (AMDGPUUsage, "Code Object V5 Metadata"): the YAML LLVM prints inside the assembly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML

from monoc.sim.asm.module import Argument

__all__ = ["KernelMetadata", "parse_metadata"]


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """One entry of `amdhsa.kernels`."""

    arguments: tuple[Argument, ...] = ()
    scalars: Mapping[str, int] = field(default_factory=dict)
    workgroup: tuple[int, int, int] | None = None


def _entry(entry: Mapping[str, Any]) -> KernelMetadata:
    arguments = tuple(
        Argument(
            int(arg[".offset"]), int(arg[".size"]), str(arg.get(".value_kind", "by_value")), str(arg.get(".name", ""))
        )
        for arg in entry.get(".args", ())
    )
    scalars = {str(key).removeprefix("."): int(value) for key, value in entry.items() if isinstance(value, int)}
    size = entry.get(".reqd_workgroup_size")
    workgroup = (int(size[0]), int(size[1]), int(size[2])) if size else None
    return KernelMetadata(arguments, scalars, workgroup)


def parse_metadata(text: str) -> dict[str, KernelMetadata]:
    """Kernel entries by symbol name (without `.kd`)."""
    document = YAML(typ="safe", pure=False).load(text)
    kernels = document.get("amdhsa.kernels", ()) if document else ()
    return {str(entry[".name"]): _entry(entry) for entry in kernels}
