"""The hand-written launches' longest hand-off chains, read off their stages by hand.

Counted as `monoc plan` counts ours: a tagged pair 1, words behind a flag 2, a push to every rank 2, a launch boundary
or LDS 0. They do not depend on the step width: each hand-off has one form; but V4-Pro's wide steps reduce in two hops,
two pushes a reduce. A hop is (form, who hands on, who waits).
"""

from collections.abc import Mapping

__all__ = ["HOPS", "PRO_HOPS", "chain_length", "pro_chain_length"]

COSTS = {"pair": 1, "flag": 2, "peer": 2}

_SEAM = [("pair", "slice", "norm")]
# Router and quantisation both wait for the norm's flag; the quantised rows reach the experts behind a flag of their
# own, the logits and then the routes as pairs: four either way. The shared expert's way to down is one shorter.
_MOE = [
    ("flag", "norm", "router"),
    ("pair", "router", "route"),
    ("pair", "route", "expert up"),
    ("flag", "expert up", "expert down"),
    ("peer", "expert down", "reduce"),
]
HOPS: Mapping[str, list[tuple[str, str, str]]] = {
    "k1": [
        *_SEAM,
        ("flag", "norm", "wqkv"),
        ("pair", "wqkv", "norms of its halves"),
        ("flag", "norms of its halves", "wq_b"),
    ],
    "k2": [
        ("flag", "split", "combine"),
        ("flag", "combine", "wo_a"),
        ("flag", "wo_a", "wo_b"),
        ("peer", "wo_b", "slice"),
        *_SEAM,
        *_MOE,
    ],
    "ffn": [("peer", "push", "slice"), *_SEAM, *_MOE],
}

# V4-Pro's seam gates before it collapses: a hop more. Its K2 builds the key table, each token's behind a flag.
_PRO_SEAM = [("pair", "slice", "gate"), ("pair", "gate", "norm")]
PRO_HOPS: Mapping[str, list[tuple[str, str, str]]] = {
    "k1": [*_PRO_SEAM, *HOPS["k1"][len(_SEAM) :]],
    "k2": [
        ("flag", "key table", "split"),
        ("flag", "split", "combine"),
        ("flag", "combine", "wo_a"),
        ("flag", "wo_a", "wo_b"),
        ("peer", "wo_b", "reduce in the slice's CTA"),
        *_PRO_SEAM,
        *_MOE,
    ],
}


def chain_length(launch: str) -> int:
    """Round trips on the longest chain of V4.1's `launch` (k1, k2, ffn)."""
    return sum(COSTS[form] for form, _, _ in HOPS[launch])


def pro_chain_length(launch: str, two_hop: bool) -> int:
    """The same of V4-Pro's `launch` (k1, k2); `two_hop`: its reduces go through each column's owner."""
    forms = [form for form, _, _ in PRO_HOPS[launch]]
    return sum(COSTS[form] for form in forms) + (forms.count("peer") * COSTS["peer"] if two_hop else 0)
