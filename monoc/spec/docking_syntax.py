"""Parsing the scalars and lines of a docking section with ``grammar/docking.lark``."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from functools import cache
from typing import Any

from lark import Lark, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from monoc.diagnostics import Code, Diagnostics, quoted
from monoc.expr.ir import Span
from monoc.spec.docking_ast import (
    Attribute,
    Choice,
    Constant,
    Group,
    Invoke,
    Item,
    Line,
    Node,
    Operation,
    Range,
    Variable,
)
from monoc.spec.syntax import MAX_DEPTH, MAX_NAME, grammar_text, make_parser
from monoc.spec.yamltree import YamlText

__all__ = ["DockingSyntax"]

_STARTS = ["value_text", "given_value", "import_path", "argument_value", "line"]
_MAX_LENGTH = 1000
# Words whose place says what a parse error lacks
_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a text in single quotes", "COMPARE": "a comparison",
    "OPTIONAL": "`?`", "$END": "the end",
}  # fmt: skip


@cache
def _parser() -> Lark:
    return make_parser(grammar_text("docking.lark"), _STARTS)


class _RefusedError(Exception):
    def __init__(self, code: Code, message: str, span: Span, remedy: str) -> None:
        super().__init__(message)
        self.report = (code, message, span, remedy)


class DockingSyntax:
    """Parses the texts of one run, reporting to its collector."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics

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

    def parse(self, start: str, text: str, file: str, line: int, column: int) -> Any:
        """``text``, written at ``line``:``column`` of ``file``; None (reported) where it is not ``start``."""
        whole = Span(file, line, column, max(1, len(text)))
        if len(text) > _MAX_LENGTH:
            self._too_deep(whole)
            return None
        try:
            tree = _parser().parse("\n" * (line - 1) + " " * (column - 1) + text, start=start)
            return _Builder(file).transform(tree)
        except UnexpectedInput as e:
            self._unexpected(e, text, whole)
        except VisitError as e:
            if isinstance(e.orig_exc, _RefusedError):
                self.diagnostics.error(*e.orig_exc.report)
            elif isinstance(e.orig_exc, RecursionError):
                self._too_deep(whole)
            else:
                raise
        except RecursionError:
            self._too_deep(whole)
        return None

    def _too_deep(self, span: Span) -> None:
        self.diagnostics.error(
            Code.TOO_DEEP,
            f"this is nested deeper than {MAX_DEPTH} levels or longer than {_MAX_LENGTH} characters",
            span,
            "give its parts names under `names`",
        )

    def _unexpected(self, e: UnexpectedInput, text: str, whole: Span) -> None:
        expected: set[str] = set()
        if isinstance(e, UnexpectedToken) and e.token.type != "$END":
            token = str(e.token)
            span = Span(whole.file, e.token.line or whole.line, e.token.column or whole.column, len(token))
            found, expected = quoted(token), set(e.accepts or e.expected)
        elif isinstance(e, UnexpectedCharacters):
            span, found = Span(whole.file, e.line, e.column), quoted(e.char)
        else:
            span, found = Span(whole.file, whole.line, whole.column + len(text.rstrip())), "the end"
            expected = set(e.accepts or e.expected) if isinstance(e, UnexpectedToken) else set()
        known = sorted(_WORDS[t] for t in expected if t in _WORDS)
        remedy = f"expected {' or '.join(known)}" if known and len(expected) <= 4 else "see docs/docking.md"
        self.diagnostics.error(Code.SYNTAX, f"unexpected {found}", span, remedy)


@v_args(meta=True)
class _Builder(Transformer[Any, Any]):
    """lark's tree -> :mod:`monoc.spec.docking_ast`."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.depth: dict[int, int] = {}  # by id of the node; nodes live as long as the tree does

    def _span(self, meta: Any) -> Span:
        if getattr(meta, "empty", False):
            return Span(self.file, 1, 1)
        length = meta.end_column - meta.column if meta.end_line == meta.line else 1
        return Span(self.file, meta.line, meta.column, max(1, length))

    def _made(self, node: Node) -> Node:
        depth = 1 + max((self.depth.get(id(c), 1) for c in node.children()), default=0)
        if depth > MAX_DEPTH:
            raise _RefusedError(
                Code.TOO_DEEP, f"nested deeper than {MAX_DEPTH} levels", node.span, "give its parts names under `names`"
            )
        self.depth[id(node)] = depth
        return node

    def _word(self, token: Any, what: str) -> str:
        """An attribute or keyword of the framework's: one leading underscore at most, nothing Python-internal."""
        name = str(token)
        span = Span(self.file, token.line, token.column, len(name))
        if "__" in name or len(name) > MAX_NAME or keyword.iskeyword(name):
            raise _RefusedError(
                Code.BAD_NAME, f"{quoted(name)} cannot be {what}", span,
                f"no Python keyword, no two underscores in a row, at most {MAX_NAME} characters",
            )  # fmt: skip
        return name

    # ---- atoms
    def number(self, meta: Any, c: list[Any]) -> Node:
        text = str(c[0])
        return Constant(self._span(meta), int(text) if text.isdigit() else float(text))

    def string(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self._span(meta), str(c[0])[1:-1])

    def none(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self._span(meta), None)

    def true(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self._span(meta), True)

    def false(self, meta: Any, c: list[Any]) -> Node:
        return Constant(self._span(meta), False)

    def name(self, meta: Any, c: list[Any]) -> Node:
        return Variable(self._span(meta), self._word(c[0], "a name"))

    def attribute(self, meta: Any, c: list[Any]) -> Node:
        return self._made(Attribute(self._span(meta), c[0], self._word(c[1], "an attribute"), c[2] is not None))

    def item(self, meta: Any, c: list[Any]) -> Node:
        return self._made(Item(self._span(meta), c[0], tuple(c[1]), c[2] is not None))

    def keys(self, meta: Any, c: list[Any]) -> list[Node]:
        return c

    def span(self, meta: Any, c: list[Any]) -> Node:
        return self._made(Range(self._span(meta), c[0], c[1]))

    def call(self, meta: Any, c: list[Any]) -> Node:
        given = c[1] or []
        positional = tuple(a for a in given if isinstance(a, Node))
        return self._made(
            Invoke(self._span(meta), c[0], positional, tuple(a for a in given if not isinstance(a, Node)))
        )

    def arguments(self, meta: Any, c: list[Any]) -> list[Any]:
        return c

    def keyword(self, meta: Any, c: list[Any]) -> tuple[str, Node]:
        return self._word(c[0], "a keyword"), c[1]

    def group(self, meta: Any, c: list[Any]) -> Node:
        return self._made(Group(self._span(meta), tuple(c)))

    def choice(self, meta: Any, c: list[Any]) -> Node:
        return self._made(Choice(self._span(meta), c[0], c[1], c[2]))

    # ---- operators
    def _op(self, op: str, meta: Any, c: Sequence[Any]) -> Node:
        return self._made(Operation(self._span(meta), op, tuple(c)))

    def or_(self, meta: Any, c: Any) -> Node:
        return self._op("or", meta, c)

    def and_(self, meta: Any, c: Any) -> Node:
        return self._op("and", meta, c)

    def not_(self, meta: Any, c: Any) -> Node:
        return self._op("not", meta, c)

    def compare(self, meta: Any, c: Any) -> Node:
        return self._op(str(c[1]), meta, (c[0], c[2]))

    def in_(self, meta: Any, c: Any) -> Node:
        return self._op("in", meta, c)

    def not_in(self, meta: Any, c: Any) -> Node:
        return self._op("not in", meta, c)

    def is_none(self, meta: Any, c: Any) -> Node:
        return self._op("is None", meta, c)

    def is_given(self, meta: Any, c: Any) -> Node:
        return self._op("is not None", meta, c)

    def add(self, meta: Any, c: Any) -> Node:
        return self._op("+", meta, c)

    def sub(self, meta: Any, c: Any) -> Node:
        return self._op("-", meta, c)

    def mul(self, meta: Any, c: Any) -> Node:
        return self._op("*", meta, c)

    def floordiv(self, meta: Any, c: Any) -> Node:
        return self._op("//", meta, c)

    def neg(self, meta: Any, c: Any) -> Node:
        return self._op("neg", meta, c)

    # ---- whole texts
    def value_text(self, meta: Any, c: list[Any]) -> Node:
        return c[0]  # type: ignore[no-any-return]

    def given_value(self, meta: Any, c: list[Any]) -> tuple[Node, Node | None]:
        """(value, its condition)."""
        if c[2] is not None:
            return self._made(Choice(self._span(meta), c[0], c[1], c[2])), None
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
            value, when = self._made(Choice(self._span(meta), c[1], c[2], c[3])), None
        return Line(tuple(str(t) for t in c[0]), value, when, self._span(meta))

    def effect(self, meta: Any, c: list[Any]) -> Line:
        if not isinstance(c[0], Invoke):
            raise _RefusedError(
                Code.SYNTAX, "this line does nothing", self._span(meta), "write `name = value`, a call or `return`"
            )
        return Line((), c[0], c[1], self._span(meta))

    def leave(self, meta: Any, c: list[Any]) -> Line:
        return Line((), None, c[0], self._span(meta))
