"""The operators: which places of an emitted package they can spoil, and how."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from monoc.verify.mutants.indices import tile_sites
from monoc.verify.mutants.rounding import rounding_sites
from monoc.verify.mutants.scales import scale_sites
from monoc.verify.mutants.source import Site, Source, called

__all__ = ["OPERATORS", "sites"]

_SC1, _SC0 = 16, 1


def _library(source: Source) -> bool:
    return source.file == "device.py"


def dropped(source: Source) -> Iterator[Site]:
    """A hand-off dropped: words not put, units not announced, not waited for, a barrier or a mark left out."""
    operator = "hand-off dropped"
    names = {
        "put",
        "done",
        "wait",
        "wave_wait",
        "grid_barrier",
        "mark_epoch",
        "end_epoch",
        "_store_pairs",
        "_await_marks",
    }
    for node in source.nodes():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) in names:
            if _idle(source, node.value):
                continue
            waits = called(node.value) in ("wait", "wave_wait")
            regions = source.region(node.value) if waits else frozenset()
            yield source.site(operator, node, "None", f"no {source.short(node.value)}", regions)


def unscoped(source: Source) -> Iterator[Site]:
    """A scope bit removed: of one use of a region, or of an access in the device library."""
    operator = "scope bit removed"
    for use, regions in source.region_uses():
        peer = bool(regions & source.peers)
        for bit in (_SC0, _SC1) if peer else (_SC1,):
            text = f"_faulty.unscoped(_device, {use.id}, {bit})"
            yield source.site(
                operator, use, text, f"{use.id} without {'sc1' if bit == _SC1 else 'sc0'} in {_around(source, use)}"
            )
    if _library(source):
        for node in source.nodes():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in ("DEVICE", "SYSTEM"):
                for bit in (_SC1,) if node.id == "DEVICE" else (_SC0, _SC1):
                    yield source.site(operator, node, f"({node.id} & ~{bit})", f"{node.id} without bit {bit}")


def undrained(source: Source) -> Iterator[Site]:
    """A wait for stores removed: before a unit is announced, before a grid barrier."""
    operator = "wait for stores removed"
    for call in source.calls("done", "grid_barrier"):
        if not (_library(source) or _drained(source, call) or _idle(source, call)):
            text = f'_faulty.instead(_device, "drain_and_meet", "meet", lambda: {source.text(call)})'
            yield source.site(operator, call, text, f"{source.short(call)} without the wait", source.region(call))
    if _library(source):
        for node in source.nodes():
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) == "s_waitcnt":
                yield source.site(operator, node, "None", "no s_waitcnt")


def stale(source: Source) -> Iterator[Site]:
    """A stale tag accepted: any tag but 0 will do at one use of a region, or the epoch is left out of the tag."""
    operator = "stale tag accepted"
    for use, regions in source.region_uses():
        if not source.reads(use):
            continue
        text = f"_faulty.lenient(_device, {use.id})"
        yield source.site(operator, use, text, f"any tag of {use.id} in {_around(source, use)}", regions)
    for node in source.nodes():
        if isinstance(node, ast.Assign) and source.text(node.targets[0]) == "tag" and isinstance(node.value, ast.BinOp):
            first = node.value.left
            yield source.site(operator, first, "fx.Int32(plan.TAGS_PER_EPOCH)", "tags without the epoch")
            yield source.site(operator, first, f"({source.text(first)}) // 4 * 4", "tags that last two epochs")
        if isinstance(node, ast.Call) and called(node) == "lanes_unlike":
            seen = source.text(node.args[0])
            text = f"lanes_unlike(({seen} == 0).select(fx.Int32(1), fx.Int32(0)), 0)"
            yield source.site(operator, node, text, f"any {seen} but 0")
        if isinstance(node, ast.Call) and called(node) == "end_epoch":
            yield source.site(operator, node.args[4], "now", "the epoch stays")
        if isinstance(node, ast.Call) and called(node) == "grid_barrier":
            yield source.site(
                operator,
                node,
                f'_faulty.instead(_device, "poll_pairs", "poll_any", lambda: {source.text(node)})',
                "any tag of a grid barrier",
            )


def peer_offset(source: Source) -> Iterator[Site]:
    """A wrong peer offset: of a use of a peer region, of the source rank's part, of the epoch's half."""
    operator = "wrong peer offset"
    for use, regions in source.region_uses():
        if regions & source.peers:
            where = _around(source, use)
            yield source.site(operator, use, f"_faulty.elsewhere({use.id}, 1)", f"{use.id} a pair further in {where}")
            yield source.site(operator, use, f"_faulty.another({use.id})", f"another rank's {use.id} in {where}")
    for node in source.nodes():
        text = source.text(node) if isinstance(node, ast.BinOp | ast.Compare | ast.Call) else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left = source.text(node.left)
            if left in ("rank", "fx.Int32(at_rank)", "source", "self._rank") or text == "8 * r":
                factor = node.right if text == "8 * r" else node.left
                yield source.site(operator, factor, f"({source.text(factor)} + 1)", f"{text} of the next rank")
                if text != "8 * r":
                    yield source.site(operator, factor, f"({source.text(factor)} * 0)", f"{text} of rank 0")
        if isinstance(node, ast.Call) and called(node) == "Int64" and text == "fx.Int64(self._rank)":
            yield source.site(operator, node, f"({text} + fx.Int64(1))", "the next rank's own buffer")
        if isinstance(node, ast.Assign) and source.text(node.targets[0]) == "half":
            yield source.site(operator, node.value, "fx.Int64(0)", "always the first half")
            yield source.site(
                operator, node.value, f"({source.text(node.value)}) + fx.Int64(8)", "a half a pair further"
            )
        if text == "offset + self._half":
            yield source.site(operator, node, "offset", "no half")  # type: ignore[arg-type]
        if isinstance(node, ast.Compare) and text == "rank == other" and _library(source):
            yield source.site(operator, node, "(rank + 1 == other)", "the owner's neighbour")
        if isinstance(node, ast.Call) and called(node) == "owned":
            owner = source.text(node.args[0])
            yield source.site(operator, node.args[0], f"({owner} + 1) % b.tp", "the next rank owns")
        if isinstance(node, ast.Call) and called(node) == "sum_owned":
            for at in (4, 5):
                own = source.text(node.args[at])
                yield source.site(operator, node.args[at], f"(fx.Int32({own}) + 1)", f"{own} of the next rank")


OPERATORS: Mapping[str, Callable[[Source], Iterator[Site]]] = {
    "hand-off dropped": dropped,
    "scope bit removed": unscoped,
    "wait for stores removed": undrained,
    "wrong rounding": rounding_sites,
    "swapped scale": scale_sites,
    "off-by-one tile": tile_sites,
    "stale tag accepted": stale,
    "wrong peer offset": peer_offset,
}


def sites(source: Source) -> Iterator[Site]:
    """Every fault of every operator in ``source``; equal texts at equal places once."""
    seen: set[tuple[str, int, int, str]] = set()
    for find in OPERATORS.values():
        for site in find(source):
            key = (site.operator, site.start, site.end, site.text)
            if key not in seen:
                seen.add(key)
                yield site


def _around(source: Source, node: ast.AST) -> str:
    """The call a name is used in."""
    up: ast.AST | None = source.parent.get(node)
    while up is not None and not isinstance(up, ast.Call | ast.stmt):
        up = source.parent.get(up)
    return source.short(up) if up is not None else ""


def _idle(source: Source, call: ast.Call) -> bool:
    """Whether a call waits for peer memory or announces it."""
    return isinstance(call.func, ast.Attribute) and source.idle(call.func.value, source.region(call))


def _drained(source: Source, call: ast.Call) -> bool:
    """Whether another unit is announced, its stores waited for, right before: nothing was stored since."""
    statement = source.parent[call]
    siblings = getattr(source.parent[statement], "body", [])
    at = siblings.index(statement) if statement in siblings else 0
    before = siblings[at - 1] if at else None
    return isinstance(before, ast.Expr) and isinstance(before.value, ast.Call) and called(before.value) == called(call)
