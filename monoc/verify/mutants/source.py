"""An emitted file as text with its syntax tree: where things stand, what a function's regions are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

__all__ = ["Site", "Source"]

# Off in the builds that are verified: clock stamps, and all that bounds a wait.
_OFF = re.compile(r"b\.timeline|(limit|health) is not None")
_ON = re.compile(r"limit is None")
_WRITERS = frozenset({"publish_mx_quad", "put_head"})  # functions of the library that store into a region
_BOUNDS = re.compile(r"limit", re.IGNORECASE)  # names of what only bounds waits


@dataclass(frozen=True)
class Site:
    """A fault: bytes ``start`` .. ``end`` of ``file`` become ``text``. ``what`` says it in words."""

    operator: str
    file: str
    line: int
    function: str
    start: int
    end: int
    text: str
    what: str
    form: str = ""  # "flag" or "barrier": hand-offs of other forms do nothing there
    regions: frozenset[str] = frozenset()  # nothing is wrong where none of them goes from CTA to CTA; empty: wherever

    @property
    def name(self) -> str:
        """Short, unique within an operator of a package."""
        return f"{self.file}:{self.line} {self.function}: {self.what}"

    def apply(self, data: bytes) -> bytes:
        """``data`` with the fault, and the names it needs."""
        changed = data[: self.start] + self.text.encode() + data[self.end :]
        if "_faulty." not in self.text:
            return changed
        name = self.file.removesuffix(".py")
        device = (
            "import sys as _sys\n_device = _sys.modules[__name__]\n"
            if name == "device"
            else "from . import device as _device\n"
        )
        lines = device + "from monoc.verify.mutants import faulty as _faulty\n"
        marker = b"import flydsl.expr as fx\n"
        at = changed.index(marker) + len(marker)
        return changed[:at] + lines.encode() + changed[at:]


class Source:
    """File ``file`` of a package. ``peers``: the names of the regions in peer memory."""

    def __init__(self, file: str, data: bytes, peers: frozenset[str] = frozenset()) -> None:
        self.file, self.data, self.peers = file, data, peers
        self.tree = ast.parse(data)
        self._starts = [0, *accumulate(len(line) for line in data.splitlines(keepends=True))]
        self.parent: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parent[child] = node

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Bytes the node takes."""
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        """The node as it is written."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def short(self, node: ast.AST) -> str:
        """The node on one line of at most 70 characters."""
        text = " ".join(self.text(node).split())
        return text if len(text) <= 70 else text[:67] + "..."

    def site(
        self, operator: str, node: ast.expr | ast.stmt, text: str, what: str, regions: frozenset[str] = frozenset()
    ) -> Site:
        """``node`` replaced by ``text``. ``regions``: those that have to cross CTAs for it to matter."""
        start, end = self.span(node)
        function, form = self.function(node), self._form(node)
        return Site(operator, self.file, node.lineno, function, start, end, text, what, form, regions)

    def region(self, call: ast.Call) -> frozenset[str]:
        """The regions a hand-off call is about: its receiver's, or those of its first argument that has some."""
        own = self.regions.get(self.function(call), {})
        receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        for value in (*receiver, *call.args):
            if isinstance(value, ast.Name) and value.id in own:
                return own[value.id]
        return frozenset()

    def _form(self, node: ast.AST) -> str:
        """Units are announced and waited for behind flags only, grid barriers are there in the barrier form only."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self.parent.get(at)
        call = at.value if isinstance(at, ast.Expr) else None
        if not isinstance(call, ast.Call) or self.file == "device.py":
            return ""
        return {"done": "flag", "wait": "flag", "wave_wait": "flag", "grid_barrier": "barrier"}.get(called(call), "")

    def function(self, node: ast.AST) -> str:
        """The outermost function around ``node`` below the module and the launch builders, "" for none."""
        found = ""
        at: ast.AST | None = node
        while at is not None:
            if isinstance(at, ast.FunctionDef | ast.ClassDef) and not (at.name.startswith("build_") and found):
                found = at.name
            at = self.parent.get(at)
        return found

    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of function bodies in text order, those in no verified build left out."""
        return self._nodes

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        return tuple(self._walk())

    def _walk(self) -> Iterator[ast.AST]:
        pending: list[ast.AST] = [self.tree]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and _BOUNDS.search(node.name):
                continue
            if isinstance(node, ast.If) and _OFF.search(self.text(node.test)):
                pending += reversed(node.orelse)
                continue
            if isinstance(node, ast.If) and _ON.search(self.text(node.test)):
                pending += reversed(node.body)
                continue
            yield node
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, ast.FunctionDef):
                children = [*node.body]
            pending += reversed(children)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of the functions or methods ``names``."""
        for node in self.nodes():
            if isinstance(node, ast.Call) and called(node) in names:
                yield node

    @cached_property
    def functions(self) -> Mapping[str, ast.FunctionDef]:
        """The file's functions by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def regions(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """Per function its parameters that are regions, each with the regions the launch gives it."""
        found: dict[str, dict[str, frozenset[str]]] = {}
        changed = True
        while changed:
            changed = False
            for call in (n for n in ast.walk(self.tree) if isinstance(n, ast.Call)):
                target = self.functions.get(called(call))
                if target is None:
                    continue
                own = found.get(self.function(call), {})
                for parameter, value in zip(target.args.args, call.args, strict=False):
                    given = _given(value, own)
                    known = found.setdefault(target.name, {}).get(parameter.arg, frozenset())
                    if given - known:
                        found[target.name][parameter.arg] = known | given
                        changed = True
        return found

    def region_uses(self) -> Iterator[tuple[ast.Name, frozenset[str]]]:
        """Where functions use their regions, with the regions' names. Not where a peer region is waited for or
        announced: its words carry their own tags, so that does nothing."""
        for node in self.nodes():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                regions = self.regions.get(self.function(node), {}).get(node.id)
                if regions and not self.idle(node, regions):
                    yield node, regions

    def reads(self, use: ast.Name) -> bool:
        """Whether a use of a region may take words from it: it does not only store, nor does who is given it."""
        up = self.parent.get(use)
        if isinstance(up, ast.Attribute):
            return up.attr not in ("put", "done", "owned")
        if not isinstance(up, ast.Call):
            return True
        if called(up) in _WRITERS:
            return False
        target = self.functions.get(called(up))
        if target is None or use not in up.args or up.args.index(use) >= len(target.args.args):
            return True
        name = target.args.args[up.args.index(use)].arg
        return any(self.reads(n) for n in ast.walk(target) if isinstance(n, ast.Name) and n.id == name)

    def idle(self, use: ast.expr, regions: frozenset[str]) -> bool:
        """Whether a use of ``regions`` waits for peer memory or announces it."""
        up = self.parent.get(use)
        return bool(regions) and regions <= self.peers and isinstance(up, ast.Attribute) and up.attr in ("wait", "done")


def called(call: ast.Call) -> str:
    """The name of what is called: a function's or a method's."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _given(value: ast.expr, own: Mapping[str, frozenset[str]]) -> frozenset[str]:
    if isinstance(value, ast.Name):
        return own.get(value.id, frozenset())
    subscript = isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id == "mail"
    if subscript and isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return frozenset({str(value.slice.value)})
    return frozenset()
