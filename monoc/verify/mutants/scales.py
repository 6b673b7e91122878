"""Operator "swapped scale": codes and scales exchanged, of another group, inverted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from monoc.verify.mutants.source import Site, Source, called

__all__ = ["scale_sites"]

_OPERATOR = "swapped scale"
_SCALE = re.compile(r"code|scale|inverse")


def scale_sites(source: Source) -> Iterator[Site]:
    """Every exchange of scales."""
    for node in source.nodes():
        if isinstance(node, ast.Call):
            yield from _arguments(source, node)
            yield from _groups(source, node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield from _launch_arguments(source, node)
        if isinstance(node, ast.Assign) and source.text(node.targets[0]) == "byte":
            yield source.site(_OPERATOR, node.value, f"({source.text(node.value)}) ^ 1", "the other tile's byte")
            yield source.site(_OPERATOR, node.value, f"({source.text(node.value)}) ^ 2", "the other step's byte")


def _arguments(source: Source, call: ast.Call) -> Iterator[Site]:
    """Two scale arguments of a call exchanged."""
    if called(call) in ("fma", "Float32", "Int32", "select", "max", "min", "zip", "append", "tuple"):
        return
    scales = [
        a
        for a in call.args
        if isinstance(a, ast.Name | ast.Attribute | ast.Subscript) and _SCALE.search(source.text(a))
    ]
    scales = [a for a in scales if source.text(a) not in ("mx_code", "mx_code_floor")]
    for first, second in pairwise(scales):
        a, b = source.text(first), source.text(second)
        if a == b:
            continue
        start, end = source.span(call)
        (a0, a1), (b0, b1) = source.span(first), source.span(second)
        text = (source.data[start:a0] + b.encode() + source.data[a1:b0] + a.encode() + source.data[b1:end]).decode()
        yield source.site(_OPERATOR, call, text, f"{a} and {b} exchanged in {called(call)}")


def _groups(source: Source, call: ast.Call) -> Iterator[Site]:
    name = called(call)
    plain = isinstance(call.func, ast.Name)
    if name == "code" and isinstance(call.func, ast.Attribute) and len(call.args) in (1, 2, 3):
        group = call.args[min(1, len(call.args) - 1)]
        yield source.site(
            _OPERATOR, group, f"(({source.text(group)}) ^ 1)", f"the neighbour's code in {source.text(call)[:60]}"
        )
    if name in ("load_codes", "block_address"):
        which = call.args[1]
        yield source.site(
            _OPERATOR, which, f"(({source.text(which)}) ^ 1)", f"the neighbour's codes in {source.text(call)[:60]}"
        )
    if name == "power_of_two_inverse" and plain:
        inner = source.text(call.args[0])
        yield source.site(
            _OPERATOR, call, f"power_of_two_inverse(254 - fx.Int32({inner}))", f"the scale for its inverse of {inner}"
        )
    if name == "load" and plain and call.args and re.search(r"_scale$", source.text(call.args[0])):
        index = source.text(call.args[1])
        other = {"0": "1", "1": "2", "2": "0"}.get(index)
        if other is not None:
            yield source.site(_OPERATOR, call.args[1], other, f"scale {other} for {index}")
    if name in ("mx_multiply", "mfma_mx") and len(call.args) >= 6:
        last = call.args[-1]
        if re.search(r"step|byte|\bs\b", source.text(last)):
            yield source.site(_OPERATOR, last, f"(({source.text(last)}) ^ 1)", "the other tile's byte")
            yield source.site(_OPERATOR, last, f"(({source.text(last)}) ^ 2)", "the other step's byte")


def _launch_arguments(source: Source, node: ast.Subscript) -> Iterator[Site]:
    """A stage given another weight's scales (unless it is given the weights themselves, requested earlier)."""
    if not (isinstance(node.value, ast.Name) and node.value.id == "args" and isinstance(node.slice, ast.Constant)):
        return
    call = source.parent.get(node)
    if isinstance(call, ast.Call) and any(source.text(a).endswith("_early") for a in call.args):
        return
    name = str(node.slice.value)
    all_ = _scale_arguments(source)
    if name in all_ and len(all_) > 1:
        other = all_[(all_.index(name) + 1) % len(all_)]
        yield source.site(_OPERATOR, node, f'args["{other}"]', f"{other} for {name}")


def _scale_arguments(source: Source) -> list[str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and source.text(node.targets[0]) == "ARGUMENTS":
            names = ast.literal_eval(node.value)
            return [n for n in names if re.search(r"(_scale|_s)$", n) and not n.startswith("hc_")]
    return []
