"""Names of a docking section: what may be said where.

Conditions only look: they call nothing but what the section imports and the functions below. Lines and bindings may
also call methods of the objects at hand. No attribute leads out of the framework by way of a module it imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from monoc.diagnostics import Code, Diagnostics, counted, quoted, suggestion
from monoc.expr.ir import Span
from monoc.spec.ast import ListNode, Name, Node, Op
from monoc.spec.docking import Import, NamedValue
from monoc.spec.docking_ast import Attribute, Constant, Invoke, Item
from monoc.spec.names import NameKind, Names
from monoc.spec.program import BuildSpace, DimDecl

__all__ = ["CREATE", "DEFERRED", "FACTS", "FUNCTIONS", "VARIANT", "DockingNames", "Place"]

# Values every condition may read: the target's, and what this process and its GPU are.
FACTS = {
    "ctas": "CTAs of a launch, all resident at once",
    "arch": "the architecture the launches are compiled for",
    "compute_units": "of this process's GPU",
    "gpu_arch": "of this process's GPU, without its feature flags",
    "flydsl_arch": "what FlyDSL would compile for: the ARCH environment variable, or the GPU's",
    "import_error": "why the launches cannot be imported, or None",
}
_ANY = 99
# name: (fewest arguments, most, where: "" anywhere)
FUNCTIONS: dict[str, tuple[int, int, str]] = {
    "cdiv": (2, 2, ""),
    "pad": (2, 2, ""),
    "is_map": (1, 1, ""),
    "is_a": (2, 2, ""),
    "class_name": (1, 1, ""),
    "contiguous": (1, _ANY, ""),
    "matmul": (2, 2, "lines"),
    "codes": (1, 1, "weights"),
    "spread": (2, 2, "weights"),
    "records": (2, 2, "call"),
}
VARIANT = "variant"  # the base of what depends on a layer's variant
CREATE = frozenset({"layer", "vllm_config", VARIANT})
DEFERRED = frozenset({"layer", VARIANT})  # what is still at hand after a layer was made
# Identifiers of the emitted module and of its methods
_TAKEN = frozenset({
    "cache", "cls", "entry", "given", "kept", "layer", "name", "options", "reasons", "results", "round_up", "rows",
    "runner", "self", "skip", "take_weights", "torch", "unserved", "variant", "vllm_config", "weights", "why",
})  # fmt: skip
_MODULES = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}
_FRAMES = ("f_", "gi_", "cr_", "ag_", "tb_", "co_", "func_")  # attributes of frames, generators, code


@dataclass(frozen=True)
class Place:
    """Where a tree stands: ``bases`` at hand, ``locals`` assigned so far, whether methods may be called.

    ``kind`` is "condition", "lines", "weights" or "call"."""

    kind: str
    bases: frozenset[str]
    locals: frozenset[str] = frozenset()
    methods: bool = False

    def knowing(self, names: Iterable[str]) -> Place:
        return replace(self, locals=self.locals | frozenset(names))


@dataclass
class DockingNames:
    """Checks the trees of one section and keeps what they use."""

    spec: Names
    space: BuildSpace
    dims: tuple[DimDecl, ...]
    diagnostics: Diagnostics
    imports: dict[str, Import] = field(default_factory=dict)
    values: dict[str, NamedValue] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    spans: dict[str, Span] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)  # declared wrongly (reported): their uses are not checked

    # ---------------------------------------------------------------- declarations

    def taken(self, name: str, *, value: bool = False) -> str | None:
        """What else ``name`` means in the section, or None; a ``value`` may be named like a switch it sets."""
        if name in _TAKEN or name in FACTS or name in FUNCTIONS or name.startswith("between_"):
            return "it is part of the docking language"
        if name in self.spans:
            return "the section has it already"
        switches = {p.name for p in self.space.params if p.boolean} if value else set()
        if any(name.upper() == other.upper() for other in self._numbers() if other not in switches):
            return "a build parameter, dimension or constant has this name"
        return None

    def declare(self, name: str, span: Span, arguments: Iterable[str]) -> bool:
        """Whether ``name`` is free in the section (reported if not); ``arguments`` are those of its entries."""
        taken = "an entry's argument has this name" if name in set(arguments) else self.taken(name)
        if taken is not None:
            self.diagnostics.error(Code.DUPLICATE_NAME, f"{quoted(name)} is taken: {taken}", span, "rename it")
            return False
        self.spans[name] = span
        return True

    def report_unused(self) -> None:
        for name, span in self.spans.items():
            if name not in self.used:
                what = "import" if name in self.imports else "name"
                self.diagnostics.error(Code.UNUSED, f"{what} `{name}` is never used", span, "use it or remove it")

    def _numbers(self) -> tuple[str, ...]:
        return self.spec.of(NameKind.PARAM, NameKind.DIM, NameKind.CONSTANT)

    def collection(self, name: str) -> bool:
        """Whether ``name`` is a parameter standing for all its values: a shared one, or one a variant leaves open."""
        if name not in self.spec.of(NameKind.PARAM):
            return False
        return not self.of_variant(name) or any(len(dict(v.values)[name]) > 1 for v in self.space.variants)

    def of_variant(self, parameter: str) -> bool:
        return parameter not in {p.name for p in self.space.params}

    # ---------------------------------------------------------------- trees

    def bases(self, node: Node) -> frozenset[str]:
        """What ``node`` is made of in the end."""
        found: set[str] = set()
        for name in node.names():
            if name in self.values:
                found |= self.values[name].bases
            elif name in self.spec.of(NameKind.PARAM):
                found |= {VARIANT} if self.of_variant(name) else set()
            elif not {name} & (self.imports.keys() | FACTS.keys() | FUNCTIONS.keys() | set(self._numbers())):
                found.add(name)
        return frozenset(found)

    def check(self, node: Node, place: Place, *, several: bool = False) -> bool:
        """Whether every name, call and text of ``node`` may stand at ``place`` (reported if not).

        ``several``: ``node`` may be a parameter of several values."""
        before = len(self.diagnostics.errors)
        self._check(node, place, text=False, several=several)
        return len(self.diagnostics.errors) == before

    def _check(self, node: Node, place: Place, *, text: bool, several: bool) -> None:
        match node:
            case Constant():
                if isinstance(node.value, str) and not text:
                    self._bad(node, "a text stands alone", "texts are compared with, or keys in brackets")
            case Name():
                self._name(node, place, several)
            case Attribute():
                if node.name in _MODULES or node.name.startswith(_FRAMES):
                    self._bad(node, f"the attribute {quoted(node.name)} leads out of the framework", None)
                self._check(node.value, place, text=False, several=False)
            case Item():
                self._check(node.value, place, text=False, several=False)
                for key in node.keys:
                    self._check(key, place, text=True, several=False)
            case Invoke():
                self._invoke(node, place)
            case Op():
                compares = node.op in ("==", "!=", "in", "not in")
                for i, operand in enumerate(node.args):
                    inside = i == 1 and node.op in ("in", "not in")
                    self._check(operand, place, text=compares, several=inside)
                    if inside:
                        self._collection(operand)
            case ListNode():
                for item in node.items:
                    self._check(item, place, text=text, several=False)
            case _:
                for child in node.children():
                    self._check(child, place, text=False, several=False)

    def _collection(self, operand: Node) -> None:
        """The right side of ``in``: a group, a parameter of several values, or an object's own collection."""
        name = operand.name if isinstance(operand, Name) else None
        if name in self._numbers() and not self.collection(name or ""):
            self._bad(operand, f"`{name}` is one number in a layer", "compare with `==` or `!=`")
        elif isinstance(operand, Constant):
            self._bad(operand, "nothing is in a single constant", "compare with `==`, or write `(a, b)`")

    def _name(self, node: Name, place: Place, several: bool) -> None:
        name = node.name
        if name in place.locals or name in place.bases or name in FACTS or name in self.faulty:
            return
        if name in self.imports:
            self.used.add(name)
            return
        if name in FUNCTIONS:
            self._bad(node, f"`{name}` is a function", f"call it: `{name}(...)`")
            return
        if name in self.values:
            self.used.add(name)
            bases = self.values[name].bases
            missing = bases - place.bases
            if missing and not (bases <= CREATE and VARIANT in place.bases):
                self._bad(
                    node, f"`{name}` is made of {_listed(missing)}, which there is none of here",
                    "use it where there is, or name another value",
                )  # fmt: skip
            return
        if name in self._numbers():
            self._number(node, place, several)
            return
        known = {*place.locals, *place.bases, *self.imports, *self.values, *FACTS, *self._numbers()} - {VARIANT}
        self.diagnostics.error(
            Code.UNKNOWN_NAME, f"unknown name {quoted(name)} in the docking", node.span,
            suggestion(name, known, "it can read " + ", ".join(f"`{n}`" for n in sorted(place.bases - {VARIANT}))),
        )  # fmt: skip

    def _number(self, node: Name, place: Place, several: bool) -> None:
        name = node.name
        declared = self.spec.use(name)
        if declared is not None and declared.value is not None:
            self.constants[name] = float(declared.value)
        if name in self.spec.of(NameKind.PARAM):
            boolean = any(p.name == name and p.boolean for p in self.space.params)
            if boolean:
                self._bad(node, f"`{name}` is set by each step", "say in `call` what the step gives it")
            elif self.collection(name) and not several:
                self._bad(
                    node, f"`{name}` is all values of the builds", f"write `... in {name}` or `... not in {name}`"
                )
            elif self.of_variant(name) and VARIANT not in place.bases:
                self._bad(node, f"`{name}` depends on the layer's variant, which is not known here", None)
        elif name in self.spec.of(NameKind.DIM) and self._varying(name):
            self._bad(node, f"`{name}` depends on the build", "use dimensions that are the same in every build")

    def _varying(self, dim: str) -> bool:
        table = {d.name: d.expr for d in self.dims}
        fixed: set[str] = set()
        for name, expr in table.items():
            if expr.names() <= fixed:
                fixed.add(name)
        return dim not in fixed

    def _invoke(self, node: Invoke, place: Place) -> None:
        function = node.function
        if isinstance(function, Name) and function.name in FUNCTIONS:
            least, most, where = FUNCTIONS[function.name]
            given = len(node.arguments)
            if node.keywords or not least <= given <= most:
                wanted = counted(least, "argument") + (" or more" if most == _ANY else "")
                self._bad(node, f"`{function.name}` takes {wanted}, not {given}", None)
            if where and where != place.kind:
                self._bad(function, f"`{function.name}` has no use here", f"it belongs to `{where}`")
        else:
            root = function
            while isinstance(root, Attribute):
                root = root.value
            known = not isinstance(root, Name) or root.name in self.spans or root.name in place.bases
            imported = isinstance(root, Name) and root.name in (self.imports.keys() | self.faulty)
            if known and not imported and not place.methods:
                self._bad(
                    node, "a condition calls nothing but imports and the docking language's functions",
                    "import what it needs, or do it in `before`",
                )  # fmt: skip
            self._check(function, place, text=False, several=False)
        for value in (*node.arguments, *(v for _, v in node.keywords)):
            self._check(value, place, text=False, several=False)

    def _bad(self, node: Node, message: str, remedy: str | None) -> None:
        self.diagnostics.error(Code.DOCKING, message, node.span, remedy)


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"`{n}`" for n in sorted(names))
