"""Layers made of a shipped spec by editing its text, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["OTHER_LAYER", "OTHER_PRO", "OTHER_TINY_PRO", "SPECS", "edited_spec"]

SPECS = Path(__file__).parents[2] / "layer_specs"
PARTS = ("programs", "docking")  # what specs include, by folder
PROGRAM = "programs/deepseek_v4.monoc"

# Hidden 4096, 48 heads, 256 experts top 8, another clamp, another score function, tp 2: (file, old text, new text).
OTHER_LAYER: tuple[tuple[str, str, str], ...] = (
    ("dsv41.yaml", "hidden: 5120", "hidden: 4096"),
    ("dsv41.yaml", "heads: 64 / tp", "heads: 48 / tp"),
    ("dsv41.yaml", "experts: 384, topk: 6", "experts: 256, topk: 8"),
    ("dsv41.yaml", "limit: 10 ", "limit: 7 "),
    ("dsv41.yaml", "tp: [2, 4]", "tp: [2]"),
    ("dsv41.yaml", "  ln2: 0.6931471805599453\n", ""),
    (PROGRAM, "fn score_of(logit) = sqrt(softplus(logit))", "fn score_of(logit) = sigmoid(logit)"),
    (PROGRAM, "fn softplus(x) = select(x > 20, x, log2(1 + exp2(x * log2e)) * ln2)\n", ""),
)


# Of V4-Pro: hidden 4096, 64 heads, 8 output groups, tp 4 and 8, top 512, 8 experts a token, two hops from 8 rows. What
# the model's docking says of its deployment does not hold for another layer.
OTHER_PRO: tuple[tuple[str, str, str], ...] = (
    ("dsv4_pro.yaml", "hidden: 7168", "hidden: 4096"),
    ("dsv4_pro.yaml", "heads: 128 / tp", "heads: 64 / tp"),
    ("dsv4_pro.yaml", "groups: 16 / tp", "groups: 8 / tp"),
    ("dsv4_pro.yaml", "  tp: 8\n", "  tp: [4, 8]\n"),
    ("dsv4_pro.yaml", "picks: 1024}", "picks: 512}"),
    ("dsv4_pro.yaml", "topk: 6", "topk: 8"),
    ("dsv4_pro.yaml", "two_hop: tokens >= 42", "two_hop: tokens >= 8"),
    ("dsv4_pro.yaml", "docking: docking/dsv4_pro.yaml\n", ""),
)

# The same with small sizes, on a grid of 7 CTAs, which divides nothing.
OTHER_TINY_PRO: tuple[tuple[str, str, str], ...] = (
    ("tiny_pro.yaml", "ctas: 8,", "ctas: 7,"),
    ("tiny_pro.yaml", "hidden: 256", "hidden: 512"),
    ("tiny_pro.yaml", "heads: 16 / tp", "heads: 32 / tp"),
    ("tiny_pro.yaml", "groups: 4 / tp", "groups: 8 / tp"),
    ("tiny_pro.yaml", "  inter: 384 / tp", "  inter: 512 / tp"),
    ("tiny_pro.yaml", "shared_inter: 384 / tp", "shared_inter: 512 / tp"),
    ("tiny_pro.yaml", "  tp: [1, 2, 4]\n", "  tp: [4, 8]\n"),
    ("tiny_pro.yaml", "picks: 64}", "picks: 32}"),
    ("tiny_pro.yaml", "  topk: 4\n", "  topk: 8\n"),
    ("tiny_pro.yaml", "two_hop: tokens >= 12", "two_hop: tokens >= 8"),
    ("tiny_pro.yaml", "docking: docking/dsv4_pro.yaml\n", ""),
)


def edited_spec(folder: Path, name: str, edits: Iterable[tuple[str, str, str]]) -> Path:
    """A copy of the shipped spec ``name`` in ``folder`` with ``edits``, each of which must hit exactly one place."""
    parts = [p for part in PARTS for p in (SPECS / part).iterdir()]
    texts = {f"{p.parent.name}/{p.name}": p.read_text() for p in parts}
    texts[name] = (SPECS / name).read_text()
    for file, old, new in edits:
        assert texts[file].count(old) == 1, (file, old)
        texts[file] = texts[file].replace(old, new)
    for part in PARTS:
        (folder / part).mkdir(parents=True)
    for file, text in texts.items():
        (folder / file).write_text(text)
    return folder / name
