"""The `entries` of a docking section: the methods of a docked layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monoc.diagnostics import Code, quoted, suggestion
from monoc.spec.ast import Name
from monoc.spec.docking import Argument, Binding, DockedEntry, HostProgram
from monoc.spec.docking_ast import Invoke, Line
from monoc.spec.docking_names import DEFERRED, Place
from monoc.spec.fields import Fields
from monoc.spec.program import Entry, Layout
from monoc.spec.syntax import name_problem
from monoc.spec.yamltree import YamlMap, YamlText

if TYPE_CHECKING:
    from monoc.spec.docking_read import DockingReader

__all__ = ["EntryReader"]

_KEYS = ("method", "arguments", "layers", "steps", "before", "call", "hosts", "results")
_CALL = "__call__"


class EntryReader:
    """Reads ``entries``; ``arguments`` are the names of all its methods' arguments, known before anything else."""

    def __init__(self, section: DockingReader, table: YamlMap | None) -> None:
        self.section, self.reader, self.diagnostics = section, section.reader, section.diagnostics
        self.tables: list[tuple[Entry, Fields, tuple[Argument, ...]]] = []
        known = {e.name: e for e in section.entries}
        for key, value in table.items if table is not None else ():
            node = self.reader.kind(value, YamlMap, f"entry `{key.text}`")
            if self.reader.choice(key, list(known), "entry") is None or node is None:
                continue
            f = Fields(self.reader, node, f"entry `{key.text}`", _KEYS)
            self.tables.append((known[key.text], f, self._arguments(f)))

    @property
    def arguments(self) -> frozenset[str]:
        return frozenset(a.name for _, _, arguments in self.tables for a in arguments)

    def _arguments(self, f: Fields) -> tuple[Argument, ...]:
        found: list[Argument] = []
        for text in f.texts("arguments", required=True):
            parsed = self.section.syntax.scalar("argument_value", text)
            if parsed is None:
                continue
            name, optional = parsed
            problem = name_problem(name) or self.section.names.taken(name, value=True)
            if problem is not None or name in {a.name for a in found}:
                self.diagnostics.error(
                    Code.BAD_NAME, f"{quoted(name)} cannot be an argument", text.span, problem or "it is one already"
                )
                continue
            found.append(Argument(name, optional))
        return tuple(found)

    def read(self) -> tuple[DockedEntry, ...]:
        found: list[DockedEntry] = []
        for entry, f, arguments in self.tables:
            docked = self._entry(entry, f, arguments)
            if docked.method in {"create", "weights", *(d.method for d in found)}:
                self.diagnostics.error(
                    Code.DUPLICATE_NAME,
                    f"the class has a method `{docked.method}` already",
                    f.at("method"),
                    "rename it",
                )
            found.append(docked)
        return tuple(found)

    def _entry(self, entry: Entry, f: Fields, arguments: tuple[Argument, ...]) -> DockedEntry:
        method = f.text("method", required=True)
        name = "" if method is None else _CALL if method.text == _CALL else self.reader.name(method, "a method") or ""
        at_hand = DEFERRED | {a.name for a in arguments} | {"rows"}
        create = Place("condition", DEFERRED | {"vllm_config"})
        layers = self.section.rules(f.list("layers"), create)
        steps = self.section.rules(f.list("steps"), Place("condition", at_hand))
        place = Place("lines", at_hand | {"runner"}, methods=True)
        before = self.lines(f.text("before"), place)
        given = frozenset(t for line in before for t in line.targets)
        call = self._call(entry, f, Place("call", at_hand | {"runner"}, given, methods=True))
        hosts = self._hosts(entry, f, DEFERRED | {a.name for a in arguments})
        return DockedEntry(entry.name, name, arguments, layers, steps, before, call, hosts, self._results(entry, f))

    def lines(self, text: YamlText | None, place: Place) -> tuple[Line, ...]:
        """A host program: every name is assigned (in some line) before it is read."""
        if text is None:
            return ()
        source = self.diagnostics.sources[text.span.file].splitlines()
        found = self.section.syntax.lines(text, source)
        for line in found:
            for tree, kind in ((line.value, "lines"), (line.when, "condition")):
                if tree is not None:
                    methods = kind == "lines"
                    self.section.names.check(tree, Place(kind, place.bases, place.locals, methods))
            for target in line.targets:
                problem = name_problem(target) or self.section.names.taken(target, value=True)
                if problem is not None and target != "_":
                    self.diagnostics.error(Code.BAD_NAME, f"{quoted(target)} cannot be assigned", line.span, problem)
            place = place.knowing(t for t in line.targets if t != "_")
        return found

    def _call(self, entry: Entry, f: Fields, place: Place) -> tuple[Binding, ...]:
        """A value for every argument of the entry (its own name's, unless told otherwise), then for its keywords."""
        node = f.map("call")
        section = self.section
        keywords = [*section.space.names(), *(o.name for o in section.runner.options)]
        keywords += [b.keyword for b in section.runner.bounds]
        known = [*entry.arguments, *keywords]
        for key, _ in node.items if node is not None else ():
            if key.text not in known:
                self.diagnostics.error(
                    Code.DOCKING, f"`{key.text}` is no argument of `{entry.name}` and no build parameter", key.span,
                    suggestion(key.text, known),
                )  # fmt: skip
        given = {b.name: b for b in section.bindings(node, place, "an argument")}
        for name, binding in given.items():
            section.names.spec.use(name)
            self._records(name, binding)
        tensors = {t.name: t for t in section.tensors}
        span = f.at("call")
        for name in entry.arguments:
            if name in given or (node is not None and node.get(name) is not None):
                continue
            if name in place.bases | place.locals:
                given[name] = Binding(name, Name(span, name))
            elif not tensors[name].guard.names():
                self.diagnostics.error(
                    Code.DOCKING, f"nothing is given for `{name}` of `{entry.name}`", span, f"add `{name}:` to `call`"
                )
        order = {name: i for i, name in enumerate(known)}
        return tuple(sorted(given.values(), key=lambda b: order.get(b.name, 0)))

    def _records(self, name: str, binding: Binding) -> None:
        """``records`` views a cache of records."""
        layouts = {t.name: t.layout for t in self.section.tensors}
        for node in binding.value.walk():
            function = node.function if isinstance(node, Invoke) else None
            if not isinstance(function, Name) or function.name != "records":
                continue
            if layouts.get(name) is not Layout.FP8_DS_MLA:
                self.diagnostics.error(
                    Code.DOCKING,
                    f"`records` views a KV cache, and `{name}` is none",
                    node.span,
                    "give the tensor itself",
                )

    def _hosts(self, entry: Entry, f: Fields, bases: frozenset[str]) -> tuple[HostProgram, ...]:
        node = f.map("hosts", required=bool(entry.host_calls))
        calls = {h.name: h for h in entry.host_calls}
        found: list[HostProgram] = []
        for key, value in node.items if node is not None else ():
            table = self.reader.kind(value, YamlMap, f"`{key.text}`")
            if self.reader.choice(key, list(calls), "host call") is None or table is None:
                continue
            g = Fields(self.reader, table, f"host call `{key.text}`", ("arguments", "when", "do"))
            arguments = tuple(t.text for t in g.texts("arguments", required=True) if self._free(t))
            if len(arguments) != len(calls[key.text].arguments):
                self.diagnostics.error(
                    Code.DOCKING, f"`{key.text}` is given {len(calls[key.text].arguments)} values", g.at("arguments"),
                    "name each: " + ", ".join(f"`{a}`" for a in calls[key.text].arguments),
                )  # fmt: skip
            text = g.text("when")
            when = None if text is None else self.section.syntax.scalar("value_text", text)
            if when is not None:
                self.section.names.check(when, Place("condition", bases))
            do = self.lines(g.text("do", required=True), Place("lines", bases | set(arguments), methods=True))
            found.append(HostProgram(key.text, arguments, do, when))
        for name in calls.keys() - {h.name for h in found}:
            if node is not None and node.get(name) is None:
                self.diagnostics.error(
                    Code.DOCKING, f"nothing is said of the host call `{name}`", node.span, f"add `{name}: ...`"
                )
        return tuple(found)

    def _free(self, text: YamlText) -> bool:
        problem = name_problem(text.text) or self.section.names.taken(text.text, value=True)
        if problem is not None:
            self.diagnostics.error(Code.BAD_NAME, f"{quoted(text.text)} cannot be an argument", text.span, problem)
        return problem is None

    def _results(self, entry: Entry, f: Fields) -> tuple[str, ...]:
        if not f.has("results"):
            return entry.outputs
        return tuple(t.text for t in f.texts("results") if self.reader.choice(t, entry.outputs, "result") is not None)
