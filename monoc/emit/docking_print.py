"""Trees of a docking section as Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from monoc.spec.ast import ListNode, Name, Node, Op
from monoc.spec.docking import Docking, Message
from monoc.spec.docking_ast import Attribute, Choice, Constant, Invoke, Item, Range
from monoc.spec.docking_names import FACTS

__all__ = ["FUNCTION_HELPERS", "Body", "NumberText"]

# The emitted module's helper of each function of the language, and of each fact
FUNCTION_HELPERS = {
    "cdiv": "cdiv",
    "pad": "round_up",
    "is_map": "_is_map",
    "is_a": "isinstance",
    "class_name": "_class_name",
    "contiguous": "_contiguous",
    "matmul": "_matmul",
    "codes": "_codes",
    "spread": "_spread",
    "records": "_records",
}
_FACTS = {"ctas": "GRID", "arch": "TARGET"}
_LEVEL = {"or": 1, "and": 2, "not": 3, "in": 4, "not in": 4, "is None": 4, "is not None": 4, "+": 5, "-": 5, "*": 6,
          "//": 6, "neg": 7}  # fmt: skip
_COMPARE, _NUMBER, _ATOM = 4, 8, 9  # an attribute of a number takes parentheses

NumberText = Mapping[str, str]  # build parameter, dimension or constant -> Python


@dataclass
class Body:
    """One emitted function: what it imports and the names it has computed so far.

    ``kept``: names that are attributes of the docked layer there; ``numbers``: the spec's numbers as Python;
    ``conversion``: what a conversion in the value now printed is given beside its arguments."""

    docking: Docking
    numbers: NumberText
    kept: frozenset[str] = frozenset()
    imports: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    helpers: set[str] = field(default_factory=set)
    collections: frozenset[str] = frozenset()  # parameters that stand for all their values
    conversion: tuple[str, ...] = ()

    # ---------------------------------------------------------------- names

    def need(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        """Assignments of the section's names and facts that ``nodes`` read and this function has not computed."""
        wanted: set[str] = set()

        def visit(node: Node) -> None:
            for name in node.names():
                if name in self.docking.named and name not in self.kept and name not in wanted:
                    wanted.add(name)
                    visit(self.docking.named[name].value)
                elif name in FACTS:
                    wanted.add(name)

        for node in nodes:
            visit(node)
        new = wanted - self.known
        self.known |= new
        facts = tuple(f"{n} = {self._fact(n)}" for n in FACTS if n in new and n not in _FACTS)
        return facts + tuple(f"{n.name} = {self.text(n.value)}" for n in self.docking.names if n.name in new)

    def _fact(self, name: str) -> str:
        self.helpers.add(f"_{name}")
        return f"_{name}()"

    def import_lines(self) -> tuple[str, ...]:
        """``from module import member as name``, as far as used."""
        lines = []
        for i in self.docking.imports:
            if i.name in self.imports:
                lines.append(f"from {i.module} import {i.member}" + ("" if i.member == i.name else f" as {i.name}"))
        return tuple(lines)

    # ---------------------------------------------------------------- trees

    def message(self, message: Message) -> str:
        """A string literal; its plain parts hold no quote, backslash or brace."""
        if all(isinstance(p, str) for p in message.parts):
            return '"' + "".join(str(p) for p in message.parts) + '"'
        return 'f"' + "".join(p if isinstance(p, str) else f"{{{self._shown(p)}}}" for p in message.parts) + '"'

    def _shown(self, node: Node) -> str:
        if isinstance(node, Name) and node.name in self.collections:
            self.helpers.add("_either")
            return f"_either({self.text(node)})"
        return self.text(node)

    def text(self, node: Node) -> str:
        return self._print(node)[0]

    def _inner(self, node: Node, level: int) -> str:
        text, own = self._print(node)
        return text if own >= level else f"({text})"

    def _print(self, node: Node) -> tuple[str, int]:
        match node:
            case Constant():
                number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
                return repr(node.value), _NUMBER if number else _ATOM
            case Name():
                return self._variable(node.name), _ATOM
            case Attribute(optional=True):
                path: list[str] = []
                root: Node = node
                while isinstance(root, Attribute) and root.optional:
                    path.insert(0, root.name)
                    root = root.value
                self.helpers.add("_maybe")
                return f"_maybe({', '.join([self.text(root), *map(repr, path)])})", _ATOM
            case Attribute():
                return f"{self._inner(node.value, _ATOM)}.{node.name}", _ATOM
            case Item(optional=True):
                self.helpers.add("_item")
                return f"_item({self.text(node.value)}, {', '.join(map(self.text, node.keys))})", _ATOM
            case Item():
                return f"{self._inner(node.value, _ATOM)}[{', '.join(map(self.text, node.keys))}]", _ATOM
            case Range():
                ends = ["" if n is None else self.text(n) for n in (node.first, node.end)]
                return ":".join(ends), _ATOM
            case Invoke():
                return self._call(node), _ATOM
            case ListNode():
                return f"({', '.join(map(self.text, node.items))})", _ATOM
            case Choice():
                value, condition = self._inner(node.value, 1), self._inner(node.condition, 1)
                return f"{value} if {condition} else {self._inner(node.other, 1)}", 0
            case Op():
                return self._operation(node)
        raise TypeError(type(node).__name__)

    def _variable(self, name: str) -> str:
        if name in self.kept and name in self.docking.named:
            return f"self._{name}"
        if name in self.docking.imported:
            self.imports.add(name)
            return name
        if name in _FACTS:
            self.helpers.add(_FACTS[name])
            return _FACTS[name]
        text = self.numbers.get(name, name)
        self.helpers.add(text)
        return text

    def _call(self, node: Invoke) -> str:
        arguments = [self.text(a) for a in node.arguments] + [f"{k}={self.text(v)}" for k, v in node.keywords]
        function = node.function
        if isinstance(function, Name) and function.name in FUNCTION_HELPERS:
            helper = FUNCTION_HELPERS[function.name]
            self.helpers.add(helper)
            if function.name in ("codes", "spread", "records"):
                arguments += self.conversion
                self.helpers.update(self.conversion)
            return f"{helper}({', '.join(arguments)})"
        return f"{self._inner(function, _ATOM)}({', '.join(arguments)})"

    def _operation(self, node: Op) -> tuple[str, int]:
        level = _LEVEL.get(node.op, _COMPARE)
        if node.op in ("not", "neg"):
            sign = "not " if node.op == "not" else "-"
            return f"{sign}{self._inner(node.args[0], level)}", level
        if node.op in ("is None", "is not None"):
            return f"{self._inner(node.args[0], level + 1)} {node.op}", level
        # comparisons do not chain; - and // group to the left
        left = level + (level == _COMPARE)
        right = level + (node.op not in ("or", "and"))
        return f"{self._inner(node.args[0], left)} {node.op} {self._inner(node.args[1], right)}", level
