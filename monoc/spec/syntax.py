"""Parsing one logical line (or one YAML scalar) with the grammar in ``grammar/monoc.lark``."""

from __future__ import annotations

import builtins
import hashlib
import keyword
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from monoc.cache import writable_cache
from monoc.diagnostics import Code, Diagnostics, quoted
from monoc.expr.ir import Span
from monoc.spec.ast import (
    AssignStatement,
    Axis,
    Call,
    EffectStatement,
    Extent,
    Ident,
    Index,
    IndexStatement,
    ListNode,
    Name,
    Node,
    Number,
    Op,
    Param,
    ReduceNode,
    Return,
)

__all__ = ["RESERVED", "Syntax", "grammar_text", "name_problem"]

MAX_DEPTH = 48  # nesting of expressions; far above what a formula needs, far below Python's recursion limit
MAX_NAME = 40

_STARTS = [
    "fn_line",
    "def_line",
    "entry_line",
    "launch_line",
    "host_line",
    "return_line",
    "statement_line",
    "dim_value",
    "guard_value",
    "extent_value",
    "range_value",
]
RESERVED = frozenset(
    {"fn", "def", "entry", "launch", "host", "return", "when", "else", "as", "and", "or", "not", "true", "false"}
)
# Names appear in generated Python and in FlyDSL modules, where these would shadow or be refused.
_PYTHON_NAMES = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins)) | {"self"}


def name_problem(name: str) -> str | None:
    """Why ``name`` cannot name anything in a spec, or None."""
    if not name.isascii() or not name.isidentifier():
        return "a name is a letter followed by letters, digits and single underscores"
    if len(name) > MAX_NAME:
        return f"a name has at most {MAX_NAME} characters"
    if name.startswith("_") or name.endswith("_") or "__" in name:
        return "a name neither starts nor ends with an underscore nor has two in a row"
    if name in RESERVED:
        return "it is a word of the language"
    if name in _PYTHON_NAMES:
        return "it is a Python keyword or builtin, and names appear in generated code"
    return None


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


@cache
def _parser() -> Lark:
    return make_parser(grammar_text(), _STARTS)


class _TooDeepError(Exception):
    def __init__(self, span: Span) -> None:
        super().__init__("too deep")
        self.span = span


class Syntax:
    """Parses texts of one run, reporting to its collector."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics

    def parse(self, start: str, text: str, file: str, line: int, column: int) -> Any:
        """The line ``text``, written at ``line``:``column`` of ``file``, as ``start`` yields it; None if reported.

        Continuation lines inside ``text`` keep their own columns."""
        depth = 0
        for c in text:
            depth += (c in "([") - (c in ")]")
            if depth > MAX_DEPTH:
                self._too_deep(Span(file, line, column, len(text)))
                return None
        if len(text) > 4000:
            self._too_deep(Span(file, line, column, len(text)))
            return None
        padded = "\n" * (line - 1) + " " * (column - 1) + text
        try:
            return _Builder(file).transform(_parser().parse(padded, start=start))
        except UnexpectedInput as e:
            self._unexpected(e, text, file, line, column)
        except VisitError as e:
            if isinstance(e.orig_exc, _TooDeepError):
                self._too_deep(e.orig_exc.span)
            elif isinstance(e.orig_exc, RecursionError):
                self._too_deep(Span(file, line, column, len(text)))
            else:
                raise
        except RecursionError:
            self._too_deep(Span(file, line, column, len(text)))
        return None

    def _too_deep(self, span: Span) -> None:
        self.diagnostics.error(
            Code.TOO_DEEP,
            f"this expression is nested deeper than {MAX_DEPTH} levels or longer than 4000 characters",
            span,
            "name its parts in statements of their own",
        )

    def _unexpected(self, e: UnexpectedInput, text: str, file: str, line: int, column: int) -> None:
        if isinstance(e, UnexpectedToken) and e.token.type != "$END":
            token = str(e.token)
            span = Span(file, e.token.line or line, e.token.column or column, len(token))
            found, expected = quoted(token), e.accepts or e.expected
        elif isinstance(e, UnexpectedCharacters):
            span = Span(file, e.line, e.column)
            found, expected = quoted(e.char), e.allowed or set()
        else:
            tail = text.rstrip()
            last = tail.rsplit("\n", 1)[-1]
            end = Span(file, line + tail.count("\n"), len(last) + (column if "\n" not in tail else 1))
            span, found = end, "the end of the line"
            expected = e.accepts or e.expected if isinstance(e, UnexpectedToken) else set()
        self.diagnostics.error(Code.SYNTAX, f"unexpected {found}", span, _expected(expected))


_TERMINALS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "REDUCE": "a reduction",
    "$END": "the end of the line",
    "COMPARE": "a comparison",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "COLON": "`:`",
    "AT": "`@`",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "STAR": "`*`",
    "SLASH": "`/`",
    "MORETHAN": "`>`",
    "LESSTHAN": "`<`",
    "AT_LEAST": "`>=`",
    "AT_MOST": "`<=`",
    "ANY": "`*`",
    "__ANON_0": "`->`",
}
_OPERATORS = {"COMPARE", "PLUS", "MINUS", "STAR", "SLASH", "AT", "LESSTHAN"}


def _expected(terminals: Any) -> str | None:
    names = {str(t) for t in terminals} - {"WS"}
    texts = []
    if names & {"PLUS", "STAR"} and len(names & _OPERATORS) > 1:
        texts.append("an operator")
        names -= _OPERATORS
        names = {n for n in names if not _operator_literal(n)}
    for n in sorted(names):
        if n in _TERMINALS:
            texts.append(_TERMINALS[n])
        else:
            defined = {t.name: t.pattern.value for t in _parser().terminals}
            texts.append(f"`{defined.get(n, n.lower())}`")
    if not texts or len(texts) > 8:
        return None
    return "expected " + (" or ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0])


def _operator_literal(terminal: str) -> bool:
    return any(t.name == terminal and t.pattern.value in ("**", "and", "or") for t in _parser().terminals)


@v_args(meta=True)
class _Builder(Transformer[Any, Any]):
    """lark's tree -> :mod:`monoc.spec.ast`."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.depth: dict[int, int] = {}  # by id of the node; nodes live as long as the tree does

    def _span(self, meta: Any) -> Span:
        length = meta.end_column - meta.column if meta.end_line == meta.line else 1 << 12
        return Span(self.file, meta.line, meta.column, max(1, length))

    def _ident(self, token: Any) -> Ident:
        return Ident(str(token), Span(self.file, token.line, token.column, len(token)))

    def _made(self, node: Node) -> Node:
        depth = 1 + max((self.depth.get(id(c), 1) for c in node.children()), default=0)
        if depth > MAX_DEPTH:
            raise _TooDeepError(node.span)
        self.depth[id(node)] = depth
        return node

    # ---- expressions
    def number(self, meta: Any, c: list[Any]) -> Node:
        return Number(self._span(meta), Fraction(str(c[0])), str(c[0]))

    def name(self, meta: Any, c: list[Any]) -> Node:
        return Name(self._span(meta), str(c[0]))

    def access(self, meta: Any, c: list[Any]) -> Node:
        return self._made(Index(self._span(meta), self._ident(c[0]), tuple(c[1])))

    def keyword(self, meta: Any, c: list[Any]) -> tuple[Ident, Node]:
        return self._ident(c[0]), c[1]

    def call(self, meta: Any, c: list[Any]) -> Node:
        arguments = [a for a in c[1:] if a is not None]
        return self._made(
            Call(
                self._span(meta),
                self._ident(c[0]),
                tuple(a for a in arguments if isinstance(a, Node)),
                tuple(a for a in arguments if not isinstance(a, Node)),
            )
        )

    def list_of(self, meta: Any, c: list[Any]) -> Node:
        return self._made(ListNode(self._span(meta), tuple(c[0])))

    def reduction(self, meta: Any, c: list[Any]) -> Node:
        rounding = None if c[1] is None else self._ident(c[1])
        return self._made(ReduceNode(self._span(meta), str(c[0]), rounding, tuple(c[2]), c[3]))

    def _op(self, op: str, meta: Any, c: Sequence[Any]) -> Node:
        return self._made(Op(self._span(meta), op, tuple(c)))

    def add(self, meta: Any, c: Any) -> Node:
        return self._op("+", meta, c)

    def sub(self, meta: Any, c: Any) -> Node:
        return self._op("-", meta, c)

    def mul(self, meta: Any, c: Any) -> Node:
        return self._op("*", meta, c)

    def div(self, meta: Any, c: Any) -> Node:
        return self._op("/", meta, c)

    def matmul(self, meta: Any, c: Any) -> Node:
        return self._op("@", meta, c)

    def pow(self, meta: Any, c: Any) -> Node:
        return self._op("**", meta, c)

    def neg(self, meta: Any, c: Any) -> Node:
        return self._op("neg", meta, c)

    def or_(self, meta: Any, c: Any) -> Node:
        return self._op("or", meta, c)

    def and_(self, meta: Any, c: Any) -> Node:
        return self._op("and", meta, c)

    def not_(self, meta: Any, c: Any) -> Node:
        return self._op("not", meta, c)

    def compare(self, meta: Any, c: Any) -> Node:
        return self._op(str(c[1]), meta, (c[0], c[2]))

    # ---- pieces
    def names(self, meta: Any, c: list[Any]) -> list[Ident]:
        return [self._ident(t) for t in c if t is not None]

    def some_names(self, meta: Any, c: list[Any]) -> list[Ident]:
        return [self._ident(t) for t in c]

    def exprs(self, meta: Any, c: list[Any]) -> list[Node]:
        return c

    def axis(self, meta: Any, c: list[Any]) -> Axis:
        return Axis(self._ident(c[0]), c[1])

    def axes(self, meta: Any, c: list[Any]) -> list[Axis]:
        return c

    def param(self, meta: Any, c: list[Any]) -> Param:
        return Param(self._ident(c[0]), None if c[1] is None else tuple(c[1]))

    def params(self, meta: Any, c: list[Any]) -> list[Param]:
        return [p for p in c if p is not None]

    # ---- lines
    def index_statement(self, meta: Any, c: list[Any]) -> IndexStatement:
        return IndexStatement(self._span(meta), self._ident(c[0]), tuple(c[1]), c[2], c[3], c[4])

    def assign_statement(self, meta: Any, c: list[Any]) -> AssignStatement:
        label = None if c[2] is None else self._ident(c[2])
        return AssignStatement(self._span(meta), tuple(c[0]), c[1], label, c[3], c[4])

    def effect_statement(self, meta: Any, c: list[Any]) -> EffectStatement:
        return EffectStatement(self._span(meta), c[0], c[1])

    def statement_line(self, meta: Any, c: list[Any]) -> Any:
        return c[0]

    def return_line(self, meta: Any, c: list[Any]) -> Return:
        return Return(self._span(meta), tuple(c[0]))

    def fn_line(self, meta: Any, c: list[Any]) -> tuple[Ident, list[Ident], Node]:
        return self._ident(c[0]), c[1], c[2]

    def def_line(self, meta: Any, c: list[Any]) -> tuple[Ident, list[Param]]:
        return self._ident(c[0]), c[1]

    def entry_line(self, meta: Any, c: list[Any]) -> tuple[Ident, list[Ident], list[Ident]]:
        return self._ident(c[0]), c[1], c[2]

    def launch_line(self, meta: Any, c: list[Any]) -> Ident:
        return self._ident(c[0])

    def host_line(self, meta: Any, c: list[Any]) -> tuple[Ident, list[Ident], list[Ident], Node | None]:
        return self._ident(c[0]), c[1], c[2], c[3]

    # ---- YAML values
    def dim_value(self, meta: Any, c: list[Any]) -> Node:
        return c[0]  # type: ignore[no-any-return]

    def guard_value(self, meta: Any, c: list[Any]) -> Node:
        return c[0]  # type: ignore[no-any-return]

    def extent_value(self, meta: Any, c: list[Any]) -> Node:
        return Extent(self._span(meta), c[1], "" if c[0] is None else str(c[0]))

    def any_extent(self, meta: Any, c: list[Any]) -> Node:
        return Extent(self._span(meta), None, "")

    def range_value(self, meta: Any, c: list[Any]) -> tuple[Node, Node]:
        return c[0], c[1]
