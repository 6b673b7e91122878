"""``mono_decode.py``: how a decoder layer of the serving framework takes a package's launches, from `docking:`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from monoc.emit.docking_print import Body
from monoc.emit.launch import environment
from monoc.passes.names import PlanNames
from monoc.spec.ast import Name, Node
from monoc.spec.docking import Binding, DockedEntry, Docking, HostProgram, Rule
from monoc.spec.docking_ast import Line
from monoc.spec.docking_names import CREATE
from monoc.spec.program import Entry, Program, RunnerOption, WeightClass

__all__ = ["emit_docking"]

_Lines = tuple[str, ...]
# What plan.py has beside the dimensions
_PLAN = ("GRID", "TARGET", "cdiv", "round_up")


@dataclass(frozen=True)
class _Rule:
    """Names computed ahead of it, the condition and the message as Python."""

    ahead: _Lines
    when: str
    why: str


@dataclass(frozen=True)
class _Function:
    imports: _Lines
    rules: tuple[_Rule, ...]


@dataclass(frozen=True)
class _Step:
    """Lines of a host program under one condition ("" for none)."""

    when: str
    lines: _Lines


@dataclass(frozen=True)
class _Host:
    name: str
    given: _Lines  # the framework's objects it reads
    taken: _Lines  # what the launches hand it
    imports: _Lines
    ahead: _Lines
    steps: tuple[_Step, ...]


@dataclass(frozen=True)
class _Method:
    entry: str
    name: str
    arguments: tuple[tuple[str, bool], ...]
    imports: _Lines
    rules: tuple[_Rule, ...]
    ahead: _Lines
    before: tuple[_Step, ...]
    call: tuple[tuple[str, str], ...]
    sometimes: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # condition, its bindings
    hosts: tuple[_Host, ...]
    results: tuple[int, ...]
    outputs: _Lines
    all_outputs: int


@dataclass(frozen=True)
class _Class:
    """A weight class: ``entries`` that need it ("" for all), ``fields`` as (name, Python)."""

    name: str
    fields: tuple[tuple[str, str], ...]
    children: tuple[tuple[str, str], ...]  # field, class
    entries: _Lines
    variable: str


@dataclass(frozen=True)
class _Emitter:
    program: Program
    docking: Docking

    @cached_property
    def check_options(self) -> tuple[RunnerOption, ...]:
        """The runner's options that the last weight class's ``check`` takes: its tensors' shapes name what they set."""
        root = self.program.runner.weights[-1]
        mine = {f.refers for f in root.fields}
        shapes = [e.size for t in self.program.tensors if t.name in mine for e in t.host_shape]
        scales = [t.scale for t in self.program.tensors if t.scale is not None]
        shapes += [size for scale in scales if scale.name in mine for size in scale.shape]
        named = frozenset().union(*(e.names() for e in shapes if e is not None))
        return tuple(o for o in self.program.runner.options if o.sets in named)

    # ---------------------------------------------------------------- numbers

    @cached_property
    def names(self) -> PlanNames:
        return PlanNames(self.program)

    @cached_property
    def variant_params(self) -> _Lines:
        return tuple(n for n, _ in self.program.space.variants[0].values)

    def several(self, parameter: str) -> bool:
        return any(len(dict(v.values)[parameter]) > 1 for v in self.program.space.variants)

    @cached_property
    def shared(self) -> Mapping[str, str]:
        """Constants of the module: shared build parameters and real constants, as Python."""
        out: dict[str, str] = {}
        for p in self.program.space.params:
            if not p.boolean:
                first, last, n = p.values[0], p.values[-1], len(p.values)
                run = n > 2 and last - first + 1 == n
                out[p.name.upper()] = f"range({first}, {last + 1})" if run else str(p.values)
        return out | {name.upper(): repr(value) for name, value in self.docking.constants}

    def numbers(self, variant: str) -> Mapping[str, str]:
        """The spec's numbers as a function names them; ``variant``: its variable."""
        fixed = {name for name, _ in self.names.constants}
        shared = [d.name for d in self.program.dims if d.name.upper() in fixed]
        shared += [p.name for p in self.program.space.params if not p.boolean]
        shared += [name for name, _ in self.docking.constants]
        return {n: n.upper() for n in shared} | {n: f"{variant}.{n}" for n in self.variant_params}

    def body(self, *, method: bool) -> Body:
        numbers = self.numbers("self._variant" if method else "variant")
        several = [p.name for p in self.program.space.params] + [n for n in self.variant_params if self.several(n)]
        kept = frozenset(self.kept) if method else frozenset()
        return Body(self.docking, numbers, kept, collections=frozenset(several))

    # ---------------------------------------------------------------- what a docked layer keeps

    @cached_property
    def kept(self) -> _Lines:
        """Names made of the deployment's configuration that a step, a host program or the weights read."""
        late: list[Node] = [s.value for _, sources in self.docking.weights for s in sources]
        for e in self.docking.entries:
            late += [n for r in e.steps for n in (r.when, *_holes(r))]
            late += _trees(e.before) + [n for b in e.call for n in _parts(b)]
            for h in e.hosts:
                late += _trees(h.lines) + ([h.when] if h.when is not None else [])
        used: set[str] = set()

        def visit(node: Node) -> None:
            for name in node.names() & self.docking.named.keys() - used:
                used.add(name)
                value = self.docking.named[name]
                if not ("vllm_config" in value.bases and value.bases <= CREATE):
                    visit(value.value)

        for node in late:
            visit(node)
        return tuple(
            n.name for n in self.docking.names if n.name in used and "vllm_config" in n.bases and n.bases <= CREATE
        )

    # ---------------------------------------------------------------- functions

    def _rules(self, rules: Iterable[Rule], body: Body) -> tuple[_Rule, ...]:
        out = []
        for rule in rules:
            ahead = body.need([rule.when, *_holes(rule)])
            out.append(_Rule(ahead, body.text(rule.when), body.message(rule.why)))
        return tuple(out)

    def _function(self, rules: tuple[Rule, ...]) -> tuple[_Function, Body]:
        body = self.body(method=False)
        printed = self._rules(rules, body)
        return _Function(body.import_lines(), printed), body

    def _steps(self, lines: tuple[Line, ...], body: Body) -> tuple[_Step, ...]:
        """Lines as Python, neighbours under one condition together."""
        steps: list[_Step] = []
        for line in lines:
            when = "" if line.when is None else body.text(line.when)
            value = "return" if line.value is None else body.text(line.value)
            text = f"{', '.join(line.targets)} = {value}" if line.targets else value
            assigned = set() if line.when is None or not steps else _targets(steps[-1])
            if steps and steps[-1].when == when and not (line.when is not None and line.when.names() & assigned):
                steps[-1] = _Step(when, (*steps[-1].lines, text))
            else:
                steps.append(_Step(when, (text,)))
        return tuple(steps)

    def _host(self, host: HostProgram, entry: DockedEntry, helpers: set[str]) -> _Host:
        body = self.body(method=True)
        trees = _trees(host.lines)
        ahead = body.need(trees)
        steps = self._steps(host.lines, body)
        read: set[str] = set()
        for tree in trees:
            for name in tree.names():
                value = self.docking.named.get(name)
                read |= {name} if value is None else set() if name in self.kept else value.bases
        helpers |= body.helpers
        objects = [n for n in ("layer", *(a.name for a in entry.arguments)) if n in read and n not in host.arguments]
        return _Host(host.name, tuple(objects), host.arguments, body.import_lines(), ahead, steps)  # fmt: skip

    def _method(self, docked: DockedEntry) -> tuple[_Method, Body]:
        entry = self._entry(docked.entry)
        body = self.body(method=True)
        rules = self._rules(docked.steps, body)
        trees = _trees(docked.before) + [n for b in docked.call for n in _parts(b)]
        ahead = body.need(trees + [h.when for h in docked.hosts if h.when is not None])
        before = self._steps(docked.before, body)
        always: list[tuple[str, str]] = []
        sometimes: dict[str, list[tuple[str, str]]] = {}
        for b in docked.call:
            body.conversion = self._record(b.name)
            target = always if b.when is None else sometimes.setdefault(body.text(b.when), [])
            target.append((b.name, body.text(b.value)))
        hosts = []
        for h in docked.hosts:
            host = self._host(h, docked, body.helpers)
            lambda_ = f"lambda {', '.join(host.taken)}: self._between_{h.name}({', '.join((*host.given, *host.taken))})"
            target = always if h.when is None else sometimes.setdefault(body.text(h.when), [])
            target.append((h.name, lambda_))
            hosts.append(host)
        method = _Method(
            docked.entry, docked.method, tuple((a.name, a.optional) for a in docked.arguments), body.import_lines(),
            rules, ahead, before, tuple(always), tuple((c, tuple(g)) for c, g in sometimes.items()), tuple(hosts),
            tuple(entry.outputs.index(r) for r in docked.results), docked.results, len(entry.outputs),
        )  # fmt: skip
        return method, body

    def _entry(self, name: str) -> Entry:
        return next(e for e in self.program.entries if e.name == name)

    def _record(self, tensor: str) -> _Lines:
        """The bytes of a record of a cache: the last argument of `_records`."""
        size = self.program.tensor[tensor].host_shape[-1].size if tensor in self.program.tensor else None
        return () if size is None else (self.names.text(size),)

    # ---------------------------------------------------------------- weights

    def _classes(self) -> tuple[tuple[_Class, ...], _Lines, _Lines, Body]:
        body = self.body(method=True)
        sources = {c: {s.field: s.value for s in fields} for c, fields in self.docking.weights}
        scales = {t.scale.name: t.scale for t in self.program.tensors if t.scale is not None}
        ahead = body.need([s.value for _, fields in self.docking.weights for s in fields])
        classes = []
        parents = {f.refers: f for c in self.program.runner.weights for f in c.fields if f.kind == "class"}
        for c in self.program.runner.weights:
            fields = []
            for name, value in sources[c.name].items():
                block = scales[name].block if name in scales else None
                body.conversion = () if block is None else (str(block), repr(name))
                fields.append((name, body.text(value)))
            children = tuple((f.name, f.refers) for f in c.fields if f.kind == "class")
            optional = c.name in parents and parents[c.name].optional
            users = self._users(c)
            everywhere = not optional or users == tuple(e.entry for e in self.docking.entries)
            variable = f"{parents[c.name].name}_" if c.name in parents else "weights"
            classes.append(_Class(c.name, tuple(fields), children, () if everywhere else users, variable))
        return tuple(classes), ahead, body.import_lines(), body

    def _users(self, c: WeightClass) -> _Lines:
        """The docked entries whose launches read a tensor of the class."""
        mine = {f.refers for f in c.fields if f.kind == "tensor"}
        users = []
        for docked in self.docking.entries:
            entry = self._entry(docked.entry)
            if mine & {o for launch in entry.launches for s in launch.statements for o in s.operands}:
                users.append(docked.entry)
        return tuple(users)

    # ---------------------------------------------------------------- the module

    def context(self) -> dict[str, object]:
        d = self.docking
        asked, create = self.body(method=False), self.body(method=False)
        enabled_ahead, enabled = asked.need([d.enabled]), asked.text(d.enabled)
        choosing = create.need([v.when for v in d.variants if v.when is not None])
        choices = [(v.variant, "" if v.when is None else create.text(v.when)) for v in d.variants]
        option_nodes = [n for b in d.options for n in _parts(b)] + [n for b in d.attributes for n in _parts(b)]
        keeping = create.need(option_nodes + [Name(n.value.span, n.name) for n in d.names if n.name in self.kept])
        options = [(b.name, create.text(b.value)) for b in d.options]
        attributes = [(b.name, create.text(b.value)) for b in d.attributes]
        deployment, b1 = self._function(d.deployment)
        layers, b2 = self._function(d.layers)
        entries = [(e.entry, *self._function(e.layers)) for e in d.entries]
        methods = [self._method(e) for e in d.entries]
        classes, weights_ahead, weights_imports, b3 = self._classes()
        bodies = [asked, create, b1, b2, b3, *(b for _, _, b in entries), *(b for _, b in methods)]
        helpers = frozenset().union(*(b.helpers for b in bodies))
        fields = self._variant_fields(helpers)
        return {
            "program": self.program,
            "docking": d,
            "helpers": helpers,
            "constants": sorted((n, v) for n, v in self.shared.items() if n in helpers),
            "plan_names": sorted(helpers & {*_PLAN, *(c for c, _ in self.names.constants)}),
            "enabled": enabled,
            "enabled_ahead": (*asked.import_lines(), *enabled_ahead),
            "create_imports": create.import_lines(),
            "choosing": choosing,
            "choices": choices,
            "keeping": keeping,
            "kept": self.kept,
            "options": options,
            "attributes": attributes,
            "deployment": deployment,
            "layers": layers,
            "entries": [(name, function) for name, function, _ in entries],
            "methods": [m for m, _ in methods],
            "hosts": [h for m, _ in methods for h in m.hosts],
            "classes": classes,
            "class_entries": {c.name: c.entries for c in classes},
            "class_variables": {c.name: c.variable for c in classes},
            "weights_ahead": weights_ahead,
            "weights_imports": weights_imports,
            "check_options": [(o.name, o.sets) for o in self.check_options],
            "fields": fields,
            "variants": [(v.name, self._row(v.name, fields)) for v in self.program.space.variants],
            "runner_options": [(o.name, o.sets) for o in self._variant_options()],
        }  # fmt: skip

    def _variant_options(self) -> tuple[RunnerOption, ...]:
        """Constructor keywords a layer's variant fixes."""
        given = {b.name for b in self.docking.options}
        options = (o for o in self.program.runner.options if o.sets in self.variant_params)
        return tuple(o for o in options if o.name not in given and not self.several(o.sets))

    def _variant_fields(self, helpers: frozenset[str]) -> tuple[tuple[str, str], ...]:
        used = {h.split(".")[-1] for h in helpers if h.startswith(("variant.", "self._variant."))}
        used |= {o.sets for o in self._variant_options()} | {o.sets for o in self.check_options}
        return tuple((n, "tuple[int, ...]" if self.several(n) else "int") for n in self.variant_params if n in used)

    def _row(self, variant: str, fields: tuple[tuple[str, str], ...]) -> str:
        values = next(dict(v.values) for v in self.program.space.variants if v.name == variant)
        return ", ".join(f"{n}={values[n] if 'tuple' in kind else values[n][0]}" for n, kind in fields)


def _holes(rule: Rule) -> list[Node]:
    return [p for p in rule.why.parts if isinstance(p, Node)]


def _parts(b: Binding) -> list[Node]:
    return [b.value] if b.when is None else [b.value, b.when]


def _trees(lines: tuple[Line, ...]) -> list[Node]:
    return [n for line in lines for n in (line.value, line.when) if n is not None]


def _targets(step: _Step) -> set[str]:
    return {t.strip() for line in step.lines if " = " in line for t in line.split(" = ")[0].split(",")}


def emit_docking(program: Program) -> str:
    """The text of ``mono_decode.py`` (unformatted, unheaded) of a program with a `docking:` section."""
    assert program.docking is not None
    return environment().get_template("mono_decode.py.j2").render(_Emitter(program, program.docking).context())
