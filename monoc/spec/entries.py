"""Entries: launches and host calls in order, what is carried between them, what comes out."""

from __future__ import annotations

from collections.abc import Mapping

from monoc.diagnostics import Code, Diagnostics, Note
from monoc.expr.ir import Span
from monoc.spec.ast import Def, EntryBlock, FnDef, HostStep, Ident, LaunchBlock, ProgramText
from monoc.spec.buildexpr import TRUE, BuildExpr
from monoc.spec.builds import Samples
from monoc.spec.names import NameKind, Names
from monoc.spec.opcheck import UntypedError
from monoc.spec.optable import OPS
from monoc.spec.program import Entry, HostCall, Launch, Role, ShardingKind, Step, TensorDecl, ValueType
from monoc.spec.resolve import Resolver
from monoc.spec.scalars import SCALAR_FUNCTIONS
from monoc.spec.scope import Scope, Values, tensor_type
from monoc.spec.syntax import name_problem

__all__ = ["resolve_entries"]


def resolve_entries(
    text: ProgramText,
    names: Names,
    samples: Samples,
    tensors: tuple[TensorDecl, ...],
    faulty: frozenset[str],
    diagnostics: Diagnostics,
) -> tuple[tuple[Entry, ...], tuple[tuple[str, ValueType], ...]]:
    """Every entry resolved, and the types of all tensors and values; ``faulty`` tensors are not checked."""
    return _Entries(text, names, samples, tensors, faulty, diagnostics).run()


# Modules of a generated package, and methods of its runner
_TAKEN = {
    "launch": frozenset({"checks", "device", "mono_decode", "peer", "plan", "runner", "waits"}),
    "entry": frozenset({"check", "close", "kernels", "scratch", "supports", "warmup"}),
}


class _Entries:
    def __init__(
        self,
        text: ProgramText,
        names: Names,
        samples: Samples,
        tensors: tuple[TensorDecl, ...],
        faulty: frozenset[str],
        diagnostics: Diagnostics,
    ) -> None:
        self.text, self.names, self.samples, self.diagnostics = text, names, samples, diagnostics
        self.faulty = faulty
        self.names.faulty |= text.faulty
        self.tensors: Mapping[str, TensorDecl] = {t.name: t for t in tensors}
        self.fns: dict[str, FnDef] = {}
        self.defs: dict[str, Def] = {}
        self.types: dict[str, tuple[ValueType, Span]] = {}
        self.flat: dict[str, str] = {}  # names as identifiers of generated code
        self.taken: dict[tuple[str, str], Span] = {}  # entries and launches

    def run(self) -> tuple[tuple[Entry, ...], tuple[tuple[str, ValueType], ...]]:
        for fn in self.text.fns:
            if self._new(fn.name, NameKind.FN):
                self.fns[fn.name.name] = fn
                self._parameters(fn.params)
        for d in self.text.defs:
            if self._new(d.name, NameKind.DEF):
                self.defs[d.name.name] = d
                self._parameters(tuple(p.name for p in d.params))
        if not self.text.entries and not self.diagnostics.errors:
            span = self.text.defs[0].name.span if self.text.defs else Span("", 1, 1)
            self.diagnostics.error(Code.MISSING_KEY, "the program has no entry", span, "add `entry NAME(...) -> ...:`")
        entries = tuple(self._entry(e) for e in self.text.entries)
        types = {t.name: tensor_type(t) for t in self.tensors.values()} | {n: t for n, (t, _) in self.types.items()}
        return entries, tuple(types.items())

    def _new(self, name: Ident, kind: NameKind) -> bool:
        if name.name in SCALAR_FUNCTIONS or name.name in OPS:
            self.diagnostics.error(
                Code.DUPLICATE_NAME, f"`{name.name}` is part of the language", name.span, "choose another name"
            )
            return False
        return self._valid(name) and self.names.declare(name.name, kind, name.span)

    def _valid(self, name: Ident) -> bool:
        problem = name_problem(name.name)
        if problem is not None:
            self.diagnostics.error(Code.BAD_NAME, f"`{name.name}` cannot be used as a name", name.span, problem)
        return problem is None

    def _parameters(self, params: tuple[Ident, ...]) -> None:
        seen: dict[str, Span] = {}
        for p in params:
            self._valid(p)
            if p.name in seen:
                self.diagnostics.error(
                    Code.DUPLICATE_NAME,
                    f"two parameters `{p.name}`",
                    p.span,
                    "name them apart",
                    Note("the first", seen[p.name]),
                )
            seen[p.name] = p.span

    def _take(self, name: Ident, what: str) -> None:
        self._valid(name)
        if name.name in _TAKEN[what]:
            self.diagnostics.error(
                Code.BAD_NAME,
                f"`{name.name}` cannot name {'an' if what == 'entry' else 'a'} {what}",
                name.span,
                f"the generated package has a `{name.name}` of its own",
            )
        if (what, name.name) in self.taken:
            self.diagnostics.error(
                Code.DUPLICATE_NAME, f"two {what} blocks are named `{name.name}`", name.span, "rename one of them",
                Note("the first", self.taken[what, name.name]),
            )  # fmt: skip
        self.taken[what, name.name] = name.span

    def _entry(self, block: EntryBlock) -> Entry:
        self._take(block.name, "entry")
        arguments = self._arguments(block)
        values = Values(self.names, self.samples, self.diagnostics, self.tensors, frozenset(arguments), self.faulty)
        for step in block.steps:
            if isinstance(step, HostStep):
                self._stale(step, values)
        resolver = Resolver(self.names, self.fns, self.defs, self.samples, self.diagnostics, values)
        scope = Scope("", "", TRUE)
        steps: list[Step] = []
        for number, step in enumerate(block.steps):
            values.step = number
            if isinstance(step, LaunchBlock):
                self._take(step.name, "launch")
                resolver.statements = []
                resolver.run(step.body, scope)
                steps.append(Launch(step.name.name, tuple(resolver.statements), step.name.span))
            else:
                steps.append(self._host(step, values, scope))
        outputs = self._outputs(block, values)
        if not self.diagnostics.errors:
            self._unread(block, values, outputs)
        self._merge_types(values)
        return Entry(block.name.name, arguments, tuple(steps), outputs, tuple(values.carried), block.name.span)

    def _arguments(self, block: EntryBlock) -> tuple[str, ...]:
        arguments: list[str] = []
        for a in block.args:
            tensor = self.tensors.get(a.name)
            if tensor is None or tensor.role not in (Role.INPUT, Role.CACHE):
                known = [t.name for t in self.tensors.values() if t.role in (Role.INPUT, Role.CACHE)]
                if known:
                    self.names.unknown(a.name, a.span, "input or cache", known)
                continue
            if a.name in arguments:
                self.diagnostics.error(Code.DUPLICATE_NAME, f"`{a.name}` is an argument twice", a.span, "remove one")
                continue
            self.names.use(a.name)
            arguments.append(a.name)
        return tuple(arguments)

    def _guard(self, step: HostStep) -> BuildExpr:
        guard = None if step.guard is None else self.names.build_expr(step.guard, "a guard")
        return TRUE if guard is None else guard

    def _stale(self, step: HostStep, values: Values) -> None:
        """Until the host call, what it writes holds nothing in its builds."""
        for w in step.writes:
            if w.name in self.tensors:
                values.stale[w.name] = (self.samples.mask(self._guard(step)), w.span)

    def _host(self, step: HostStep, values: Values, scope: Scope) -> HostCall:
        guard = self._guard(step)
        self._valid(step.name)
        if not self.samples.mask(guard) and step.guard is not None:
            self.diagnostics.error(Code.GUARD, f"`{guard}` holds in no build", step.guard.span, "correct the guard")
        read: list[str] = []
        for a in step.args:
            try:
                full = values.resolve(a.name, a.span, scope)
                if isinstance(full, str):
                    values.read(full, a.name, guard, a.span)
                    read.append(full)
            except UntypedError:
                continue
        for w in step.writes:
            tensor = self.tensors.get(w.name)
            if tensor is None or tensor.role is not Role.INPUT or w.name not in values.arguments:
                known = sorted(values.arguments)
                self.names.unknown(w.name, w.span, "argument the host writes", known)
            values.stale.pop(w.name, None)
        return HostCall(step.name.name, tuple(read), tuple(w.name for w in step.writes), guard, step.name.span)

    def _outputs(self, block: EntryBlock, values: Values) -> tuple[str, ...]:
        outputs: list[str] = []
        for o in block.outputs:
            tensor = self.tensors.get(o.name)
            if tensor is None or tensor.role is not Role.OUTPUT:
                known = [t.name for t in self.tensors.values() if t.role is Role.OUTPUT]
                if known:
                    self.names.unknown(o.name, o.span, "output", known)
                continue
            if o.name in outputs:
                self.diagnostics.error(Code.DUPLICATE_NAME, f"`{o.name}` is an output twice", o.span, "remove one")
                continue
            self.names.use(o.name)
            outputs.append(o.name)
            value = values.table.get(o.name)
            declared = Note("it is declared", tensor.span or o.span)
            if value is None:
                self.diagnostics.error(
                    Code.OUTPUT, f"no launch assigns the output `{o.name}`", o.span, "assign it in a launch", declared
                )
                continue
            missing = self.samples.everywhere & ~value.defined
            if missing:
                self.diagnostics.error(
                    Code.UNDEFINED_IN_BUILD,
                    f"the output `{o.name}` is not defined {self.samples.where(missing, 'any')}",
                    o.span, "define it in every build", Note("it is defined", value.span),
                )  # fmt: skip
            if o.name not in self.faulty and value.type is not None:
                self._check_output(o.name, tensor_type(tensor), value.type, value.span, values, declared)
        return tuple(outputs)

    def _check_output(
        self, name: str, declared: ValueType, got: ValueType, span: Span, values: Values, note: Note
    ) -> None:
        if got.sharding.kind is ShardingKind.PARTIAL and declared.sharding != got.sharding:
            self.diagnostics.error(
                Code.PARTIAL, f"the output `{name}` is a partial sum over the ranks", span,
                "add up the ranks: `all_reduce(...)`", note,
            )  # fmt: skip
        elif why := values.difference(declared, got):
            self.diagnostics.error(
                Code.OUTPUT, f"the output `{name}` is declared {why.first} but assigned {why.second}{why.build}", span,
                "assign what is declared", note,
            )  # fmt: skip

    def _unread(self, block: EntryBlock, values: Values, outputs: tuple[str, ...]) -> None:
        values.report_unread(frozenset(outputs))
        written = {w.name for s in block.steps if isinstance(s, HostStep) for w in s.writes}
        for a in block.args:
            if a.name in values.arguments and a.name not in values.given and a.name not in written:
                self.diagnostics.error(
                    Code.UNUSED, f"argument `{a.name}` of entry `{block.name.name}` is never read", a.span, "remove it"
                )

    def _merge_types(self, values: Values) -> None:
        for v in values.table.values():
            if v.type is None:
                continue
            old = self.types.get(v.name)
            if old is not None and not self.diagnostics.errors and (why := values.difference(old[0], v.type)):
                self.diagnostics.error(
                    Code.REDEFINED, f"`{v.name}` is {why.second} here, {why.first} in another entry{why.build}", v.span,
                    "choose another name", Note("the other one", old[1]),
                )  # fmt: skip
            self.types.setdefault(v.name, (v.type, v.span))
            flat = v.name.replace(".", "_")
            other = self.flat.setdefault(flat, v.name)
            if other != v.name and other in self.types:
                self.diagnostics.error(
                    Code.DUPLICATE_NAME, f"`{v.name}` and `{other}` are both `{flat}` in generated code", v.span,
                    "choose another name", Note("the other one", self.types[other][1]),
                )  # fmt: skip
