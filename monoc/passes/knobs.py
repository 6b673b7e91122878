"""Numbers the fuse rules choose and nothing in the spec says: tiles, slices, splits of K.

Each is a plan expression (it may depend on the build) or an integer the skeleton unrolls by.
"""

from __future__ import annotations

__all__ = [
    "ATTEND_CHUNK",
    "EXPERT_DEPTH",
    "GATED_TILES",
    "LINEAR_TILES",
    "ROUTER_PARTS",
    "ROUTE_COPIES",
    "SLICE_COLUMNS",
    "SPLIT_K",
]

SLICE_COLUMNS = "32"  # hidden columns of a seam slice, of a push and of a rank sum
# Row tiles of a dense linear's task: as many as let every CTA have at most one task. A second task's weights would be
# requested only when the first is done, and weights are requested before an earlier stage's wait only for one task.
LINEAR_TILES = "min(4, cdiv({rows}, 16 * GRID))"  # of a small grid four: a wave holds their weights
SPLIT_K = 2  # parts of K of a linear whose partial sums another stage adds anyway
GATED_TILES = 4  # row tiles of a gated linear: 8 outputs each, so that a task fills an MXFP8 group of 32
# Parts of K of the router's logits. A task walks all token tiles: past one, as many parts as keep a CTA's work what it
# was, where the grid has a CTA for each.
ROUTER_PARTS = "4 if b.tokens <= 16 else max(4, min(8, GRID // cdiv({experts}, 16)))"
ROUTE_COPIES = "8"  # copies of the routes: all CTAs polling one small region queue up on its lines
# Pairs of K steps an expert up task has in flight, 17 registers each: past one token tile the gather takes their place.
# At one or two rows nothing else hides the first weights' latency.
EXPERT_DEPTH = "5 if b.tokens <= 2 else 4 if b.tokens <= 16 else 3"
# Keys a split task: a record tile of 128 keys, half of it where the queries of many heads take their place in LDS.
ATTEND_CHUNK = "64 if {heads} > 16 else 128"
