"""Formulas: the Python expressions a schedule is made of, as ``plan.py`` prints them.

A formula names the fields and properties of one build (``b.tokens``, ``b.tp``, ``b.heads``), dimension
constants (``HIDDEN``), the task index ``i`` and the functions ``cdiv``, ``round_up``, ``min``, ``max``. It is
text because ``plan.py`` is its printout and the proofs run that printout; it is checked against a whitelist
of syntax before it is ever printed, and built only from identifiers the front end has validated.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import NewType

__all__ = [
    "FUNCTIONS",
    "Formula",
    "FormulaError",
    "add",
    "attributes",
    "check",
    "constants",
    "formula",
    "of_self",
    "of_task",
    "substitute",
]

Formula = NewType("Formula", str)

FUNCTIONS = ("cdiv", "max", "min", "round_up")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.Load,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.USub,
    ast.Not,
    ast.And,
    ast.Or,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)


class FormulaError(ValueError):
    """A formula outside the whitelisted language; the message quotes it and names the offending part."""


@lru_cache(maxsize=4096)  # the same few hundred texts come again and again
def formula(text: str | int, *, task: bool = False) -> Formula:
    """``text`` as a checked formula, printed canonically (numbers folded, without needless parentheses, so that equal
    formulas are mostly equal text); ``task`` allows the task index ``i``. Raises :class:`FormulaError`."""
    made = Formula(str(text))
    check(made, task=task)
    return Formula(ast.unparse(_Fold().visit(_parse(made))))


def check(text: Formula, *, task: bool = False) -> None:
    """Raise :class:`FormulaError` unless ``text`` is in the language of this module."""
    for node in ast.walk(_parse(text)):
        if not isinstance(node, _NODES):
            raise FormulaError(f"formula {text!r}: {type(node).__name__} is not allowed")
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | bool | str):
            raise FormulaError(f"formula {text!r}: constant {node.value!r} is not an integer")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier():
            raise FormulaError(f"formula {text!r}: string {node.value!r} is not a name")
        if isinstance(node, ast.Name):
            _check_name(node, text, task)
        if isinstance(node, ast.Attribute):
            _check_attribute(node, text)
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and node.args and not node.keywords
        ):
            raise FormulaError(f"formula {text!r}: only {', '.join(FUNCTIONS)} may be called")


def attributes(text: Formula) -> frozenset[str]:
    """The build's fields and properties ``text`` reads: ``tokens`` of ``b.tokens``."""
    return frozenset(n.attr for n in ast.walk(_parse(text)) if isinstance(n, ast.Attribute))


def constants(text: Formula) -> frozenset[str]:
    """The dimension constants ``text`` reads."""
    return frozenset(n.id for n in ast.walk(_parse(text)) if isinstance(n, ast.Name) and _CONSTANT.match(n.id))


def substitute(text: Formula, index: Formula) -> Formula:
    """``text`` with the task index ``i`` replaced by ``index``."""

    return formula(_rename(text, "i", index), task=True)


def of_self(text: Formula) -> str:
    """``text`` as a property of ``Plan`` writes it: ``self`` for ``b``."""
    return _rename(text, "b", "self")


def of_task(text: Formula | str) -> str:
    """``text`` as a stage's code writes it: ``task`` for ``i``."""
    return _rename(Formula(text), "i", "task")


def add(*terms: Formula) -> Formula:
    """The sum of ``terms``, integers added up and zeros dropped."""
    number = sum(int(t) for t in terms if t.isdigit())
    rest = [t for t in terms if not t.isdigit()]
    return formula(" + ".join([*rest, *([str(number)] if number or not rest else [])]), task=True)


class _Fold(ast.NodeTransformer):
    """Arithmetic on numbers done, factors and divisors of 1 dropped, ``2 * x // 2`` made ``x``, ``x // 2 // 2`` one."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        a, b = _number(node.left), _number(node.right)
        if a is not None and b is not None:
            match node.op:
                case ast.Add():
                    return ast.Constant(a + b)
                case ast.Sub() if a >= b:
                    return ast.Constant(a - b)
                case ast.Mult():
                    return ast.Constant(a * b)
                case ast.FloorDiv() if b:
                    return ast.Constant(a // b)
                case ast.Mod() if b:
                    return ast.Constant(a % b)
        if b == 1 and isinstance(node.op, ast.Mult | ast.FloorDiv):
            return node.left
        if a == 1 and isinstance(node.op, ast.Mult):
            return node.right
        if b and isinstance(node.op, ast.FloorDiv) and isinstance(node.left, ast.BinOp):
            inner = node.left
            if isinstance(inner.op, ast.Mult) and _number(inner.left) == b:  # 2 * x // 2
                return inner.right
            divisor = _number(inner.right)
            if isinstance(inner.op, ast.FloorDiv) and divisor:  # x // 2 // 2
                return ast.BinOp(inner.left, ast.FloorDiv(), ast.Constant(divisor * b))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        numbers = [_number(argument) for argument in node.args]
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and None not in numbers:
            known = [n for n in numbers if n is not None]
            return ast.Constant(min(known) if node.func.id == "min" else max(known))
        return node


def _number(node: ast.AST) -> int | None:
    """The value of a non-negative integer constant."""
    whole = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if whole and isinstance(node, ast.Constant) and isinstance(node.value, int) else None


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.new if node.id == self.old else node


def _rename(text: Formula, old: str, new: str) -> str:
    return ast.unparse(_Rename(old, ast.parse(new, mode="eval").body).visit(_parse(text)))


def _parse(text: Formula) -> ast.Expression:
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise FormulaError(f"formula {text!r} is not an expression: {error.msg}") from None


def _check_name(node: ast.Name, text: Formula, task: bool) -> None:
    if node.id == "b" or node.id in FUNCTIONS or _CONSTANT.match(node.id) or (task and node.id == "i"):
        return
    hint = "; the task index is only known in task formulas" if node.id == "i" else ""
    raise FormulaError(f"formula {text!r}: unknown name {node.id!r}{hint}")


def _check_attribute(node: ast.Attribute, text: Formula) -> None:
    if not (isinstance(node.value, ast.Name) and node.value.id == "b") or node.attr.startswith("_"):
        raise FormulaError(f"formula {text!r}: only public fields of b may be read")
