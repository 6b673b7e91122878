"""A lint of the stage templates: no literal dimension, no condition on what a spec says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

import monoc.skeletons

TEMPLATES = sorted((Path(monoc.skeletons.__file__).parent / "templates").glob("*.j2"))

# Numbers of the hardware and the formats: an MX group, a wave's lanes, the K of a scaled MFMA, a wave's 16x16 tile in
# words, the sign bit; up to 16 a number may count words, lanes or registers of an instruction.
HARDWARE = {32, 64, 128, 256, 1 << 31}
# What a template may compare with: the kind of an epilogue (which parameters class it is) or of a reduction, an axis of
# a token program, "always", one part.
STRUCTURE = {"push", "rows", "mx", "partials", "row", "max", "True", "0", 1, 0}


def _all(node: nodes.Node, kinds: type[nodes.Node] | tuple[type[nodes.Node], ...]) -> list[nodes.Node]:
    """``node`` and those below it, of ``kinds``."""
    return [*([node] if isinstance(node, kinds) else []), *node.find_all(kinds)]


def findings(source: str) -> Iterator[str]:
    """What the lint has against a template."""
    tree = jinja2.Environment().parse(source)
    for node in tree.find_all((nodes.If, nodes.CondExpr)):
        for compare in _all(node.test, nodes.Compare):
            constants = [c.value for c in compare.find_all(nodes.Const)]
            others = [c for c in constants if c not in STRUCTURE]
            if others or not constants:
                yield f"line {node.lineno}: condition on content: {others or 'two values compared'}"
        if _all(node.test, (nodes.Call, nodes.Filter)):
            yield f"line {node.lineno}: a condition that computes"
    docstrings = re.compile(r'"""(?:.|\n)*?"""')
    for data in tree.find_all(nodes.TemplateData):
        text = re.sub(r"#.*", "", docstrings.sub("", data.data))
        for number in re.findall(r"(?<![\w.])(?:0x[0-9A-Fa-f]+|\d+)(?![\w.])", text):
            if (value := int(number, 0)) > 16 and value not in HARDWARE:
                yield f"line {data.lineno}: literal dimension {value}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_are_dumb(path: Path) -> None:
    assert list(findings(path.read_text())) == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 5120\n", "line 1: literal dimension 5120"),
        ("y\nfor t in range(48):\n", "literal dimension 48"),
        ("{% if p.hidden == 'HIDDEN' %}a{% endif %}", "condition on content: ['HIDDEN']"),
        ("{% if p.experts > 128 %}a{% endif %}", "condition on content: [128]"),
        ("{{ 'a' if p.stage == 'attn_seam' else 'b' }}", "condition on content: ['attn_seam']"),
        ("{% if p.stage.startswith('attn') %}a{% endif %}", "a condition that computes"),
        ("{% if p.name == q.name %}a{% endif %}", "two values compared"),
    ],
)
def test_the_lint_finds(source: str, says: str) -> None:
    assert any(says in found for found in findings(source))


def test_the_lint_leaves_structure_and_hardware_alone() -> None:
    source = '{% if p.activation %}lane % 64{% endif %}{% if out.kind == "push" and p.parts > 1 %}x{% endif %} # 5120\n'
    assert list(findings(source)) == []
