"""Operator "off-by-one tile": a tile, task or unit too far, one left out, one too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from monoc.verify.mutants.source import Site, Source, called

__all__ = ["tile_sites"]

_OPERATOR = "off-by-one tile"
_INDICES = frozenset(
    {"task", "tile", "row_task", "part", "chunk", "block", "step", "token_tile", "expert_tile", "group", "unit", "turn",
     "pair", "slice_", "start", "base", "wave"}
)  # fmt: skip


def tile_sites(source: Source) -> Iterator[Site]:
    """Every place where a tile can be missed by one."""
    for node in source.nodes():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                if isinstance(side, ast.Name) and side.id in _INDICES:
                    yield source.site(_OPERATOR, side, f"({side.id} + 1)", f"{side.id} + 1 in {source.text(node)}")
        if isinstance(node, ast.For):
            yield from _loop(source, node)
        if isinstance(node, ast.Compare) and _limits_a_tile(source, node):
            left, right = source.text(node.left), source.text(node.comparators[0])
            yield source.site(_OPERATOR, node, f"{left} <= {right}", f"{left} <= {right}")
        if isinstance(node, ast.Call):
            yield from _units(source, node)
        if isinstance(node, ast.keyword) and node.arg == "tasks" and source.file == "plan.py":
            text = source.text(node.value)
            yield source.site(_OPERATOR, node.value, f"({text}) - 1", f"{text} - 1 tasks")
            yield source.site(_OPERATOR, node.value, f"({text}) + 1", f"{text} + 1 tasks")


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _limits_a_tile(source: Source, node: ast.Compare) -> bool:
    below = len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt)
    return below and isinstance(source.parent.get(node), ast.If) and bool(_names(node.left) & _INDICES)


def _loop(source: Source, node: ast.For) -> Iterator[Site]:
    """The first or the last turn of a loop over tiles left out."""
    call, target = node.iter, node.target
    if not (
        isinstance(call, ast.Call) and called(call) in ("range", "range_constexpr") and isinstance(target, ast.Name)
    ):
        return
    if len(call.args) != 3 and target.id not in _INDICES:
        return
    texts = [source.text(a) for a in call.args]
    first, last, step = ("0", texts[0], "1") if len(texts) == 1 else (*texts, "1")[:3]
    name = called(call)
    yield source.site(
        _OPERATOR, call, f"{name}({first} + {step}, {last}, {step})", f"{target.id} from {first} + {step}"
    )
    yield source.site(
        _OPERATOR, call, f"{name}({first}, {last} - {step}, {step})", f"{target.id} up to {last} - {step}"
    )


def _units(source: Source, call: ast.Call) -> Iterator[Site]:
    """A unit other than the one meant waited for or announced."""
    if not isinstance(call.func, ast.Attribute) and called(call) != "wave_wait":
        return
    if called(call) in ("wait", "wave_wait") and source.file != "device.py" and len(call.args) >= 3:
        count = source.text(call.args[-1])
        yield source.site(_OPERATOR, call.args[-1], f"({count}) - 1", f"waits for {count} - 1 units")
        first = source.text(call.args[-2])
        yield source.site(_OPERATOR, call.args[-2], f"({first}) + 1", f"waits from unit {first} + 1")
    if called(call) == "done" and source.file != "device.py":
        unit = source.text(call.args[-1])
        yield source.site(_OPERATOR, call.args[-1], f"({unit}) + 1", f"announces unit {unit} + 1")
