"""From a spec file to a :class:`~monoc.spec.program.Program`: the front end on one screen."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import PurePosixPath

from monoc.diagnostics import Code, Diagnostics, quoted
from monoc.expr.ir import Span
from monoc.spec.ast import ProgramText
from monoc.spec.blocks import parse_program
from monoc.spec.buildexpr import InexactDivisionError
from monoc.spec.builds import Samples, read_build, read_dims
from monoc.spec.constants import FoldError, round_f32
from monoc.spec.docking import Docking
from monoc.spec.docking_read import DockingReader, docking_tree
from monoc.spec.entries import resolve_entries
from monoc.spec.fields import Fields, Reader
from monoc.spec.hostside import read_runner, read_schedule, read_target
from monoc.spec.names import NameKind, Names
from monoc.spec.program import BuildSpace, DimDecl, Entry, Program, Role, Runner, Schedule, TensorDecl
from monoc.spec.tensors import TensorSection
from monoc.spec.yamltree import YamlMap, YamlNode, YamlText, parse_yaml

__all__ = ["load_program"]

_SECTIONS = (("inputs", Role.INPUT), ("weights", Role.WEIGHT), ("caches", Role.CACHE), ("outputs", Role.OUTPUT))
_KEYS = ("layer", "licence", "target", "build", "constants", "dims", *(s for s, _ in _SECTIONS), "program", "include",
         "runner", "schedule", "docking")  # fmt: skip
_LICENCE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .-+()")


def load_program(path: str) -> Program:
    """The resolved program of the spec at ``path``. Raises :class:`CompileErrors` with every error found."""
    diagnostics = Diagnostics()
    text = diagnostics.read(path)
    tree = None if text is None else parse_yaml(path, text, diagnostics)
    if tree is not None and not isinstance(tree, YamlMap):
        diagnostics.error(Code.WRONG_KIND, "a spec is a map", tree.span, "begin with `layer: NAME`")
    program = None
    if isinstance(tree, YamlMap):
        try:
            program = _Loader(path, tree, diagnostics).load()
        except InexactDivisionError as e:  # outside `dims`, where the builds it happens in are not told apart
            diagnostics.error(
                Code.DIM_VALUE, f"`{e.expr}` is {e.a} / {e.b}, not an integer, in some build",
                e.expr.span or Span(path, 1, 1), "use `cdiv(n, m)` or `pad(n, m)` with m above 0",
            )  # fmt: skip
    diagnostics.check()
    assert program is not None
    return program


class _Loader:
    def __init__(self, path: str, tree: YamlMap, diagnostics: Diagnostics) -> None:
        self.path, self.tree, self.diagnostics = path, tree, diagnostics
        self.reader = Reader(diagnostics)
        self.names = Names(diagnostics)
        self.fields = Fields(self.reader, tree, "the spec", _KEYS)

    def load(self) -> Program | None:
        f = self.fields
        title = f.text("layer", required=True)
        name = None if title is None else self.reader.name(title, "a layer")
        licence = self._licence()
        node = f.map("target", required=True)
        target = None if node is None else read_target(node, self.reader)
        build = f.map("build", required=True)
        space = BuildSpace((), (), ()) if build is None else read_build(build, self.reader, self.names)
        self._constants(f.map("constants"))
        node = f.map("dims", required=True)
        dims = () if node is None else read_dims(node, self.reader, self.names)
        section = TensorSection(self.reader, self.names)
        for key, role in _SECTIONS:
            if (node := f.map(key, required=key != "caches")) is not None:
                section.read(node, role)
        text, source = self._program_text()
        if not space.variants or (self.diagnostics.errors and next(space.builds(), None) is None):
            return None  # nothing can be said about sizes without builds
        guards = [_guard_names(text), *(t.guard.names() for t in section.tensors)]
        wide = any("tokens" in g for g in guards)
        samples = Samples.of(space, dims, self.names.faulty, self.diagnostics, full=wide)
        section.check(samples)
        tensors = tuple(section.tensors)
        entries, types = resolve_entries(
            text, self.names, samples, tensors, frozenset(section.faulty), self.diagnostics
        )
        node = f.map("runner", required=True)
        runner = None if node is None else read_runner(node, self.reader, self.names, tensors)
        node = f.map("schedule")
        schedule = Schedule() if node is None else read_schedule(node, self.reader, self.names)
        values = {t for t, _ in types}
        self._overrides(schedule, values, {s.name for e in entries for s in e.launches})
        if not self.diagnostics.errors:
            self._knobs(schedule, samples)
        self._aliases(runner, values)
        docking = None
        if runner is not None:
            docking, more = self._docking(space, dims, tensors, entries, runner)
            source = [*source, *more]
        self._unused(space)
        if name is None or target is None or runner is None or self.diagnostics.errors:
            return None
        digest = hashlib.sha256("\n".join([*_canonical(self.tree, ""), *source]).encode()).hexdigest()
        return Program(
            name, licence, self.path, digest, target, space, dims, tensors, types, entries, runner, schedule, docking
        )

    def _docking(
        self,
        space: BuildSpace,
        dims: tuple[DimDecl, ...],
        tensors: tuple[TensorDecl, ...],
        entries: tuple[Entry, ...],
        runner: Runner,
    ) -> tuple[Docking | None, list[str]]:
        """The docking section, and its lines for the digest where it is a file of its own."""
        node = self.tree.get("docking")
        tree = None if node is None else docking_tree(self.path, node, self.diagnostics)
        if tree is None:
            return None, []
        reader = DockingReader(self.reader, self.names, space, dims, tensors, entries, runner)
        return reader.read(tree), _canonical(tree, "docking", blocks=True)

    def _licence(self) -> str:
        text = self.fields.text("licence")
        if text is None:
            return "Apache-2.0"
        if not text.text or len(text.text) > 60 or not set(text.text) <= _LICENCE:
            self.diagnostics.error(
                Code.BAD_TEXT, f"{quoted(text.text)} is no SPDX expression", text.span, "e.g. `Apache-2.0`"
            )
        return text.text

    def _constants(self, node: YamlMap | None) -> None:
        for key, value in node.items if node is not None else ():
            name = self.reader.name(key, "a constant")
            text = self.reader.kind(value, YamlText, f"constant `{key.text}`")
            if name is None or text is None:
                continue
            number = _decimal(text)
            try:
                if number is None:
                    raise FoldError(f"{quoted(text.text)} is no number")
                round_f32(number)
            except FoldError as e:
                self.diagnostics.error(Code.WRONG_KIND, f"constant `{name}`: {e}", text.span, "write e.g. 1e-6 or 0.5")
                number = Fraction(1)
            self.names.declare(name, NameKind.CONSTANT, key.span, value=number)

    def _program_text(self) -> tuple[ProgramText, list[str]]:
        """The program and its lines without comments and spacing (for the digest)."""
        f = self.fields
        written, includes = f.text("program"), f.texts("include")
        empty = ProgramText((), (), (), frozenset())
        if (written is None) is (not includes):
            if written is not None:
                self.diagnostics.error(
                    Code.UNKNOWN_KEY, "both `program` and `include`", f.at("include"), "give the program once"
                )
            elif not f.has("program") and not f.has("include"):
                self.diagnostics.error(
                    Code.MISSING_KEY, "the spec has no program", self.tree.span, "add `program: |` or `include: FILE`"
                )
            return empty, []
        sources: list[tuple[str, int, list[str]]] = []  # file, first line, lines
        if written is not None:
            if written.block_line is None:
                self.diagnostics.error(Code.WRONG_KIND, "`program` is no block", written.span, "write `program: |`")
                return empty, []
            sources.append((self.path, written.block_line, self._block(written)))
        for include in includes:
            file = self._include_path(include)
            text = self.diagnostics.read(file, include.span) if file else None
            if text is None:
                return empty, []
            sources.append((file, 1, text.splitlines()))
        parsed = [parse_program(file, first, lines, self.diagnostics) for file, first, lines in sources]
        clean = [" ".join(line.split("#", 1)[0].split()) for _, _, lines in sources for line in lines]
        return _together(parsed), [c for c in clean if c]

    def _block(self, written: YamlText) -> list[str]:
        """The lines of the block as they stand in the file."""
        assert written.block_line is not None
        source = self.diagnostics.sources[self.path].splitlines()
        lines: list[str] = []
        for line in source[written.block_line - 1 :]:
            if line.strip() and not line.startswith(" "):
                break
            lines.append(line)
        return lines

    def _include_path(self, text: YamlText) -> str:
        inner = PurePosixPath(text.text)
        if inner.is_absolute() or ".." in inner.parts or "\\" in text.text or not text.text.endswith(".monoc"):
            self.diagnostics.error(
                Code.FILE, f"{quoted(text.text)} cannot be included", text.span,
                "a `.monoc` file beside or below the spec",
            )  # fmt: skip
            return ""
        return str(PurePosixPath(self.path).parent / inner)

    def _overrides(self, schedule: Schedule, values: set[str], launches: set[str]) -> None:
        for o in schedule.handoffs:
            span = o.span or Span(self.path, 1, 1)
            if o.launch not in launches:
                self.names.unknown(o.launch, o.launch_span or span, "launch", launches)
            elif o.value not in values:
                self.names.unknown(o.value, span, "value", values)

    def _knobs(self, schedule: Schedule, samples: Samples) -> None:
        """Knobs count something: 1 or more in every build. The guard of two hops has a value in every build."""
        for name, value in schedule.knobs:
            least = min(samples.values(value))
            if least < 1:
                self.diagnostics.error(
                    Code.SCHEDULE, f"knob `{name}` is {least} in some build", value.span or Span(self.path, 1, 1),
                    "give 1 or more",
                )  # fmt: skip
        if schedule.two_hop is not None:
            samples.mask(schedule.two_hop)

    def _aliases(self, runner: Runner | None, values: set[str]) -> None:
        section = self.fields.map("runner")
        table = None if section is None else section.get("aliases")
        if runner is None or not isinstance(table, YamlMap):
            return
        for key, _ in table.items:
            if key.text not in values:
                self.names.unknown(key.text, key.span, "value", values)

    def _unused(self, space: BuildSpace) -> None:
        """Reported only when all else is well: names in faulty statements were never looked up."""
        if self.diagnostics.errors:
            return
        for r in space.require:
            for n in r.names():
                self.names.use(n)
        for n in ("tokens", "tp"):
            self.names.use(n)
        self.names.report_unused()


def _together(texts: list[ProgramText]) -> ProgramText:
    """Several files as one program: definitions see each other whatever the order."""
    return ProgramText(
        tuple(x for t in texts for x in t.fns),
        tuple(x for t in texts for x in t.defs),
        tuple(x for t in texts for x in t.entries),
        frozenset().union(*(t.faulty for t in texts)),
    )


def _decimal(text: YamlText) -> Fraction | None:
    body = text.text.removeprefix("-")
    mantissa, _, exponent = body.partition("e")
    digits = mantissa.replace(".", "", 1)
    if len(body) > 40 or not digits.isascii() or not digits.isdecimal() or mantissa[0] == ".":
        return None
    if exponent and (len(exponent) > 4 or not exponent.lstrip("+-").isdecimal()):
        return None
    if body.endswith(("e", ".")):
        return None
    return Fraction(text.text)


def _guard_names(text: ProgramText) -> frozenset[str]:
    """Names in the guards of the program."""
    from monoc.spec.ast import AssignStatement, EffectStatement, HostStep, IndexStatement, LaunchBlock, Name

    found: set[str] = set()
    bodies = [d.body for d in text.defs]
    for entry in text.entries:
        for step in entry.steps:
            if isinstance(step, LaunchBlock):
                bodies.append(step.body)
            elif isinstance(step, HostStep) and step.guard is not None:
                found |= {n.name for n in step.guard.walk() if isinstance(n, Name)}
    for body in bodies:
        for s in body:
            if isinstance(s, IndexStatement | AssignStatement | EffectStatement) and s.guard is not None:
                found |= {n.name for n in s.guard.walk() if isinstance(n, Name)}
    return frozenset(found)


def _canonical(node: YamlNode, path: str, *, blocks: bool = False) -> list[str]:
    """The tree as lines ``path=text``, the program apart (``blocks``: with the blocks)."""
    if isinstance(node, YamlText):
        return [f"{path}={' '.join(node.text.split())!r}"] if blocks or node.block_line is None else []
    if isinstance(node, YamlMap):
        return [line for k, v in node.items for line in _canonical(v, f"{path}/{k.text}", blocks=blocks)]
    return [line for i, v in enumerate(node.items) for line in _canonical(v, f"{path}/{i}", blocks=blocks)]
