"""Needless parentheses of generated Python taken out, so that substituted expressions read as if written by hand.

A template writes ``({{ rows }}) // 2`` because what it gets may be a sum; of a name, the parentheses are noise. The
text is edited token by token: comments and line breaks stay as they are, and the syntax tree stays the same.
"""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["without_needless_parentheses"]

# How tightly arithmetic binds; whatever binds more tightly than a product is an atom here.
_ATOM = 9
_BINARY = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}
# A quotient that is a factor keeps its parentheses: ``(a % b) * c``.
_TREE = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 1.5, ast.FloorDiv: 1.5, ast.Mod: 1.5}
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
# Neighbours that leave what is between them alone, whatever it is, and those that take anything arithmetic.
_OPENING = frozenset({"(", "[", "{", ",", "=", ":", "return", "\n"})
_CLOSING = frozenset({")", "]", "}", ",", ":", "=", "\n"})
_LOOSE = frozenset({"and", "or", "not", "if", "else", "elif", "in", "<", "<=", ">", ">=", "==", "!="})
_LAYOUT = frozenset({tokenize.NL, tokenize.COMMENT})
_LINE_ENDS = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER})


@dataclass(frozen=True)
class _Pair:
    """A pair of parentheses that group: token numbers, and whether another bracket is around it."""

    first: int
    last: int
    inside_brackets: bool


def without_needless_parentheses(source: str) -> str:
    """``source`` less the parentheses around an operand that do not change how it is read.

    Kept: those of tuples and generators, those a line break needs, and those beside operators other than
    ``+ - * / // %``.
    Raises :class:`SyntaxError` if ``source`` is not Python.
    """
    tree = ast.dump(ast.parse(source))
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in _LAYOUT]
    drop = sorted(
        tokens[at].start for pair in _pairs(tokens) if _needless(tokens, pair) for at in (pair.first, pair.last)
    )
    lines = source.splitlines(keepends=True)
    for row, column in reversed(drop):
        lines[row - 1] = lines[row - 1][:column] + lines[row - 1][column + 1 :]
    out = "".join(lines)
    assert ast.dump(ast.parse(out)) == tree, "taking out parentheses changed the program"
    return out


def _text(token: tokenize.TokenInfo) -> str:
    return "\n" if token.type in _LINE_ENDS else token.string


def _pairs(tokens: list[tokenize.TokenInfo]) -> Iterator[_Pair]:
    """The pairs that are no call's, no definition's and no empty tuple's."""
    open_: list[tuple[int, bool]] = []
    for at, token in enumerate(tokens):
        if token.type != tokenize.OP:
            continue
        if token.string in "([{":
            before = tokens[at - 1]
            called = (before.type == tokenize.NAME and not keyword.iskeyword(before.string)) or before.string in ")]}"
            open_.append((at, token.string == "(" and not called and before.type != tokenize.STRING))
        elif token.string in ")]}":
            first, groups = open_.pop()
            if groups and at > first + 1:
                yield _Pair(first, at, bool(open_))


def _needless(tokens: list[tokenize.TokenInfo], pair: _Pair) -> bool:
    if not pair.inside_brackets and tokens[pair.first].start[0] != tokens[pair.last].start[0]:
        return False
    inner = _binds(tokens, pair)
    if inner is None:
        return False
    left, right = _text(tokens[pair.first - 1]), _text(tokens[pair.last + 1])
    if left in _OPENING and right in _CLOSING:
        return True
    if left in _BINARY and _is_sign(tokens, pair.first - 1):
        return inner == _ATOM and right not in (".", "[", "(", "**")
    return inner > _strength(left, _OPENING) and inner >= _strength(right, _CLOSING)


def _is_sign(tokens: list[tokenize.TokenInfo], at: int) -> bool:
    """Whether the operator is a sign or a star of a call, not between two operands."""
    before = tokens[at - 1]
    ends_operand = before.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING) or before.string in ")]}"
    return not ends_operand or keyword.iskeyword(before.string)


def _strength(neighbour: str, free: frozenset[str]) -> float:
    """How tightly what is between must at least bind, from 0."""
    if neighbour in free:
        return 0
    if neighbour in _LOOSE:
        return 0.5
    return _BINARY.get(neighbour, _ATOM + 1)


def _binds(tokens: list[tokenize.TokenInfo], pair: _Pair) -> float | None:
    """How tightly the expression inside binds; None if it is no expression on its own without its parentheses."""
    inner = tokens[pair.first + 1 : pair.last]
    depth = 0
    for token in inner:
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if (
            depth == 0
            and token.string in (",", "for", "yield", ":=", "*", "**")
            and (token.string not in ("*", "**") or token is inner[0])
        ):
            return None
    node = ast.parse("(" + " ".join(t.string for t in inner) + ")", mode="eval").body
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return None
    if isinstance(node, _ATOMS):
        return _ATOM
    if isinstance(node, ast.BinOp):
        return _TREE.get(type(node.op), 0)
    return 0
