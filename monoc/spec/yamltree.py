"""YAML as a small tree with a position for every key and value. Nothing is constructed from tags.

Anchors, aliases, tags, merge keys and several documents in a file are refused: a spec has no use for them, and
an untrusted one could make them expensive. Scalars keep their text; who reads them decides what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from monoc.diagnostics import Code, Diagnostics, Note, quoted
from monoc.expr.ir import Span

__all__ = ["YamlList", "YamlMap", "YamlNode", "YamlText", "parse_yaml"]

_MAX_DEPTH = 24


@dataclass(frozen=True)
class YamlText:
    """A scalar. ``line`` and ``column`` in ``span`` are those of its first character (of a quoted one: the quote).

    For a ``|`` block, ``block_line`` is the line of its first text line."""

    text: str
    span: Span
    quoted: bool = False
    block_line: int | None = None


@dataclass(frozen=True)
class YamlList:
    """A sequence."""

    items: tuple[YamlNode, ...]
    span: Span


@dataclass(frozen=True)
class YamlMap:
    """A mapping, in the order written."""

    items: tuple[tuple[YamlText, YamlNode], ...]
    span: Span

    def get(self, key: str) -> YamlNode | None:
        return next((v for k, v in self.items if k.text == key), None)


YamlNode = YamlText | YamlList | YamlMap


class _Refused(Exception):  # noqa: N818 -- control flow: already reported
    pass


def parse_yaml(path: str, text: str, diagnostics: Diagnostics) -> YamlNode | None:
    """The tree of ``text``; None (reported) when it is no YAML, empty, or uses what a spec may not."""
    for number, line in enumerate(text.split("\n"), 1):
        for column, c in enumerate(line, 1):
            if c == "\r" and column == len(line):
                continue
            if not (c.isprintable() or c == "\t"):
                at = Span(path, number, column)
                diagnostics.error(Code.BAD_TEXT, f"unprintable character U+{ord(c):04X}", at, "remove it")
                return None
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        at = Span(path, mark.line + 1, mark.column + 1) if mark else Span(path, 1, 1)
        diagnostics.error(
            Code.YAML_SYNTAX, f"not YAML: {e.problem or e.context}", at, "mind indentation, `:` and quotes"
        )
        return None
    except (YAMLError, ValueError) as e:
        diagnostics.error(Code.YAML_SYNTAX, f"not YAML: {quoted(str(e).splitlines()[0])}", Span(path, 1, 1))
        return None
    except RecursionError:
        diagnostics.error(Code.TOO_DEEP, "the YAML is nested too deep", Span(path, 1, 1), "a spec nests a few levels")
        return None
    if node is None:
        diagnostics.error(
            Code.YAML_SYNTAX, "the file is empty", Span(path, 1, 1), "see docs/language.md for a spec's keys"
        )
        return None
    try:
        return _Reader(path, diagnostics).read(node, 0)
    except _Refused:
        return None


class _Reader:
    def __init__(self, path: str, diagnostics: Diagnostics) -> None:
        self.path, self.diagnostics = path, diagnostics
        self.seen: set[int] = set()

    def _span(self, node: Any) -> Span:
        a, b = node.start_mark, node.end_mark
        length = b.column - a.column if b.line == a.line else 1 << 12
        return Span(self.path, a.line + 1, a.column + 1, max(1, length))

    def _refuse(self, code: Code, message: str, at: Span, remedy: str) -> _Refused:
        self.diagnostics.error(code, message, at, remedy)
        return _Refused()

    def read(self, node: Any, depth: int) -> YamlNode:
        span = self._span(node)
        if depth > _MAX_DEPTH:
            raise self._refuse(Code.TOO_DEEP, "the YAML is nested too deep", span, "a spec nests a few levels")
        if id(node) in self.seen or node.anchor is not None:
            raise self._refuse(
                Code.YAML_FEATURE, "anchors and aliases are not part of a spec", span, "write the value out"
            )
        self.seen.add(id(node))
        tag = str(node.tag or "")
        if not tag.startswith("tag:yaml.org,2002:") or "python" in tag:
            raise self._refuse(Code.YAML_FEATURE, f"the tag {quoted(tag)} is not part of a spec", span, "remove it")
        if isinstance(node, ScalarNode):
            block = node.start_mark.line + 2 if node.style in ("|", ">") else None
            if node.style == ">":
                raise self._refuse(Code.YAML_FEATURE, "a folded block", span, "use `|`")
            return YamlText(str(node.value), span, node.style in ("'", '"'), block)
        if isinstance(node, SequenceNode):
            return YamlList(tuple(self.read(n, depth + 1) for n in node.value), span)
        if not isinstance(node, MappingNode):
            raise self._refuse(Code.YAML_FEATURE, "neither scalar, list nor map", span, "remove it")
        items: list[tuple[YamlText, YamlNode]] = []
        first: dict[str, Span] = {}
        for k, v in node.value:
            if not isinstance(k, ScalarNode):
                raise self._refuse(Code.YAML_FEATURE, "a key that is not a word", self._span(k), "use a plain key")
            key = self.read(k, depth + 1)
            assert isinstance(key, YamlText)
            value = self.read(v, depth + 1)
            if key.text in first:
                self.diagnostics.error(
                    Code.DUPLICATE_KEY,
                    f"the key {quoted(key.text)} is given twice",
                    key.span,
                    "remove one",
                    Note("first given", first[key.text]),
                )
            else:
                first[key.text] = key.span
                items.append((key, value))
        return YamlMap(tuple(items), span)
