"""Weights where a docking section looks for them: objects shaped like the serving framework's, filled backwards.

A section says ``wqkv_scale: codes(attn.fused_wqa_wkv.weight_scale)``; given a value of ``wqkv_scale``, the attribute at
that path is set, objects on the way are made. What an imported function is called with gets the value as an attribute
named after the import, for a stand-in of that function to return.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from monoc.spec.ast import Name, Node
from monoc.spec.docking import Docking
from monoc.spec.docking_ast import Attribute, Constant, Invoke
from monoc.spec.program import Program

__all__ = ["block_scales", "place_weights"]

Tensor = torch.Tensor


def place_weights(program: Program, layer: Any, values: Mapping[str, Any]) -> None:
    """Set on ``layer`` what the program's docking reads, from ``values`` by weight class field (tensors, scales).

    Fields without a value are left alone. ``spread`` scales must be constant over its blocks (:func:`block_scales`).
    """
    assert program.docking is not None
    for _, sources in program.docking.weights:
        for source in sources:
            if source.field in values:
                _Placer(program.docking, layer).place(source.value, values[source.field], _block(program, source.field))


def block_scales(program: Program, tensors: dict[str, Tensor]) -> None:
    """Replace scales that the docking spreads by ones constant over the loader's blocks, in place."""
    assert program.docking is not None
    for _, sources in program.docking.weights:
        for source in sources:
            size = _spread_size(source.value)
            if size and source.field in tensors:
                down, along = (size // b for b in _block(program, source.field))
                codes = tensors[source.field]
                wide = codes[::down, ::along].repeat_interleave(down, 0).repeat_interleave(along, 1)
                codes.copy_(wide[: codes.shape[0], : codes.shape[1]])


def _block(program: Program, field: str) -> tuple[int, int]:
    return next((t.scale.block for t in program.tensors if t.scale is not None and t.scale.name == field), (1, 1))


def _spread_size(node: Node) -> int:
    """The block of a ``spread(scale, size)``; 0 for anything else."""
    if isinstance(node, Invoke) and isinstance(node.function, Name) and node.function.name == "spread":
        size = node.arguments[1]
        return size.value if isinstance(size, Constant) and isinstance(size.value, int) else 0
    return 0


class _Placer:
    def __init__(self, docking: Docking, layer: Any) -> None:
        self.docking, self.layer = docking, layer

    def place(self, node: Node, value: Any, block: tuple[int, int]) -> None:
        match node:
            case Attribute():
                setattr(self.at(node.value), node.name, value)
            case Name() if node.name in self.docking.named:
                self.place(self.docking.named[node.name].value, value, block)
            case Invoke(function=Name(name="codes")):
                self.place(node.arguments[0], value, block)
            case Invoke(function=Name(name="spread")):
                size = _spread_size(node)
                codes = value[:: size // block[0], :: size // block[1]]
                powers = (codes.to(torch.int32) << 23).view(torch.float32)  # as a loader widens them
                self.place(node.arguments[0], powers, (1, 1))
            case Invoke(function=Name(name=name)) if name in self.docking.imported:
                setattr(self.at(node.arguments[0]), name, value)
            case _:
                raise TypeError(f"nothing to place at a {type(node).__name__}")

    def at(self, node: Node) -> Any:
        """The object ``node`` stands for, made where it is missing."""
        match node:
            case Name(name="layer"):
                return self.layer
            case Name() if node.name in self.docking.named:
                return self.at(self.docking.named[node.name].value)
            case Attribute():
                owner = self.at(node.value)
                if getattr(owner, node.name, None) is None:
                    setattr(owner, node.name, SimpleNamespace())
                return getattr(owner, node.name)
        raise TypeError(f"no object at a {type(node).__name__}")
