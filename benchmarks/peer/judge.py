"""One step of both sides on the same inputs: counts, and errors against the exact mode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from monoc.reference.formats import Mx
from monoc.spec.program import Build, Program
from peer.errors import ErrorRow, Parting
from peer.inputs import HEAD, HEADS, HIDDEN, INTER, O_RANK, Q_RANK, TOPK, WINDOW, Inputs, Shapes
from peer.left import Left, emitted_values
from peer.left_by_hand import Widths, hand_written_values
from peer.sides import WRITTEN, Side, ffn_part, run_side
from peer.walk import Step, walk_step

__all__ = ["Judged", "Sides", "judge"]

CARRIED = ("q", "res_mid", "post_a", "comb_a", "pre_a")  # from K1 to K2


@dataclass(frozen=True)
class Sides:
    """Both runners' modules, ours compiled from ``program`` with ``plan``; ``cache`` keeps compiled kernels."""

    program: Program
    plan: Any
    ours: Callable[[], ModuleType]
    theirs: Callable[[], ModuleType]
    cache: Path


@dataclass(frozen=True)
class Judged:
    """One step of both sides: errors of what both left, and where they part."""

    ours: Side
    theirs: Side
    rows: list[ErrorRow]
    partings: list[Parting]


def find_build(program: Program, shapes: Shapes) -> Build:
    """The target layer's build of ``shapes``."""
    known = {"ratio": shapes.ratio, "fold": int(shapes.fold), "index": int(shapes.index)}
    return next(b for b in program.space.builds(tokens=shapes.tokens, tp=shapes.tp, **known) if b.variant == "target")


def judge(sides: Sides, shapes: Shapes, inputs: Inputs, launch: str, kind: str, *, debug: bool = False) -> Judged:
    """Run ``launch`` ("layer" or "ffn") on both sides; K2 of both from what our K1 left."""
    name = "forward" if launch == "layer" else "ffn"
    program = sides.program
    entry = next(e for e in program.entries if e.name == name)
    build = find_build(program, shapes)
    given = tuple(_given(inputs, shapes, rank, name) for rank in range(shapes.tp))
    ours = run_side(sides.ours, shapes, inputs, launch, sides.cache, debug=debug)
    values = emitted_values(program, sides.plan, build, entry, ours.left, ours.outputs, given)
    before = {"k2": _handed(values, ours.left["k1"])} if launch == "layer" else {}
    theirs = run_side(sides.theirs, shapes, inputs, launch, sides.cache, debug=debug, before=before)
    sink = inputs.attn["attn_sink"]
    assert isinstance(sink, torch.Tensor)
    others = hand_written_values(_widths(shapes), name, theirs.left, theirs.outputs, sink)
    caches = {"ours": _caches(ours), "theirs": _caches(theirs)}
    step = Step(program, build, entry, kind, given, {"ours": values, "theirs": others}, caches)
    return Judged(ours, theirs, *walk_step(step))


def _widths(s: Shapes) -> Widths:
    return Widths(
        layer="vllm.models.deepseek_v41.amd.mono.layer",
        layout=(s.tokens, s.tp),
        tokens=s.tokens,
        tp=s.tp,
        hidden=HIDDEN,
        q_rank=Q_RANK,
        head=HEAD,
        heads=HEADS // s.tp,
        o_rows=8 // s.tp * O_RANK,
        keys=TOPK + WINDOW,
        inter=INTER // s.tp,
        padded=s.inter,
        shared=INTER // s.tp,
        ffn_at=s.tp * s.tokens * HIDDEN * 4,
        ffn="ffn_half.y",
        prefix="ffn_half.",
        carried={n: n for n in CARRIED} | ({"y": "normed", "q_lat": "qr"} if s.index else {}),
    )


def _given(inputs: Inputs, shapes: Shapes, rank: int, entry: str) -> dict[str, torch.Tensor]:
    tensors = {n: t for n, t in inputs.attn.items() if isinstance(t, torch.Tensor)} | inputs.layer | inputs.step
    if entry == "ffn":
        tensors["part"] = ffn_part(inputs.step["x"], rank, shapes.tp)
    return tensors


def _handed(values: Mapping[str, Any], left: Left) -> Left:
    """What K2 is given: our K1's values as the hand-written runner keeps them, and our KV records."""
    found = Left()
    for rank, caches in enumerate(left.caches):
        kept = {n: values[n].ranks[rank] for n in CARRIED if n in values}
        assert not any(isinstance(v, Mx) for v in kept.values())
        found.kept.append({n: v.to(torch.bfloat16) if n in ("q", "res_mid") else v for n, v in kept.items()})
        found.caches.append(caches)
    return found


def _caches(side: Side) -> dict[str, list[torch.Tensor]]:
    """What K1 wrote, by name and rank."""
    return {n: [c[n] for c in side.left["k1"].caches] for n in WRITTEN if "k1" in side.left}
