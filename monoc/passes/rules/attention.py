"""attention: the key table; the split over chunks of keys; the combine with inverse RoPE and quantisation.

keys, counts = key_table(...)        o = attend(q, keys, counts, ...)        o8 = mxfp8(unrope(o))
"""

from __future__ import annotations

from monoc.expr.slot import Slot
from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser
from monoc.passes.knobs import ATTEND_CHUNK
from monoc.passes.patterns import only_reads, squared
from monoc.schedule.formula import formula
from monoc.schedule.model import ZERO, Units
from monoc.skeletons.attend_combine import AttendCombineParams
from monoc.skeletons.attend_split import PACKED_TOKENS, AttendSplitParams, Cache, KeyCounts, KeyTable
from monoc.skeletons.key_table import KeyTableParams, Selection

__all__ = ["fuse_attention", "fuse_key_table"]


def fuse_key_table(f: Fuser, op: Operation) -> bool:
    """A key table, a token a task."""
    keys = op.writes[0]
    picks = f.op(op).operand("picks")
    ratio = f.size(op, f.attribute(op, "ratio"))
    block_table, compressed = f.op(op).operand("block_table"), f.op(op).operand("compressed")
    selection = None
    if picks is not None:
        selection = Selection(
            ratio=ratio,
            width=f.dim(picks, 1),
            indices=f.names.argument(picks),
            positions=f.names.argument(f.operand(op, "positions")),
            block_table=f.names.argument(block_table) if block_table else "",
            table_stride=f"{block_table}_stride" if block_table else "",
            block=f"{compressed}_block" if block_table else "",
            requests=f.names.argument(f.operand(op, "requests")) if block_table else "",
            paged=f.given_when(block_table),
            pitch=f"{picks}_width" if _bounded(f, op) else "",
        )
    window = f.operand(op, "window_slots")
    params = KeyTableParams(
        stage="key_table",
        table=f.hold(keys, "table", "b.tokens"),
        width=f.dim(keys, 1),
        cache_slots=f.names.argument(f.operand(op, "slots")),
        window=f.names.argument(window),
        window_counts=f.names.argument(f.operand(op, "window_lens")),
        window_width=f.dim(window, -1),
        selection=selection,
        fill=not _bounded(f, op),
    )
    f.add("key_table", params, [op])
    return True


def _bounded(f: Fuser, table: Operation) -> bool:
    """Whether the host decides how wide the picks' rows are, up to a bound: then a table's work is its keys'."""
    picks = f.op(table).operand("picks")
    return picks is not None and f.names.program.tensor[picks].shape[-1].at_most


def fuse_attention(f: Fuser, op: Operation) -> bool:
    """An attention: two stages."""
    o = op.writes[0]
    unrope = f.consumer(o, ("unrope",))
    quantise = f.consumer(unrope.writes[0], ("mxfp8",)) if unrope is not None else None
    if unrope is None or quantise is None:
        raise f.error(op, "has to be turned back and quantised by its one reader: mxfp8(unrope(o))")
    _fuse(f, op, unrope, quantise)
    return True


def _fuse(f: Fuser, op: Operation, unrope: Operation, quantise: Operation) -> None:
    o, query = op.writes[0], f.operand(op, "q")
    heads, head = f.dim(o, 1), f.dim(o, 2)
    width = f.dim(f.operand(op, "keys"), 1)
    table = f.held(f.operand(op, "keys"), "table")
    made = f.graph.producers(f.operand(op, "keys"))
    full = not any(_bounded(f, source) for source in made)
    keys = KeyTable(region=table.region, width=width, counts=f"b.tokens * {width}", full=full)
    rope, chunk = f.size(op, f.attribute(op, "rope")), f.named("attend_chunk", ATTEND_CHUNK.format(heads=heads))
    rows = f.held(query, "rows")
    chunks = f"cdiv({width}, {chunk})"
    compressed = f.op(op).operand("compressed")
    factor, factor_operations = _factor(f, op, query)
    split = AttendSplitParams(
        stage=f"{f.short(o)}_split",
        query=rows.region,
        keys=keys,
        region=f.hold(o, "chunks", f"b.tokens * {chunks}"),
        window=_cache(f.operand(op, "window")),
        compressed=_cache(compressed or f.operand(op, "window")),
        score=f.function_slot(f"{f.short(o)}_score", op, "score"),
        heads=heads,
        head=head,
        rope=rope,
        chunk=chunk,
        with_compressed=_given(f, compressed),
        query_units=Units(ZERO, formula(rows.units)),
        query_factor=factor,
        key_counts=_key_counts(f, made[0]) if len(made) == 1 and not full else None,
    )
    f.add(split.stage, split, [op, *factor_operations])
    # A group's heads are a wave each: the units of a group of heads are then one block a token tile.
    task_heads = f.named("combine_heads", f"min({_heads_together(f, quantise, heads)}, THREADS // 64)")
    combine = AttendCombineParams(
        stage=f"{f.short(o)}_combine",
        region=split.region,
        keys=keys,
        out=f.hold(o, "mx_v", f"b.tokens * ({heads} // {task_heads})", f"{task_heads} * {head}"),
        sink=f.names.argument(f.operand(op, "sink")),
        table=f.names.argument(f.operand(unrope, "table")),
        positions=f.names.argument(f.operand(unrope, "positions")),
        heads=heads,
        head=head,
        rope=rope,
        chunk=chunk,
        task_heads=task_heads,
        code="mx_code" if f.attribute(quantise, "rule") == "V" else "mx_code_floor",
    )
    f.also(quantise.writes[0], "mx", f.held(o, "mx_v"))
    # A task merges its own heads of every chunk.
    f.add(combine.stage, combine, [unrope, quantise], parts={split.region: f"{heads} // ({task_heads})"})


def _key_counts(f: Fuser, table: Operation) -> KeyCounts | None:
    """What the counts of a table follow from, so that a wide table's empty chunks are no tasks; None where a step may
    have more tokens than a wave has lanes."""
    tokens = next(p.values for p in f.names.program.space.params if p.name == "tokens")
    if max(tokens) > PACKED_TOKENS:
        return None
    own = f.op(table)
    window_counts, slots = (
        f.names.argument(f.operand(table, "window_lens")),
        f.names.argument(f.operand(table, "slots")),
    )
    picks = own.operand("picks")
    if picks is None:
        return KeyCounts(slots, window_counts)
    return KeyCounts(
        slots,
        window_counts,
        positions=f.names.argument(f.operand(table, "positions")),
        ratio=f.size(table, f.attribute(table, "ratio")),
        width=f.dim(picks, 1),
        pitch=f"{picks}_width" if _bounded(f, table) else "",
    )


def _factor(f: Fuser, op: Operation, query: str) -> tuple[Slot | None, list[Operation]]:
    """(slot, operations) of the factor of a head's scores: a function of the sum of its squared query values."""
    given = f.op(op).operand("factor")
    if given is None:
        return None, []
    factor = f.producer(given)
    squares = f.producer(factor.reads[0])
    if factor.kind != "map" or not only_reads(factor.map.expr, squares.writes[0]) or squared(squares) != (query, 1):
        raise f.error(factor, f"has to be a function of the sum of squares of {query} alone, a value a head")
    return f.slot(f"{f.short(op.writes[0])}_factor", factor), [squares, factor]


def _heads_together(f: Fuser, quantise: Operation, heads: str) -> str:
    """Heads one reader takes together: an output group's, or all."""
    for reader in f.graph.consumers(quantise.writes[0]):
        if reader.kind == "grouped_linear":
            return f"{heads} // {f.dim(f.operand(reader, 'x'), 1)}"
    return heads


def _cache(name: str) -> Cache:
    return Cache(name, f"{name}_block", f"{name}_stride")


def _given(f: Fuser, compressed: str | None) -> str:
    """In which builds the compressed cache is given."""
    if compressed is None:
        return "False"
    return f.names.guard(f.names.program.tensor[compressed].guard)
