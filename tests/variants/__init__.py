"""Layers made of a shipped spec by editing its text, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["OTHER_LAYER", "SPECS", "edited_spec"]

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
