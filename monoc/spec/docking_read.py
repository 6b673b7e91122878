"""Reading the `docking:` section: a map in the spec, or a file of its own beside or below it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from monoc.diagnostics import Code, Diagnostics, quoted, suggestion
from monoc.expr.ir import Span
from monoc.spec.ast import Name, Node
from monoc.spec.buildspace import BuildSpace, DimDecl
from monoc.spec.docking import (
    Binding,
    Docking,
    Import,
    Message,
    NamedValue,
    Rule,
    VariantChoice,
    WeightSource,
)
from monoc.spec.docking_ast import Attribute, Constant, Invoke, Range
from monoc.spec.docking_entries import EntryReader
from monoc.spec.docking_names import CREATE, DEFERRED, DockingNames, Place
from monoc.spec.docking_syntax import DockingSyntax
from monoc.spec.fields import Fields, Reader
from monoc.spec.names import Names
from monoc.spec.program import Entry, Runner, TensorDecl
from monoc.spec.yamltree import YamlList, YamlMap, YamlNode, YamlText, parse_yaml

__all__ = ["DockingReader", "docking_tree"]

_KEYS = ("class", "title", "option", "enabled", "imports", "names", "deployment", "variants", "layers", "entries",
         "weights", "options", "attributes")  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9 .,:;()+\-*/=<>_%\[\]'|~!?#&@^$]*")
_HOLE = re.compile(r"\{([^{}]*)\}")
_MODULE = re.compile(r"vllm(\.[A-Za-z_][A-Za-z0-9_]*)+")


def docking_tree(path: str, node: YamlNode, diagnostics: Diagnostics) -> YamlMap | None:
    """The section's map: ``node`` itself, or the file it names relative to the spec at ``path``."""
    if isinstance(node, YamlText):
        inner = PurePosixPath(node.text)
        if inner.is_absolute() or ".." in inner.parts or "\\" in node.text or not node.text.endswith(".yaml"):
            diagnostics.error(
                Code.FILE, f"{quoted(node.text)} cannot be the docking", node.span,
                "a `.yaml` file beside or below the spec",
            )  # fmt: skip
            return None
        file = str(PurePosixPath(path).parent / inner)
        text = diagnostics.read(file, node.span)
        tree = None if text is None else parse_yaml(file, text, diagnostics)
        if tree is None:
            return None
        node = tree
    return Reader(diagnostics).kind(node, YamlMap, "`docking`")


class DockingReader:
    """Reads one section against the resolved spec."""

    def __init__(
        self,
        reader: Reader,
        names: Names,
        space: BuildSpace,
        dims: tuple[DimDecl, ...],
        tensors: tuple[TensorDecl, ...],
        entries: tuple[Entry, ...],
        runner: Runner,
    ) -> None:
        self.reader, self.diagnostics = reader, reader.diagnostics
        self.syntax = DockingSyntax(reader.diagnostics)
        self.names = DockingNames(names, space, dims, reader.diagnostics)
        self.space, self.tensors, self.entries, self.runner = space, tensors, entries, runner

    def read(self, node: YamlMap) -> Docking | None:
        """The section; None where something is wrong with it (reported)."""
        before = len(self.diagnostics.errors)
        f = Fields(self.reader, node, "`docking`", _KEYS)
        title, option = (self._plain(f.text(k, required=True)) for k in ("title", "option"))
        text = f.text("class", required=True)
        class_name = None if text is None else self.reader.name(text, "a class")
        table = f.map("entries", required=True)
        reader = EntryReader(self, table)
        imports = self._imports(f.map("imports"), reader.arguments)
        named = self._names(f.map("names"), reader.arguments)
        bare = CREATE - {"variant"}
        enabled = self._value(f.text("enabled", required=True), Place("condition", bare))
        deployment = self.rules(f.list("deployment"), Place("condition", bare))
        variants = self._variants(f.map("variants"), f.node.span, Place("condition", bare))
        layers = self.rules(f.list("layers"), Place("condition", CREATE))
        entries = reader.read()
        weights = self._weights(f.map("weights", required=True))
        options = self._options(f.map("options"))
        attributes = self._always(f.map("attributes"), Place("condition", CREATE | {"entry"}), "an attribute")
        if class_name in {c.name for c in self.runner.weights} | {self.runner.class_name}:
            self.diagnostics.error(
                Code.DUPLICATE_NAME, f"`{class_name}` is a class of `runner`", f.at("class"), "rename it"
            )
        members = {"create", "weights"} | {e.method for e in entries}
        for binding in attributes:
            if binding.name in members:
                self.diagnostics.error(
                    Code.DUPLICATE_NAME, f"`{binding.name}` is a method", f.at("attributes"), "rename the attribute"
                )
        if len(self.diagnostics.errors) == before:
            self.names.report_unused()
        if len(self.diagnostics.errors) != before or class_name is None or enabled is None:
            return None
        return Docking(class_name, title, option, enabled, imports, named, deployment, variants, layers, entries,
                       weights, options, attributes, tuple(sorted(self.names.constants.items())))  # fmt: skip

    # ---------------------------------------------------------------- scalars

    def _plain(self, text: YamlText | None) -> str:
        if text is None:
            return ""
        if not _PLAIN.fullmatch(text.text) or not 1 <= len(text.text) <= 100 or "%" in text.text:
            self.diagnostics.error(
                Code.BAD_TEXT, f"{quoted(text.text)} is no plain text", text.span,
                "1 to 100 characters, no double quotes, backslashes, braces, percent signs or line breaks",
            )  # fmt: skip
        return text.text

    def _value(self, text: YamlText | None, place: Place) -> Node | None:
        node = None if text is None else self.syntax.scalar("value_text", text)
        return node if isinstance(node, Node) and self.names.check(node, place) else None

    def message(self, text: YamlText, place: Place) -> Message:
        """``why``: plain text, values in braces."""
        parts: list[str | Node] = []
        at = 0
        plain = _HOLE.sub("", text.text)
        if not _PLAIN.fullmatch(plain) or not 4 <= len(text.text) <= 200 or text.block_line is not None:
            self.diagnostics.error(
                Code.BAD_TEXT, "a message is 4 to 200 plain characters with values in braces", text.span,
                "no double quotes, backslashes, single braces or line breaks",
            )  # fmt: skip
            return Message(())
        for hole in _HOLE.finditer(text.text):
            parts.append(text.text[at : hole.start()])
            at = hole.end()
            column = text.span.column + text.quoted + hole.start(1)
            node = self.syntax.parse("value_text", hole.group(1), text.span.file, text.span.line, column)
            if isinstance(node, Node) and self.names.check(node, place, several=True):
                if not _simple(node):
                    self.diagnostics.error(
                        Code.DOCKING, "a message shows names and attributes", node.span,
                        "name the value under `names`",
                    )  # fmt: skip
                parts.append(node)
        parts.append(text.text[at:])
        return Message(tuple(p for p in parts if p != ""))

    # ---------------------------------------------------------------- lists and maps

    def rules(self, node: YamlList | None, place: Place) -> tuple[Rule, ...]:
        """``{when: condition, why: message}`` in the order they are tried."""
        found: list[Rule] = []
        for item in node.items if node is not None else ():
            fields = self.reader.kind(item, YamlMap, "a rule")
            if fields is None:
                continue
            f = Fields(self.reader, fields, "a rule", ("when", "why"))
            when, why = f.text("when", required=True), f.text("why", required=True)
            condition = self._value(when, place)
            if why is not None:
                message = self.message(why, place)
                if condition is not None and when is not None:
                    found.append(Rule(condition, message, when.span))
        return tuple(found)

    def bindings(self, node: YamlMap | None, place: Place, what: str) -> tuple[Binding, ...]:
        """``name: value``, ``name: value when condition`` or ``name: value when condition else value``."""
        found: list[Binding] = []
        for key, value in node.items if node is not None else ():
            name = self.reader.name(key, what)
            text = self.reader.kind(value, YamlText, f"`{key.text}`")
            parsed = None if text is None else self.syntax.scalar("given_value", text)
            if name is None or parsed is None:
                continue
            tree, when = parsed
            good = self.names.check(tree, place)
            if when is not None:
                good = self.names.check(when, Place("condition", place.bases, place.locals)) and good
            if good:
                found.append(Binding(name, tree, when))
        return tuple(found)

    def _options(self, node: YamlMap | None) -> tuple[Binding, ...]:
        known = [*(b.limit for b in self.runner.bounds), *(o.name for o in self.runner.options)]
        for key, _ in node.items if node is not None else ():
            self.reader.choice(key, known, "constructor option")
        return self._always(node, Place("condition", CREATE), "an option")

    def _always(self, node: YamlMap | None, place: Place, what: str) -> tuple[Binding, ...]:
        """Bindings that have a value in every case."""
        found = self.bindings(node, place, what)
        for binding in found:
            if binding.when is not None:
                self.diagnostics.error(
                    Code.DOCKING, f"`{binding.name}` has no value otherwise", binding.when.span, "add `else ...`"
                )
        return found

    def _imports(self, node: YamlMap | None, arguments: frozenset[str]) -> tuple[Import, ...]:
        for key, value in node.items if node is not None else ():
            name = self.reader.name(key, "an import")
            text = self.reader.kind(value, YamlText, f"import `{key.text}`")
            if name is None or text is None:
                continue
            path = self.syntax.scalar("import_path", text)
            if path is None:
                self.names.faulty.add(name)
                continue
            if not _MODULE.fullmatch(text.text) or len(path) < 2:
                self.diagnostics.error(
                    Code.DOCKING, f"{quoted(text.text)} is not of the framework", text.span,
                    "import `vllm.module.name`",
                )  # fmt: skip
                self.names.faulty.add(name)
                continue
            self._leads_out(path, text.span)
            if self.names.declare(name, key.span, arguments):
                self.names.imports[name] = Import(name, ".".join(path[:-1]), path[-1])
        return tuple(self.names.imports.values())

    def _leads_out(self, path: tuple[str, ...], span: Span) -> None:
        """The imported member is no module the framework imported for itself."""
        probe = Attribute(span, Name(span, "layer"), path[-1], False)
        self.names.check(probe, Place("condition", CREATE))

    def _names(self, node: YamlMap | None, arguments: frozenset[str]) -> tuple[NamedValue, ...]:
        place = Place("condition", CREATE | arguments | {"rows"})
        for key, value in node.items if node is not None else ():
            name = self.reader.name(key, "a value")
            text = self.reader.kind(value, YamlText, f"name `{key.text}`")
            tree = None if text is None else self._value(text, place)
            if name is None or not self.names.declare(name, key.span, arguments):
                continue
            # of a faulty value nothing else is said: what uses it is not checked against its place
            bases = frozenset() if tree is None else self.names.bases(tree)
            self.names.values[name] = NamedValue(name, tree or Constant(key.span, None), bases)
        return tuple(self.names.values.values())

    def _variants(self, node: YamlMap | None, span: Span, place: Place) -> tuple[VariantChoice, ...]:
        known = [v.name for v in self.space.variants]
        choices: dict[str, Node | None] = {}
        for key, value in node.items if node is not None else ():
            text = self.reader.kind(value, YamlText, f"variant `{key.text}`")
            if self.reader.choice(key, known, "variant") is not None:
                choices[key.text] = self._value(text, place)
        free = [v for v in known if v not in choices]
        if len(free) != 1:
            at = span if node is None else node.span
            self.diagnostics.error(
                Code.DOCKING, f"{len(free)} variants have no condition", at,
                f"give a condition to all of {', '.join(known)} but one, which is for the other layers",
            )  # fmt: skip
            return ()
        return (*(VariantChoice(n, c) for n, c in choices.items()), VariantChoice(free[0], None))

    def _weights(self, node: YamlMap | None) -> tuple[tuple[str, tuple[WeightSource, ...]], ...]:
        """A value for every field of every weight class."""
        place = Place("weights", DEFERRED, methods=True)
        given = {} if node is None else {k.text: v for k, v in node.items}
        if node is not None:
            Fields(self.reader, node, "`weights` of `docking`", [c.name for c in self.runner.weights])
        found: list[tuple[str, tuple[WeightSource, ...]]] = []
        for c in self.runner.weights:
            table = given.get(c.name)
            fields = [f.name for f in c.fields if f.kind != "class"]
            if node is not None and table is None:
                self.diagnostics.error(
                    Code.MISSING_KEY,
                    f"`weights` of `docking` lacks the class `{c.name}`",
                    node.span,
                    f"add `{c.name}:`",
                )
            section = None if table is None else self.reader.kind(table, YamlMap, f"`{c.name}`")
            if section is None:
                continue
            f = Fields(self.reader, section, f"`{c.name}`", fields)
            sources: list[WeightSource] = []
            for name in fields:
                tree = self._value(f.text(name, required=True), place)
                if tree is not None:
                    self._conversions(tree, name)
                    sources.append(WeightSource(name, tree))
            found.append((c.name, tuple(sources)))
        return tuple(found)

    def _conversions(self, tree: Node, name: str) -> None:
        """``codes`` and ``spread`` make scale tensors; ``spread`` from whole multiples of the scale's block."""
        scale = next((t.scale for t in self.tensors if t.scale is not None and t.scale.name == name), None)
        for node in tree.walk():
            if not isinstance(node, Invoke) or not isinstance(node.function, Name):
                continue
            if node.function.name in ("codes", "spread") and scale is None:
                self.diagnostics.error(
                    Code.DOCKING, f"`{node.function.name}` makes E8M0 codes, and `{name}` is no scale", node.span,
                    suggestion(f"{name}_scale", [t.scale.name for t in self.tensors if t.scale is not None]),
                )  # fmt: skip
            elif node.function.name == "spread" and scale is not None and len(node.arguments) == 2:
                block = node.arguments[1]
                size = block.value if isinstance(block, Constant) else None
                if type(size) is not int or size < 1 or any(size % b for b in scale.block):
                    self.diagnostics.error(
                        Code.DOCKING, f"`{name}` has a code per {scale.block[0]} x {scale.block[1]} elements",
                        block.span, "write the loaded scale's block size, a multiple of these",
                    )  # fmt: skip


def _simple(node: Node) -> bool:
    return all(isinstance(n, Name | Attribute) for n in node.walk()) and not isinstance(node, Range)
