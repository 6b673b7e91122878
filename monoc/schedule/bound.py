"""Names of generated code that a spec's names must not meet.

Dimensions become constants of ``plan.py``, weights and inputs arguments of stages, classes those of the runner. Where
one of them has the name of something the generated code has of its own, one would silently stand for the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["NameTakenError", "check_names"]


class NameTakenError(ValueError):
    """``name`` of a spec is also something else's in the generated ``file``."""

    def __init__(self, file: str, name: str) -> None:
        super().__init__(f"the generated {file} has a `{name}` of its own")
        self.file, self.name = file, name


def check_names(file: str, tree: ast.Module) -> None:
    """Every name of ``tree`` is bound once at its top, in a class's body and among a function's arguments, and no
    argument hides a name of the top. Raises :class:`NameTakenError`."""
    top = _once(file, _bound(tree.body))
    for node in _definitions(tree.body):
        if isinstance(node, ast.ClassDef):
            _once(file, _bound(node.body))
        else:
            given = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            for name in sorted(_once(file, given) & top):
                raise NameTakenError(file, name)


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """The classes and functions of ``body``, nested ones too; expressions, which have none, are not walked."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node
        for inner in ("body", "orelse", "finalbody", "handlers"):
            yield from _definitions(getattr(node, inner, []))


def _once(file: str, names: Iterator[str] | list[str]) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise NameTakenError(file, name)
        seen.add(name)
    return seen


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (a.asname or a.name for a in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name))
