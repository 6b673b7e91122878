"""``runner.py``: the host side of a package, from the spec's entries, weight classes and options.

A launch argument is found by its name: a tensor or a value the spec names (its address), ``<tensor>_block`` and
``<tensor>_stride`` (rows a cache block, elements from one row of the first axis to the next), or one of
:data:`~monoc.emit.launch.LAUNCH_ARGUMENTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from monoc.emit.launch import environment, launch_arguments
from monoc.emit.runner_parts import Bound, Call, Class, Field, Guarded, Method, Option, Parameter, Want
from monoc.expr.ir import DType
from monoc.passes.names import PlanNames
from monoc.schedule.model import Schedule
from monoc.schedule.parameters import launch_parameters
from monoc.spec.buildexpr import TRUE, BuildExpr, BuildInt, BuildValue
from monoc.spec.program import Entry, Extent, HostCall, Layout, Program, TensorDecl, WeightClass, WeightField

__all__ = ["RunnerError", "emit_runner"]

_TORCH = {
    DType.F32: "torch.float32",
    DType.BF16: "torch.bfloat16",
    DType.I32: "torch.int32",
    DType.I64: "torch.int64",
    DType.U8: "torch.uint8",
    DType.E4M3: "torch.float8_e4m3fn",
    DType.E2M1X2: "torch.float4_e2m1fn_x2",
    DType.E8M0: "torch.uint8",
}


class RunnerError(Exception):
    """A launch takes an argument the runner cannot find among the spec's tensors and values."""


@dataclass(frozen=True)
class _Runner:
    program: Program
    schedule: Schedule

    @cached_property
    def names(self) -> PlanNames:
        return PlanNames(self.program)

    @cached_property
    def tensors(self) -> Mapping[str, TensorDecl]:
        return {t.name: t for t in self.program.tensors}

    @cached_property
    def arguments(self) -> Mapping[str, tuple[str, ...]]:
        return {launch.name: launch_arguments(launch) for launch in self.schedule.launches}

    @cached_property
    def builds(self) -> tuple[Mapping[str, BuildValue], ...]:
        """Every build of one step width, parameters and dimensions by name."""
        space = self.program.space
        tokens = next(p.values[0] for p in space.params if p.name == "tokens")
        return tuple(self.program.environment(b) for b in space.builds(tokens=tokens))

    def guard(self, expr: BuildExpr) -> str:
        text = str(self.names.guard(expr))
        return "" if text == "True" else text

    def host_name(self, value: str) -> str:
        return dict(self.program.runner.aliases).get(value, self.names.argument(value))

    # ---------------------------------------------------------------- weights

    def _axes(self, extents: tuple[Extent, ...]) -> str:
        def one(e: Extent) -> str:
            if e.size is None:
                return "None"
            text = self.names.text(e.size)
            return f"({text}, None)" if e.at_least else f"(None, {text})" if e.at_most else text

        return _tuple([one(e) for e in extents])

    def _weight(self, name: str) -> tuple[str, tuple[Extent, ...]]:
        """dtype and axes of a weight or of a weight's scale tensor."""
        for t in self.program.tensors:
            if t.name == name:
                return _TORCH[t.dtype], t.host_shape
            if t.scale is not None and t.scale.name == name:
                return "torch.uint8", tuple(Extent(s) for s in t.scale.shape)
        raise RunnerError(f"weight class field {name} names no weight")

    def _weight_axes(self, name: str) -> tuple[str, str]:
        dtype, extents = self._weight(name)
        return dtype, self._axes(extents)

    def _weight_strides(self, name: str) -> str:
        """Strides of a weight whose rows are padded; None: contiguous."""
        found = self.tensors.get(name)
        if found is None or found.layout is not Layout.ROWS_PAD256:
            return "None"
        width = found.host_shape[-1].size
        assert width is not None
        k = self.names.text(width)
        return f"({k} + 256 if {k} % 512 == 0 else {k}, 1)"

    def _weight_guard(self, name: str) -> str:
        """In which builds a weight (or the weight a scale belongs to) is given, "" for all."""
        for t in self.program.tensors:
            if name == t.name or (t.scale is not None and t.scale.name == name):
                return self.guard(t.guard)
        raise RunnerError(f"weight class field {name} names no weight")

    def _weight_comment(self, name: str) -> str:
        dtype, extents = self._weight(name)
        return _comment(dtype, extents)

    def _annotation(self, f: WeightField) -> Field:
        match f.kind:
            case "class":
                return Field(f.name, f"{f.refers} | None" if f.optional else f.refers, "")
            case "int" | "param":
                return Field(f.name, "int", f"build parameter {f.refers}" if f.kind == "param" else "")
        guard = self._weight_guard(f.refers)
        comment = self._weight_comment(f.refers) + (f", where {guard.replace('b.', '')}" if guard else "")
        return Field(f.name, "torch.Tensor | None" if guard else "torch.Tensor", comment)

    def _class(self, c: WeightClass, root: bool) -> Class:
        wants = tuple(
            Want(f.name, *self._weight_axes(f.refers), self._weight_strides(f.refers), self._weight_guard(f.refers))
            for f in c.fields
            if f.kind in ("tensor", "scale")
        )
        options = tuple(o for o in self.options if any(f"b.{o.sets}" in w.axes for w in wants)) if root else ()
        return Class(c.name, tuple(self._annotation(f) for f in c.fields), wants, root, options)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        first = dict(self.program.space.variants[0].values)
        return tuple(Option(o.name, o.sets, first[o.sets][0]) for o in self.program.runner.options)

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Weight, scale or build parameter -> how a method reaches it from its weights ``w``."""
        classes = {c.name: c for c in self.program.runner.weights}
        out: dict[str, str] = {}

        def visit(c: WeightClass, prefix: str) -> None:
            for f in c.fields:
                if f.kind == "class":
                    visit(classes[f.refers], f"{prefix}.{f.name}")
                elif f.kind != "int":
                    out[f.refers] = f"{prefix}.{f.name}"

        visit(self.program.runner.weights[-1], "w")
        return out

    # ---------------------------------------------------------------- values

    @cached_property
    def carried(self) -> tuple[str, ...]:
        """Values the runner keeps in memory between the launches of an entry, in order."""
        taken = {a for arguments in self.arguments.values() for a in arguments}
        values = dict.fromkeys(v for entry in self.program.entries for v in entry.carried)
        return tuple(v for v in values if self.names.argument(v) in taken)

    def _shape(self, value: str, tokens: str) -> str:
        dims = [self.names.text(d) for d in self.program.type_of[value].shape]
        return _tuple([tokens if d == "b.tokens" else d for d in dims])

    def buffers(self) -> list[tuple[str, str, str]]:
        """(attribute, dtype, shape at the widest step) of each carried value."""
        return [
            (self.host_name(v), _TORCH[self.program.type_of[v].dtype], self._shape(v, "MAX_TOKENS"))
            for v in self.carried
        ]

    def _expression(self, argument: str, entry: Entry, launch: str) -> str:
        own = {"scratch": "scratch", "peers": "self.peer.addresses.data_ptr()", "rank": "self.rank"}
        own |= {"epoch": "self.epoch.data_ptr()", "timeline": f"self._timeline({launch!r})"}
        if argument in own:
            return own[argument]
        for name in (*entry.arguments, *entry.outputs):
            if argument == self.names.argument(name):
                return f"{name}.data_ptr()"
            if argument == f"{name}_block":
                return f"{name}.shape[1]"
            if argument == f"{name}_stride":
                return f"{name}.stride(0)"
            if argument == f"{name}_width":
                return argument  # a local of the method
        if argument in self.paths:
            return f"{argument if self._weight_guard(argument) else self.paths[argument]}.data_ptr()"
        for value in self.carried:
            if argument == self.names.argument(value):
                return f"self.{self.host_name(value)}.data_ptr()"
        raise RunnerError(f"launch {launch} takes {argument!r}, which is no tensor or value of the spec")

    # ---------------------------------------------------------------- methods

    @staticmethod
    def _stand_in(t: TensorDecl) -> str:
        """What stands for a tensor where it is not given."""
        return f"self._absent[{_TORCH[t.dtype]}, {len(t.host_shape)}]"

    def _parameter(self, t: TensorDecl) -> Parameter:
        comment = _comment(_TORCH[t.dtype], t.host_shape)
        return Parameter(t.name, comment, bool(self.guard(t.guard)), self._stand_in(t))

    def _guarded_weights(self, entry: Entry) -> tuple[Guarded, ...]:
        """The weights ``entry`` reads that not every layer has."""
        taken = {a for launch in entry.launches for a in self.arguments[launch.name]}
        return tuple(
            Guarded(t.name, self.paths[t.name], self.guard(t.guard), self._stand_in(t))
            for t in self.program.tensors
            if t.name in taken and t.name in self.paths and self.guard(t.guard)
        )

    def _read_when(self, t: TensorDecl, entry: Entry) -> str:
        """In which builds ``entry`` reads a tensor that is given: unread ones may be anything."""
        given, reading = (
            self.guard(t.guard),
            [s.guard for la in entry.launches for s in la.statements if t.name in s.operands],
        )
        if all(any(g.evaluate(b) for g in reading) for b in self.builds if t.guard.evaluate(b)):
            return given
        texts = dict.fromkeys(self.guard(g) for g in reading)
        read = " or ".join(f"({g})" if " " in g else g for g in texts)
        return f"({given}) and ({read})" if given else read

    def _want(self, t: TensorDecl, entry: Entry) -> Want:
        strides = "None"
        if t.layout is Layout.FP8_DS_MLA:
            width = t.host_shape[-1].size
            assert width is not None
            strides = f"(None, {self.names.text(width)}, 1)"
        elif t.host_shape[-1].at_most:
            strides = _tuple([*["None"] * (len(t.host_shape) - 1), "1"])  # rows may be further apart than wide
        elif any(e.size is None or e.at_least for e in t.host_shape):
            sizes = [e.size for e in t.host_shape]
            strides = _tuple([self._stride(sizes, i) for i in range(len(sizes))])
        return Want(t.name, _TORCH[t.dtype], self._axes(t.host_shape), strides, self._read_when(t, entry))

    def _stride(self, sizes: list[BuildExpr | None], axis: int) -> str:
        """The stride a table's axis must have; None where the launches take it as an argument."""
        inner = sizes[axis + 1 :]
        if sizes[axis] == BuildInt(1):
            return "None"  # one entry: no stride is ever taken
        if any(s is None for s in inner):
            return "None"
        return " * ".join(self.names.text(s) for s in inner if s is not None) or "1"

    def _known(self, entry: Entry) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """How an entry learns its build: (parameter, expression) pairs, and the keywords with their defaults."""
        hosts = {str(h.guard): h.name for h in entry.host_calls}
        hosts |= {str(t.guard): t.name for t in (self.tensors[a] for a in entry.arguments) if t.guard != TRUE}
        hosts = {guard: name for guard, name in hosts.items() if guard not in dict(self.program.runner.defaults)}
        defaults = dict(self.program.runner.defaults)
        bounds = {bound.param for bound in self.program.runner.bounds}
        options = {o.sets: o.name for o in self.program.runner.options}
        knobs = frozenset().union(*(expr.names() for _, expr in self.program.schedule.knobs))
        known: list[tuple[str, str]] = []
        flags: list[tuple[str, str]] = []
        used = self._used_parameters(entry)
        nested = any(self.paths.get(a, "").count(".") > 1 for la in entry.launches for a in self.arguments[la.name])
        for name in self.program.space.names():
            if name in ("tokens", "tp") or name not in used:
                continue
            if name in bounds:
                continue
            if name in hosts:
                known.append((name, f"{hosts[name]} is not None"))
            elif name in self.paths:
                known.append((name, self.paths[name]))
            elif name in options and nested:
                known.append((name, f"self.{options[name]}"))
            elif name in options:  # a launch that serves layers of every variant: what the weights and the call say
                axis = self._leading_axis(name)
                if axis is not None:
                    known.append((name, axis))
                elif options[name] == name and name not in knobs:
                    flags.append((name, "None"))
                    known.append((name, f"self.{name} if {name} is None else {name}"))
            else:
                flags.append((name, str(defaults.get(name, True))))
                known.append((name, name))
        return tuple(known), tuple(flags)

    def _leading_axis(self, parameter: str) -> str | None:
        for t in self.program.tensors:
            if t.name in self.paths and t.shape and str(t.shape[0].size) == parameter:
                return f"{self.paths[t.name]}.shape[0]"
        return None

    def _used_parameters(self, entry: Entry) -> tuple[str, ...]:
        names = {launch.name for launch in entry.launches}
        return launch_parameters(self.schedule, [la for la in self.schedule.launches if la.name in names])

    def _method(self, entry: Entry) -> Method:
        given = [self.tensors[a] for a in entry.arguments]
        known, flags = self._known(entry)
        calls: list[Call] = []
        for step in entry.steps:
            if isinstance(step, HostCall):
                arguments = tuple(f"self.{self.host_name(a)}[:rows]" for a in step.arguments)
                calls.append(Call(step.name, arguments, True, self.guard(step.guard)))
            else:
                expressions = tuple(self._expression(a, entry, step.name) for a in self.arguments[step.name])
                calls.append(Call(step.name, expressions, False, ""))
        root = self.program.runner.weights[-1]
        nested = [f.name for f in root.fields if f.kind == "class" and f.optional]
        needs = next((n for n in nested if any(f"w.{n}." in a for c in calls for a in c.arguments)), "")
        outputs = tuple(
            (o, _TORCH[self.tensors[o].dtype], self._axes(self.tensors[o].host_shape).replace("b.tokens", "rows"))
            for o in entry.outputs
        )
        return Method(
            name=entry.name,
            parameters=tuple(sorted((self._parameter(t) for t in given), key=lambda p: p.optional)),
            wants=tuple(self._want(t, entry) for t in given),
            outputs=outputs,
            calls=tuple(calls),
            known=known,
            own=tuple(n for n, e in known if e.startswith("self.") and " if " not in e),
            flags=flags,
            hosts=entry.host_calls,
            launches=tuple(la.name for la in entry.launches),
            needs=needs,
            always=tuple(h.name for h in entry.host_calls if not self.guard(h.guard)),
            weights=self._guarded_weights(entry),
            bounds=self._bounds(entry),
            tables=tuple(t.name for t in given if t.host_shape[-1].at_most),
        )

    def _bounds(self, entry: Entry) -> tuple[Bound, ...]:
        used = self._used_parameters(entry)
        return tuple(
            Bound(
                bound.param,
                bound.keyword,
                bound.limit,
                tuple(
                    t.name
                    for t in (self.tensors[a] for a in entry.arguments)
                    if t.host_shape[-1].at_most and str(t.host_shape[-1].size) == bound.param
                ),
            )
            for bound in self.program.runner.bounds
            if bound.param in used
        )

    def context(self) -> dict[str, object]:
        runner, program = self.program.runner, self.program
        methods = [self._method(e) for e in program.entries]
        unread = {(m.name, w.name) for m in methods for w in m.wants if w.guard}
        missing = [p.absent for m in methods for p in m.parameters if (m.name, p.name) in unread]
        missing += [w.absent for m in methods for w in m.weights]
        absent = sorted({text.split("[")[1].rstrip("]") for text in missing})
        return {
            "program": program,
            "runner": runner,
            "options": self.options,
            "classes": [self._class(c, c is runner.weights[-1]) for c in runner.weights],
            "nested": tuple(f.name for f in runner.weights[-1].fields if f.kind == "class"),
            "methods": methods,
            "buffers": self.buffers(),
            "absent": absent,
            "bounds": runner.bounds,
            "launches": [la.name for la in self.schedule.launches],
            "firsts": [(name, row, _TORCH[self.tensors[name].dtype]) for name, row in runner.first],
            "constants": tuple(name for name, _ in self.schedule.dims),
        }


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _comment(dtype: str, extents: tuple[Extent, ...]) -> str:
    """A tensor as a comment shows it: ``[>= tokens, 1, window] int32``, in the spec's names."""

    def one(e: Extent) -> str:
        if e.size is None:
            return "any"
        return f">= {e.size}" if e.at_least else f"<= {e.size}" if e.at_most else str(e.size)

    return f"[{', '.join(map(one, extents))}] {dtype.removeprefix('torch.')}"


def emit_runner(program: Program, schedule: Schedule) -> str:
    """The text of ``runner.py`` (unformatted, unheaded).

    Raises :class:`RunnerError` if a launch takes what the runner cannot give it.
    """
    context = _Runner(program, schedule).context()
    return environment().get_template("runner.py.j2").render(context)
