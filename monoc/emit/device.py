"""``device.py`` of a package: the device library's functions it uses, and nothing else.

The library (``monoc/device/*.py``) is read as text, never imported here. A definition is taken if a root names it or a
taken definition does; the imports follow from the names the taken text uses.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

__all__ = ["DeviceLibrary", "LibraryError", "names_in", "parsed"]

_LIBRARY = Path(__file__).parent.parent / "device"
_PACKAGE = "monoc.device"


class LibraryError(Exception):
    """The device library itself is inconsistent: one name defined in two modules, or a name no module defines."""


@dataclass(frozen=True)
class _Definition:
    name: str
    module: str
    text: str
    node: ast.stmt
    order: tuple[int, int]  # module, line

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names it reads."""
        return _names(self.node) - {self.name}


@dataclass(frozen=True)
class _Import:
    text: str
    binds: str


@lru_cache(maxsize=256)  # stages of one skeleton, and launches of one layer, share their texts
def parsed(source: str) -> ast.Module:
    """The syntax tree of ``source``, not to be changed."""
    return ast.parse(source)


@lru_cache(maxsize=256)
def names_in(source: str) -> frozenset[str]:
    """Every name the Python text reads."""
    return _names(parsed(source))


def _names(tree: ast.AST) -> frozenset[str]:
    found: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        else:
            todo += ast.iter_child_nodes(node)
    return frozenset(found)


def _segment(lines: list[str], node: ast.stmt) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    while first > 1 and lines[first - 2].startswith("#"):  # the comment that explains it
        first -= 1
    return "\n".join(lines[first - 1 : node.end_lineno])


def _bound(node: ast.stmt) -> tuple[str, ...]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Assign(targets=targets):
            return tuple(t.id for t in targets if isinstance(t, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            return (name,)
    return ()


class DeviceLibrary:
    """The definitions of every module of the device library.

    Raises :class:`LibraryError` if two modules define one name.
    """

    def __init__(self, root: Path = _LIBRARY) -> None:
        self._definitions: dict[str, _Definition] = {}
        self._imports: dict[str, _Import] = {}
        self._docs: dict[str, str] = {}
        modules = {p.stem: ast.parse(p.read_text()) for p in sorted(root.glob("*.py")) if p.stem != "__init__"}
        for position, name in enumerate(_dependency_order(modules)):
            self._read(name, (root / f"{name}.py").read_text(), modules[name], position)

    def _read(self, module: str, source: str, tree: ast.Module, position: int) -> None:
        lines = source.splitlines()
        self._docs[module] = (ast.get_docstring(tree) or module).splitlines()[0]
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._read_import(node)
            for name in _bound(node):
                if name == "__all__":
                    continue
                if name in self._definitions:
                    if ast.unparse(node) == ast.unparse(self._definitions[name].node):
                        continue  # one private constant, needed in two modules
                    other = self._definitions[name].module
                    raise LibraryError(f"device library: {name} is defined differently in {other}.py and {module}.py")
                text = _segment(lines, node)
                self._definitions[name] = _Definition(name, module, text, node, (position, node.lineno))

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            return
        for alias in node.names:
            one = ast.Import([alias]) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, [alias], 0)
            binds = alias.asname or alias.name.split(".")[0]
            self._imports[binds] = _Import(ast.unparse(one), binds)

    def defines(self, name: str) -> bool:
        return name in self._definitions

    def closure(self, roots: frozenset[str]) -> tuple[str, ...]:
        """The definitions ``roots`` need, themselves included, in the library's order.

        Raises :class:`LibraryError` for a root the library lacks.
        """
        missing = sorted(r for r in roots if r not in self._definitions)
        if missing:
            raise LibraryError(f"device library: no definition of {', '.join(missing)}")
        taken: set[str] = set()
        todo = sorted(roots)
        while todo:
            name = todo.pop()
            if name in taken:
                continue
            taken.add(name)
            todo += sorted(u for u in self._definitions[name].uses if u in self._definitions)
        return tuple(sorted(taken, key=lambda n: self._definitions[n].order))

    def source(self, roots: frozenset[str]) -> str:
        """The body of a ``device.py`` that defines ``roots`` (unformatted, without docstring or header)."""
        taken = self.closure(roots)
        texts: list[str] = []
        module = ""
        seen: set[tuple[str, str]] = set()
        for name in taken:
            d = self._definitions[name]
            if d.module != module:
                module = d.module
                texts.append(f"# {'-' * 10} {self._docs[module]}")
            if (d.module, d.text) not in seen:  # one statement may bind several names
                seen.add((d.module, d.text))
                texts.append(d.text)
        used = frozenset().union(*(self._definitions[n].uses for n in taken)) if taken else frozenset()
        imports = sorted({i.text for i in self._imports.values() if i.binds in used or i.binds == "annotations"})
        future = [i for i in imports if "__future__" in i]
        rest = [i for i in imports if "__future__" not in i]
        return "\n\n".join(["\n".join(future), "\n".join(rest), *texts]) + "\n"


def _dependency_order(modules: dict[str, ast.Module]) -> list[str]:
    """Modules, each after those it imports from, otherwise by name."""
    needs = {
        name: sorted(
            n.module.removeprefix(f"{_PACKAGE}.")
            for n in tree.body
            if isinstance(n, ast.ImportFrom) and n.module and n.module.startswith(f"{_PACKAGE}.")
        )
        for name, tree in modules.items()
    }
    out: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise LibraryError(f"device library: import cycle {' -> '.join((*above, name))}")
        if name not in out:
            for other in needs[name]:
                visit(other, (*above, name))
            out.append(name)

    for name in sorted(modules):
        visit(name, ())
    return out
