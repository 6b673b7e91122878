"""Typed reading of YAML maps: known keys, kinds and positions, every problem reported with its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from monoc.diagnostics import Code, Diagnostics, quoted, suggestion
from monoc.expr.ir import Span
from monoc.spec.ast import Node
from monoc.spec.syntax import Syntax, name_problem
from monoc.spec.yamltree import YamlList, YamlMap, YamlNode, YamlText

__all__ = ["Fields", "Reader"]

_KINDS = {YamlText: "a word or number", YamlList: "a list", YamlMap: "a map"}
_T = TypeVar("_T", YamlText, YamlList, YamlMap)


class Reader:
    """Reads scalars and maps of one run's specs, reporting to its collector."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.syntax = Syntax(diagnostics)

    def kind(self, node: YamlNode, kind: type[_T], what: str) -> _T | None:
        """``node`` if it is a ``kind``, else None (reported); ``what`` names it in the message."""
        if isinstance(node, kind):
            return node
        self.diagnostics.error(Code.WRONG_KIND, f"{what} is {_KINDS[type(node)]}", node.span, f"write {_KINDS[kind]}")
        return None

    def name(self, text: YamlText, what: str) -> str | None:
        """The text as a name, None (reported) where it cannot be one."""
        problem = name_problem(text.text)
        if problem is None and text.block_line is None:
            return text.text
        self.diagnostics.error(Code.BAD_NAME, f"{quoted(text.text)} cannot name {what}", text.span, problem)
        return None

    def choice(self, text: YamlText, known: Iterable[str], what: str) -> str | None:
        """The text if it is one of ``known``."""
        known = list(known)
        if text.text in known:
            return text.text
        listed = "one of " + ", ".join(f"`{k}`" for k in known)
        self.diagnostics.error(
            Code.UNKNOWN_CHOICE,
            f"{what} {quoted(text.text)} is not known",
            text.span,
            suggestion(text.text, known, listed),
        )
        return None

    def integer(self, text: YamlText, what: str, least: int = 0) -> int | None:
        """The text as a decimal integer of at least ``least`` and below 2**31."""
        if text.text.isascii() and text.text.isdigit() and len(text.text) <= 10 and not text.quoted:
            value = int(text.text)
            if least <= value < 1 << 31:
                return value
        self.diagnostics.error(
            Code.WRONG_KIND,
            f"{what} is {quoted(text.text)}",
            text.span,
            f"write an integer from {least} to {(1 << 31) - 1}",
        )
        return None

    def parse(self, start: str, text: YamlText) -> Node | tuple[Node, Node] | None:
        """The scalar parsed by the grammar's ``start`` rule."""
        if text.block_line is not None:
            self.diagnostics.error(
                Code.WRONG_KIND, "an expression over several lines", text.span, "write it on one line"
            )
            return None
        at = text.span
        node: Node | tuple[Node, Node] | None
        node = self.syntax.parse(start, text.text, at.file, at.line, at.column + text.quoted)
        return node

    def expression(self, start: str, text: YamlText) -> Node | None:
        node = self.parse(start, text)
        return node if isinstance(node, Node) else None


class Fields:
    """The keys of one map: unknown ones are reported at once, missing ones when they are asked for."""

    def __init__(self, reader: Reader, node: YamlMap, what: str, known: Iterable[str]) -> None:
        self.reader, self.node, self.what = reader, node, what
        known = list(known)
        for key, _ in node.items:
            if key.text not in known:
                listed = "known keys: " + ", ".join(f"`{k}`" for k in known)
                reader.diagnostics.error(
                    Code.UNKNOWN_KEY,
                    f"{what} has no key {quoted(key.text)}",
                    key.span,
                    suggestion(key.text, known, listed),
                )

    def has(self, key: str) -> bool:
        return self.node.get(key) is not None

    def at(self, key: str) -> Span:
        """Where ``key`` is written (the map's own place if it is not)."""
        return next((k.span for k, _ in self.node.items if k.text == key), self.node.span)

    def _get(self, key: str, kind: type[_T], required: bool) -> _T | None:
        value = self.node.get(key)
        if value is None:
            if required:
                span = Span(self.node.span.file, self.node.span.line, self.node.span.column, self.node.span.length)
                self.reader.diagnostics.error(
                    Code.MISSING_KEY, f"{self.what} lacks the key `{key}`", span, f"add `{key}: ...`"
                )
            return None
        return self.reader.kind(value, kind, f"`{key}` of {self.what}")

    def text(self, key: str, *, required: bool = False) -> YamlText | None:
        return self._get(key, YamlText, required)

    def list(self, key: str, *, required: bool = False) -> YamlList | None:
        return self._get(key, YamlList, required)

    def map(self, key: str, *, required: bool = False) -> YamlMap | None:
        return self._get(key, YamlMap, required)

    def texts(self, key: str, *, required: bool = False) -> tuple[YamlText, ...]:
        """A list of scalars (or one scalar, taken as a list of one)."""
        value = self.node.get(key)
        if isinstance(value, YamlText):
            return (value,)
        got = self.list(key, required=required)
        if got is None:
            return ()
        return tuple(
            t for item in got.items if (t := self.reader.kind(item, YamlText, f"an item of `{key}`")) is not None
        )

    def choice(self, key: str, known: Iterable[str], *, required: bool = False) -> str | None:
        text = self.text(key, required=required)
        return None if text is None else self.reader.choice(text, known, f"`{key}` of {self.what}:")

    def integer(self, key: str, *, required: bool = False, least: int = 0) -> int | None:
        text = self.text(key, required=required)
        return None if text is None else self.reader.integer(text, f"`{key}` of {self.what}", least)
