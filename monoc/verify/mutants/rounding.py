"""Operator "wrong rounding": towards zero in place of to nearest even, or not at all; of values and of scale codes.

Left out, because nothing can come of them: rounding to bf16 what was just rounded to it, and leaving a rounding to
bf16 away where only a packing to bf16 follows. A product and a sum rounded apart in place of a fused one is a fault
where the result is asked in bits (folds); elsewhere it moves the last bit of an fp32 number behind a sum whose order is
free.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from monoc.verify.mutants.source import Site, Source, called

__all__ = ["rounding_sites"]

_OPERATOR = "wrong rounding"
# A call that rounds inside the library: (what is called, what it rounds with, the fault).
_INSIDE = (
    ("pack_row", "bf16_pack", "pack_truncated"),
    ("bf16_pack", "bf16_pack", "pack_truncated"),
    ("mx_words", "e4m3_pack", "e4m3_truncated"),
    ("mx_code", "scale_code", "code_down"),
    ("mx_code_floor", "scale_code", "code_down"),
    ("record_code", "scale_code", "code_down"),
    ("sum_parts", "bf16_round", "round_truncated"),
    ("publish_mx_quad", "e4m3_pack", "e4m3_truncated"),
    ("put_head", "e4m3_pack", "e4m3_truncated"),
    ("merge_chunks", "bf16_round", "round_truncated"),
    ("put_mx", "e4m3_pack", "e4m3_truncated"),
    ("put_probabilities", "bf16_pack", "pack_truncated"),
    ("weighted", "bf16_pack", "pack_truncated"),
    ("sum_owned", "bf16_pack", "pack_truncated"),
    ("split_weights", "bf16_pack", "pack_truncated"),
)
_OWN = ("pack_row", "bf16_pack", "mx_words")  # called by the library itself


def rounding_sites(source: Source) -> Iterator[Site]:
    """Every rounding that can go wrong."""
    for call in source.calls("bf16_round"):
        if source.function(call) == "bf16_round" or _rounds(source, call.args[0]):
            continue
        inner = ", ".join(source.text(a) for a in call.args)
        yield source.site(_OPERATOR, call, f"_faulty.truncate({inner})", f"{source.short(call)} towards zero")
        if not _packed_anyway(source, call):
            yield source.site(_OPERATOR, call, f"fx.Float32({inner})", f"{source.short(call)} not rounded")
    for outer, name, wrong in _INSIDE:
        for call in source.calls(outer):
            if source.file == "device.py" and outer not in _OWN:
                continue
            if outer == "pack_row" and _rounded_before(source, call):
                continue
            text = f'_faulty.instead(_device, "{name}", "{wrong}", lambda: {source.text(call)})'
            yield source.site(_OPERATOR, call, text, f"{source.short(call)}: {name} towards zero")
    for call in source.calls("fma"):
        if source.function(call).endswith("_fold"):
            a, b, c = (source.text(x) for x in call.args)
            yield source.site(_OPERATOR, call, f"fx.Float32(({a}) * ({b}) + ({c}))", f"{source.short(call)} not fused")


def _rounds(source: Source, value: ast.expr) -> bool:
    """Whether a value is a bf16 number already: made by a function that rounds last."""
    return isinstance(value, ast.Call) and (called(value) == "bf16_round" or called(value) in _rounders(source))


def _rounders(source: Source) -> set[str]:
    """The file's functions whose result is a ``bf16_round``."""
    found = set()
    for name, function in source.functions.items():
        last = function.body[-1]
        if isinstance(last, ast.Return) and isinstance(last.value, ast.Call) and called(last.value) == "bf16_round":
            found.add(name)
    return found


def _results(source: Source, call: ast.Call) -> list[ast.Call]:
    """Where the rounding's result appears: the call itself, or for a function's last act the function's calls."""
    if isinstance(source.parent.get(call), ast.Return):
        name = source.function(call)
        return [c for c in source.calls(name) if source.function(c) != name]
    return [call]


def _assigned(source: Source, node: ast.AST) -> tuple[str, ast.stmt] | None:
    """The name a value (or the list it is an element of) is given."""
    at: ast.AST | None = node
    while isinstance(at, ast.expr | ast.comprehension):
        up = source.parent.get(at)
        if isinstance(up, ast.Call):
            return None
        at = up
    one = isinstance(at, ast.Assign) and isinstance(at.targets[0], ast.Name)
    if one and isinstance(at, ast.Assign) and isinstance(at.targets[0], ast.Name):
        return at.targets[0].id, at
    return None


def _uses(source: Source, name: str, after: ast.stmt) -> list[ast.Name]:
    """Where the name is read from the next statement on, up to where it is given anew."""
    function = source.functions.get(source.function(after))
    found: list[ast.Name] = []
    for node in sorted(
        (n for n in ast.walk(function or source.tree) if isinstance(n, ast.Name) and n.id == name),
        key=lambda n: (n.lineno, n.col_offset),
    ):
        if node.lineno <= (after.end_lineno or after.lineno):
            continue
        if isinstance(node.ctx, ast.Store):
            break
        found.append(node)
    return found


def _inside(source: Source, node: ast.AST, name: str) -> bool:
    at = source.parent.get(node)
    while isinstance(at, ast.expr):
        if isinstance(at, ast.Call) and called(at) == name:
            return True
        at = source.parent.get(at)
    return False


def _packed_anyway(source: Source, call: ast.Call) -> bool:
    """Whether all that becomes of the result is a packing or another rounding to bf16."""
    places = _results(source, call)
    for place in places:
        if _inside(source, place, "bf16_round") and place is not call:
            continue
        given = _assigned(source, place)
        if given is None:
            return False
        uses = _uses(source, *given)
        if not uses or not all(_inside(source, use, "pack_row") for use in uses):
            return False
    return bool(places)


def _rounded_before(source: Source, call: ast.Call) -> bool:
    """Whether a packing's values were rounded to bf16 when they got their name."""
    value = call.args[0]
    name = value.id if isinstance(value, ast.Name) else ""
    function = source.functions.get(source.function(call))
    if not name or function is None:
        return False
    given = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and source.text(node.targets[0]) == name and node.lineno < call.lineno
    ]
    if not given:
        return False
    last = max(given, key=lambda n: n.lineno)
    inner = last.value.elt if isinstance(last.value, ast.ListComp) else last.value
    return isinstance(inner, ast.expr) and _rounds(source, inner)
