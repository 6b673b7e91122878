"""latent-norm: the two latents of an MLA front, from the partial sums of one linear.

q_raw, kv_raw = split(bf16(linear))        q_lat = rmsnorm(q_raw), quantised
kv = bf16(rope(rmsnorm(kv_raw)))           kv_insert(cache, kv, slots)
"""

from __future__ import annotations

from monoc.graph.model import Operation
from monoc.passes.fuser import Fuser
from monoc.passes.knobs import SPLIT_K
from monoc.passes.patterns import rounds, squared
from monoc.passes.rules.row_norm import RSTD, mx_outputs, norm_slots
from monoc.skeletons.latent_norm import LatentNormParams, NormedSegment

__all__ = ["fuse_latents"]


def fuse_latents(f: Fuser, insert: Operation) -> bool:
    """A KV record written from a normed latent, and the latent beside it."""
    record = f.operand(insert, "x")
    rounded = f.producer(record)
    rope = f.producer(rounded.reads[0])
    if rope.kind != "rope" or not rounds(rounded, rope.writes[0]):
        raise f.error(insert, f"writes {record}, which has to be bf16(rope(...))")
    scale = f.producer(f.operand(rope, "x"))
    record_raw, record_squares = _normed(f, scale)
    whole = f.graph.base(record_raw)
    halves = [v for v in f.graph.views if f.graph.base(v) == whole and v != record_raw]
    if len(halves) != 1:
        raise f.error(insert, f"shares {whole} with {len(halves)} other parts, not with one")
    latent_raw = halves[0]
    squares = next((op for op in f.graph.consumers(whole) if squared(op) == (latent_raw, 1)), None)
    latent = f.consumer(squares.writes[0], ("map",)) if squares is not None else None
    if squares is None or latent is None:
        raise f.error(insert, f"stands beside {latent_raw}, which no norm takes")
    quantised = [op for op in f.graph.consumers(latent.writes[0]) if op.kind == "mxfp8"]
    made = f.held(whole, "parts")
    name = f.stage_name(insert, "latents")
    cache, value = f.operand(insert, "cache"), latent.writes[0]
    width, turned = f.dim(record_raw, 1), f.size(insert, f.attribute(insert, "rope"))
    params = LatentNormParams(
        stage=name,
        partials=made.region,
        parts=SPLIT_K,
        partial_units=made.units,
        latent=_segment(f, f"{name}_q", squares, latent, latent_raw),
        record=_segment(f, f"{name}_kv", record_squares, scale, record_raw),
        nope=f"({width} - {turned})",
        rope=turned,
        positions=f.names.argument(f.operand(rope, "positions")),
        cache_slots=f.names.argument(f.operand(insert, "slots")),
        table=f.names.argument(f.operand(rope, "table")),
        cache=f.names.argument(cache),
        cache_block=f"{cache}_block",
        cache_stride=f"{cache}_stride",
        mx=mx_outputs(f, value, quantised),
        out=f.names.argument(value) if f.in_memory(value) else "",
        out_when=f.leaves_when(value),
    )
    rounding = f.producer(whole)
    f.add(name, params, [rounding, squares, latent, *quantised, record_squares, scale, rope, rounded, insert])
    return True


def _normed(f: Fuser, scale: Operation) -> tuple[str, Operation]:
    """(raw value, its sum of squares) of a scaled row."""
    for value in scale.reads:
        for op in f.graph.producers(value):
            found = squared(op)
            if found is not None and found[1] == 1 and found[0] in scale.reads:
                return found[0], op
    raise f.error(scale, "scales no row by its own sum of squares")


def _segment(f: Fuser, name: str, squares: Operation, scale: Operation, raw: str) -> NormedSegment:
    rstd, scaled, weights = norm_slots(f, name, squares, scale, raw)
    return NormedSegment(columns=f.dim(raw, 1), rstd=rstd, scale=scaled, value=raw, rstd_value=RSTD, weights=weights)
