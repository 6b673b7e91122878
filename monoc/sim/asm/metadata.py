"""Code object metadata (AMDGPUUsage, "Code Object V5 Metadata"): the YAML LLVM prints inside the assembly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from monoc.sim.asm.module import Argument

__all__ = ["KernelMetadata", "parse_metadata"]


_MOST = 1 << 16  # bytes of a kernarg segment


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
    for argument in arguments:
        if not (0 <= argument.offset <= _MOST and 0 < argument.size <= _MOST):
            raise ValueError(f"argument at {argument.offset} of {argument.size} bytes")
    return KernelMetadata(arguments, scalars, workgroup)


def parse_metadata(text: str) -> dict[str, KernelMetadata]:
    """Kernel entries by symbol name (without `.kd`); ValueError for text that is no such metadata."""
    try:
        document = YAML(typ="safe", pure=False).load(text)
        kernels = document.get("amdhsa.kernels", ()) if document else ()
        return {str(entry[".name"]): _entry(entry) for entry in kernels}
    except YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from None
    except KeyError as error:
        raise ValueError(f"an entry has no {error.args[0]}") from None
    except (AttributeError, TypeError, IndexError) as error:
        raise ValueError(f"not laid out as code object metadata ({error})") from None
