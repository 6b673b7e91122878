"""Parsing the scalars and lines of a docking section with ``grammar/docking.lark``."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from functools import cache
from typing import Any

from lark import Lark, v_args

from monoc.diagnostics import Code, quoted
from monoc.expr.ir import Span
from monoc.spec.ast import ListNode, Name, Node
from monoc.spec.docking_ast import Attribute, Choice, Constant, Invoke, Item, Line, Range
from monoc.spec.linesyntax import LineSyntax, RefusedError, TreeBuilder, grammar_text, make_parser
from monoc.spec.syntax import MAX_NAME
from monoc.spec.yamltree import YamlText

__all__ = ["DockingSyntax"]

_STARTS = ["value_text", "given_value", "import_path", "argument_value", "line"]
# Words whose place says what a parse error lacks
_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a text in single quotes", "COMPARE": "a comparison",
    "OPTIONAL": "`?`", "$END": "the end",
}  # fmt: skip


@cache
def _parser() -> Lark:
    return make_parser(grammar_text("docking.lark"), _STARTS)


class DockingSyntax(LineSyntax):
    """The language of a docking section."""

    max_length = 1000
    shorten = "give its parts names under `names`"
    the_end = "the end"

    def parser(self) -> Lark:
        return _parser()

    def builder(self, file: str) -> TreeBuilder:
        return _Builder(file)

    def expected(self, terminals: set[str]) -> str:
        known = sorted(_WORDS[t] for t in terminals if t in _WORDS)
        return f"expected {' or '.join(known)}" if known and len(terminals) <= 4 else "see docs/docking.md"

    def scalar(self, start: str, text: YamlText) -> Any:
        """A YAML scalar as ``start`` yields it; None if reported."""
        if text.block_line is not None:
            self.diagnostics.error(Code.WRONG_KIND, "a value over several lines", text.span, "write it on one line")
            return None
        return self.parse(start, text.text, text.span.file, text.span.line, text.span.column + text.quoted)

    def lines(self, text: YamlText, source: Sequence[str]) -> tuple[Line, ...]:
        """The lines of a ``|`` block (or the one line of a plain scalar); ``source`` are its file's lines."""
        if text.block_line is None:
            one = self.scalar("line", text)
            return () if one is None else (one,)
        out: list[Line] = []
        for number in range(text.block_line, text.block_line + text.text.rstrip("\n").count("\n") + 1):
            line = source[number - 1].split("#", 1)[0]
            body = line.strip()
            if body:
                parsed = self.parse("line", body, text.span.file, number, len(line) - len(line.lstrip()) + 1)
                if isinstance(parsed, Line):
                    out.append(parsed)
        return tuple(out)


@v_args(meta=True)
class _Builder(TreeBuilder):
    """lark's tree -> :mod:`monoc.spec.docking_ast`."""

    def _word(self, token: Any, what: str) -> str:
        """An attribute or keyword of the framework's: one leading underscore at most, nothing Python-internal."""
        name = str(token)
        span = Span(self.file, token.line, token.column, len(name))
        if "__" in name or len(name) > MAX_NAME or keyword.iskeyword(name):
            raise RefusedError(
                Code.BAD_NAME, f"{quoted(name)} cannot be {what}", span,
                f"no Python keyword, no two underscores in a row, at most {MAX_NAME} characters",
            )  # fmt: skip
        return name

    # ---- atoms
    def number(self, meta: Any, c: list[Any]) -> Node:
        text = str(c[0])
        return Constant(self.span_of(meta), int(text) if text.isdigit() else float(text))

    def string(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self.span_of(meta), str(c[0])[1:-1])

    def none(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self.span_of(meta), None)

    def true(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self.span_of(meta), True)

    def false(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self.span_of(meta), False)

    def name(self, meta: Any, c: list[Any]) -> Node:
        return Name(self.span_of(meta), self._word(c[0], "a name"))

    def attribute(self, meta: Any, c: list[Any]) -> Node:
        return self.made(Attribute(self.span_of(meta), c[0], self._word(c[1], "an attribute"), c[2] is not None))

    def item(self, meta: Any, c: list[Any]) -> Node:
        return self.made(Item(self.span_of(meta), c[0], tuple(c[1]), c[2] is not None))

    def keys(self, meta: Any, c: list[Any]) -> list[Node]:
        return c

    def span(self, meta: Any, c: list[Any]) -> Node:
        return self.made(Range(self.span_of(meta), c[0], c[1]))

    def call(self, meta: Any, c: list[Any]) -> Node:
        given = c[1] or []
        positional = tuple(a for a in given if isinstance(a, Node))
        return self.made(
            Invoke(self.span_of(meta), c[0], positional, tuple(a for a in given if not isinstance(a, Node)))
        )

    def arguments(self, meta: Any, c: list[Any]) -> list[Any]:
        return c

    def keyword(self, meta: Any, c: list[Any]) -> tuple[str, Node]:
        return self._word(c[0], "a keyword"), c[1]

    def group(self, meta: Any, c: list[Any]) -> Node:
        return self.made(ListNode(self.span_of(meta), tuple(c)))

    def choice(self, meta: Any, c: list[Any]) -> Node:
        return self.made(Choice(self.span_of(meta), c[0], c[1], c[2]))

    # ---- operators
    def in_(self, meta: Any, c: Any) -> Node:
        return self.op("in", meta, c)

    def not_in(self, meta: Any, c: Any) -> Node:
        return self.op("not in", meta, c)

    def is_none(self, meta: Any, c: Any) -> Node:
        return self.op("is None", meta, c)

    def is_given(self, meta: Any, c: Any) -> Node:
        return self.op("is not None", meta, c)

    def floordiv(self, meta: Any, c: Any) -> Node:
        return self.op("//", meta, c)

    # ---- whole texts
    def value_text(self, meta: Any, c: list[Any]) -> Node:
        return c[0]  # type: ignore[no-any-return]

    def given_value(self, meta: Any, c: list[Any]) -> tuple[Node, Node | None]:
        """(value, its condition)."""
        if c[2] is not None:
            return self.made(Choice(self.span_of(meta), c[0], c[1], c[2])), None
        return c[0], c[1]

    def import_path(self, meta: Any, c: list[Any]) -> tuple[str, ...]:
        return tuple(self._word(t, "part of a module path") for t in c)

    def argument_value(self, meta: Any, c: list[Any]) -> tuple[str, bool]:
        return str(c[0]), c[1] is not None

    def targets(self, meta: Any, c: list[Any]) -> list[Any]:
        return c

    def assign(self, meta: Any, c: list[Any]) -> Line:
        value, when = c[1], c[2]
        if c[3] is not None:
            value, when = self.made(Choice(self.span_of(meta), c[1], c[2], c[3])), None
        return Line(tuple(str(t) for t in c[0]), value, when, self.span_of(meta))

    def effect(self, meta: Any, c: list[Any]) -> Line:
        if not isinstance(c[0], Invoke):
            raise RefusedError(
                Code.SYNTAX, "this line does nothing", self.span_of(meta), "write `name = value`, a call or `return`"
            )
        return Line((), c[0], c[1], self.span_of(meta))

    def leave(self, meta: Any, c: list[Any]) -> Line:
        return Line((), None, c[0], self.span_of(meta))
