"""What the two languages of a spec share: one line of text read with a lark grammar, its mistakes reported in place."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from lark import Lark, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from monoc.cache import writable_cache
from monoc.diagnostics import Code, Diagnostics, quoted
from monoc.expr.ir import Span
from monoc.spec.ast import Node, Op

__all__ = ["MAX_DEPTH", "LineSyntax", "RefusedError", "TreeBuilder", "grammar_text", "make_parser"]

MAX_DEPTH = 48  # nesting of expressions; far above what a formula needs, far below Python's recursion limit


@cache
def grammar_text(file: str = "monoc.lark") -> str:
    """A grammar, from the installed package's data or from the source tree."""
    here = Path(__file__).resolve().parent
    for folder in (here.parent / "grammar", here.parent.parent / "grammar"):
        if (folder / file).is_file():
            return (folder / file).read_text(encoding="utf-8")
    raise FileNotFoundError(f"{file}: the installation lacks its grammar")


def make_parser(grammar: str, starts: list[str]) -> Lark:
    """An LALR parser of ``grammar``, its tables kept from run to run (lark checks that they are the grammar's)."""
    kept = writable_cache("grammar")
    name = hashlib.sha256(grammar.encode()).hexdigest()[:16]
    return Lark(
        grammar,
        parser="lalr",
        start=starts,
        propagate_positions=True,
        maybe_placeholders=True,
        cache=False if kept is None else str(kept / f"{name}.lark"),
    )


class RefusedError(Exception):
    """A text the grammar takes and the language does not: ``report`` is what to tell the collector."""

    def __init__(self, code: Code, message: str, span: Span, remedy: str) -> None:
        super().__init__(message)
        self.report = (code, message, span, remedy)


class LineSyntax:
    """Parses texts of one run, reporting to its collector."""

    max_length: ClassVar[int]
    shorten: ClassVar[str]  # what to do about a text that is too long or nested too deep
    the_end: ClassVar[str]  # what a text ends with, in messages

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics

    def parser(self) -> Lark:
        raise NotImplementedError

    def builder(self, file: str) -> TreeBuilder:
        raise NotImplementedError

    def expected(self, terminals: set[str]) -> str | None:
        """What to say could stand where something unexpected stands."""
        raise NotImplementedError

    def parse(self, start: str, text: str, file: str, line: int, column: int) -> Any:
        """The line ``text``, written at ``line``:``column`` of ``file``, as ``start`` yields it; None if reported.

        Continuation lines inside ``text`` keep their own columns."""
        whole = Span(file, line, column, max(1, len(text)))
        if len(text) > self.max_length or _nesting(text) > MAX_DEPTH:
            self._too_deep(whole)
            return None
        padded = "\n" * (line - 1) + " " * (column - 1) + text
        try:
            return self.builder(file).transform(self.parser().parse(padded, start=start))
        except UnexpectedInput as e:
            self._unexpected(e, text, whole)
        except VisitError as e:
            if isinstance(e.orig_exc, RefusedError):
                self.diagnostics.error(*e.orig_exc.report)
            elif isinstance(e.orig_exc, _TooDeepError):
                self._too_deep(e.orig_exc.span)
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
            f"this expression is nested deeper than {MAX_DEPTH} levels or longer than {self.max_length} characters",
            span,
            self.shorten,
        )

    def _unexpected(self, e: UnexpectedInput, text: str, whole: Span) -> None:
        expected: set[str] = set()
        if isinstance(e, UnexpectedToken):
            expected = set(e.accepts or e.expected)
        if isinstance(e, UnexpectedToken) and e.token.type != "$END":
            token = str(e.token)
            span = Span(whole.file, e.token.line or whole.line, e.token.column or whole.column, len(token))
            found = quoted(token)
        elif isinstance(e, UnexpectedCharacters):
            span, found, expected = Span(whole.file, e.line, e.column), quoted(e.char), set(e.allowed or ())
        else:
            tail = text.rstrip()
            column = len(tail.rsplit("\n", 1)[-1]) + (whole.column if "\n" not in tail else 1)
            span, found = Span(whole.file, whole.line + tail.count("\n"), column), self.the_end
        self.diagnostics.error(Code.SYNTAX, f"unexpected {found}", span, self.expected(expected))


def _nesting(text: str) -> int:
    """The deepest level of brackets in ``text``."""
    depth = deepest = 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        deepest = max(deepest, depth)
    return deepest


class _TooDeepError(Exception):
    def __init__(self, span: Span) -> None:
        super().__init__("too deep")
        self.span = span


@v_args(meta=True)
class TreeBuilder(Transformer[Any, Any]):
    """lark's tree -> :mod:`monoc.spec.ast`, as far as the languages are alike: operators, positions, depth."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.depth: dict[int, int] = {}  # by id of the node; nodes live as long as the tree does

    def span_of(self, meta: Any) -> Span:
        """Where a rule's text stands; an empty one: at the file's start."""
        if getattr(meta, "empty", False):
            return Span(self.file, 1, 1)
        length = meta.end_column - meta.column if meta.end_line == meta.line else 1 << 12
        return Span(self.file, meta.line, meta.column, max(1, length))

    def made(self, node: Node) -> Node:
        """``node``, whose depth is counted."""
        depth = 1 + max((self.depth.get(id(c), 1) for c in node.children()), default=0)
        if depth > MAX_DEPTH:
            raise _TooDeepError(node.span)
        self.depth[id(node)] = depth
        return node

    def op(self, op: str, meta: Any, c: Sequence[Any]) -> Node:
        return self.made(Op(self.span_of(meta), op, tuple(c)))

    def add(self, meta: Any, c: Any) -> Node:
        return self.op("+", meta, c)

    def sub(self, meta: Any, c: Any) -> Node:
        return self.op("-", meta, c)

    def mul(self, meta: Any, c: Any) -> Node:
        return self.op("*", meta, c)

    def neg(self, meta: Any, c: Any) -> Node:
        return self.op("neg", meta, c)

    def or_(self, meta: Any, c: Any) -> Node:
        return self.op("or", meta, c)

    def and_(self, meta: Any, c: Any) -> Node:
        return self.op("and", meta, c)

    def not_(self, meta: Any, c: Any) -> Node:
        return self.op("not", meta, c)

    def compare(self, meta: Any, c: Any) -> Node:
        return self.op(str(c[1]), meta, (c[0], c[2]))
