"""Parsing one logical line (or one YAML scalar) with the grammar in ``grammar/monoc.lark``."""

from __future__ import annotations

import builtins
import keyword
from fractions import Fraction
from functools import cache
from typing import Any

from lark import Lark, v_args

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
    Param,
    ReduceNode,
    Return,
)
from monoc.spec.linesyntax import LineSyntax, TreeBuilder, grammar_text, make_parser

__all__ = ["MAX_NAME", "RESERVED", "Syntax", "name_problem"]

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
def _parser() -> Lark:
    return make_parser(grammar_text(), _STARTS)


class Syntax(LineSyntax):
    """The language of programs and of a spec's sizes and conditions."""

    max_length = 4000
    shorten = "name its parts in statements of their own"
    the_end = "the end of the line"

    def parser(self) -> Lark:
        return _parser()

    def builder(self, file: str) -> TreeBuilder:
        return _Builder(file)

    def expected(self, terminals: set[str]) -> str | None:
        return _expected(terminals)


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


def _expected(terminals: set[str]) -> str | None:
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
class _Builder(TreeBuilder):
    """lark's tree -> :mod:`monoc.spec.ast`."""

    def _ident(self, token: Any) -> Ident:
        return Ident(str(token), Span(self.file, token.line, token.column, len(token)))

    # ---- expressions
    def number(self, meta: Any, c: list[Any]) -> Node:
        return Number(self.span_of(meta), Fraction(str(c[0])), str(c[0]))

    def name(self, meta: Any, c: list[Any]) -> Node:
        return Name(self.span_of(meta), str(c[0]))

    def access(self, meta: Any, c: list[Any]) -> Node:
        return self.made(Index(self.span_of(meta), self._ident(c[0]), tuple(c[1])))

    def keyword(self, meta: Any, c: list[Any]) -> tuple[Ident, Node]:
        return self._ident(c[0]), c[1]

    def call(self, meta: Any, c: list[Any]) -> Node:
        arguments = [a for a in c[1:] if a is not None]
        return self.made(
            Call(
                self.span_of(meta),
                self._ident(c[0]),
                tuple(a for a in arguments if isinstance(a, Node)),
                tuple(a for a in arguments if not isinstance(a, Node)),
            )
        )

    def list_of(self, meta: Any, c: list[Any]) -> Node:
        return self.made(ListNode(self.span_of(meta), tuple(c[0])))

    def reduction(self, meta: Any, c: list[Any]) -> Node:
        rounding = None if c[1] is None else self._ident(c[1])
        return self.made(ReduceNode(self.span_of(meta), str(c[0]), rounding, tuple(c[2]), c[3]))

    def div(self, meta: Any, c: Any) -> Node:
        return self.op("/", meta, c)

    def matmul(self, meta: Any, c: Any) -> Node:
        return self.op("@", meta, c)

    def pow(self, meta: Any, c: Any) -> Node:
        return self.op("**", meta, c)

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
        return IndexStatement(self.span_of(meta), self._ident(c[0]), tuple(c[1]), c[2], c[3], c[4])

    def assign_statement(self, meta: Any, c: list[Any]) -> AssignStatement:
        label = None if c[2] is None else self._ident(c[2])
        return AssignStatement(self.span_of(meta), tuple(c[0]), c[1], label, c[3], c[4])

    def effect_statement(self, meta: Any, c: list[Any]) -> EffectStatement:
        return EffectStatement(self.span_of(meta), c[0], c[1])

    def statement_line(self, meta: Any, c: list[Any]) -> Any:
        return c[0]

    def return_line(self, meta: Any, c: list[Any]) -> Return:
        return Return(self.span_of(meta), tuple(c[0]))

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
        return Extent(self.span_of(meta), c[1], "" if c[0] is None else str(c[0]))

    def any_extent(self, meta: Any, c: list[Any]) -> Node:
        return Extent(self.span_of(meta), None, "")

    def range_value(self, meta: Any, c: list[Any]) -> tuple[Node, Node]:
        return c[0], c[1]
