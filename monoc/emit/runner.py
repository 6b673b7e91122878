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
from monoc.expr.ir import DType
from monoc.passes.names import PlanNames
from monoc.schedule.model import Schedule
from monoc.schedule.parameters import launch_parameters
from monoc.spec.buildexpr import BuildExpr, BuildInt
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
class _Field:
    name: str
    annotation: str
    comment: str


@dataclass(frozen=True)
class _Want:
    """A tensor's check: expressions of its value, dtype, axes and strides ("None": contiguous)."""

    name: str
    dtype: str
    axes: str
    strides: str
    guard: str


@dataclass(frozen=True)
class _Class:
    name: str
    fields: tuple[_Field, ...]
    wants: tuple[_Want, ...]
    root: bool
    options: tuple[_Option, ...]  # the runner options its tensors' shapes depend on


@dataclass(frozen=True)
class _Option:
    """A constructor keyword: ``sets`` the build parameter, by default as in the first variant."""

    name: str
    sets: str
    default: int


@dataclass(frozen=True)
class _Parameter:
    name: str
    comment: str
    optional: bool
    absent: str  # what stands for it where it is not given


@dataclass(frozen=True)
class _Call:
    """A launch of an entry (``arguments``: one expression each), or a host call between two."""

    name: str
    arguments: tuple[str, ...]
    host: bool
    guard: str


@dataclass(frozen=True)
class _Method:
    name: str
    parameters: tuple[_Parameter, ...]
    wants: tuple[_Want, ...]
    outputs: tuple[tuple[str, str, str], ...]  # name, dtype, shape
    calls: tuple[_Call, ...]
    known: tuple[tuple[str, str], ...]  # build parameter, its expression
    own: tuple[str, ...]  # those of them the runner's options fix
    flags: tuple[tuple[str, str], ...]  # keyword, default
    hosts: tuple[HostCall, ...]
    launches: tuple[str, ...]
    needs: str  # the optional weight class field it cannot do without


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
            return f"({text}, None)" if e.at_least else text

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

    def _weight_comment(self, name: str) -> str:
        dtype, extents = self._weight(name)
        return _comment(dtype, extents)

    def _annotation(self, f: WeightField) -> _Field:
        match f.kind:
            case "class":
                return _Field(f.name, f"{f.refers} | None" if f.optional else f.refers, "")
            case "int" | "param":
                return _Field(f.name, "int", f"build parameter {f.refers}" if f.kind == "param" else "")
        return _Field(f.name, "torch.Tensor", self._weight_comment(f.refers))

    def _class(self, c: WeightClass, root: bool) -> _Class:
        wants = tuple(
            _Want(f.name, *self._weight_axes(f.refers), "None", "") for f in c.fields if f.kind in ("tensor", "scale")
        )
        options = tuple(o for o in self.options if any(f"b.{o.sets}" in w.axes for w in wants)) if root else ()
        return _Class(c.name, tuple(self._annotation(f) for f in c.fields), wants, root, options)

    @cached_property
    def options(self) -> tuple[_Option, ...]:
        first = dict(self.program.space.variants[0].values)
        return tuple(_Option(o.name, o.sets, first[o.sets][0]) for o in self.program.runner.options)

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
        if argument in self.paths:
            return f"{self.paths[argument]}.data_ptr()"
        for value in self.carried:
            if argument == self.names.argument(value):
                return f"self.{self.host_name(value)}.data_ptr()"
        raise RunnerError(f"launch {launch} takes {argument!r}, which is no tensor or value of the spec")

    # ---------------------------------------------------------------- methods

    def _parameter(self, t: TensorDecl) -> _Parameter:
        absent = f"self._absent[{_TORCH[t.dtype]}, {len(t.host_shape)}]"
        comment = _comment(_TORCH[t.dtype], t.host_shape)
        return _Parameter(t.name, comment, bool(self.guard(t.guard)), absent)

    def _want(self, t: TensorDecl) -> _Want:
        strides = "None"
        if t.layout is Layout.FP8_DS_MLA:
            width = t.host_shape[-1].size
            assert width is not None
            strides = f"(None, {self.names.text(width)}, 1)"
        elif any(e.size is None or e.at_least for e in t.host_shape):
            sizes = [e.size for e in t.host_shape]
            strides = _tuple([self._stride(sizes, i) for i in range(len(sizes))])
        return _Want(t.name, _TORCH[t.dtype], self._axes(t.host_shape), strides, self.guard(t.guard))

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
        hosts = {str(h.guard): h for h in entry.host_calls}
        options = {o.sets: o.name for o in self.program.runner.options}
        knobs = frozenset().union(*(expr.names() for _, expr in self.program.schedule.knobs))
        known: list[tuple[str, str]] = []
        flags: list[tuple[str, str]] = []
        used = self._used_parameters(entry)
        nested = any(self.paths.get(a, "").count(".") > 1 for la in entry.launches for a in self.arguments[la.name])
        for name in self.program.space.names():
            if name in ("tokens", "tp") or name not in used:
                continue
            if name in hosts:
                known.append((name, f"{hosts[name].name} is not None"))
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
                flags.append((name, "True"))
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

    def _method(self, entry: Entry) -> _Method:
        given = [self.tensors[a] for a in entry.arguments]
        known, flags = self._known(entry)
        calls: list[_Call] = []
        for step in entry.steps:
            if isinstance(step, HostCall):
                arguments = tuple(f"self.{self.host_name(a)}[:rows]" for a in step.arguments)
                calls.append(_Call(step.name, arguments, True, self.guard(step.guard)))
            else:
                expressions = tuple(self._expression(a, entry, step.name) for a in self.arguments[step.name])
                calls.append(_Call(step.name, expressions, False, ""))
        root = self.program.runner.weights[-1]
        nested = [f.name for f in root.fields if f.kind == "class" and f.optional]
        needs = next((n for n in nested if any(f"w.{n}." in a for c in calls for a in c.arguments)), "")
        outputs = tuple(
            (o, _TORCH[self.tensors[o].dtype], self._axes(self.tensors[o].host_shape).replace("b.tokens", "rows"))
            for o in entry.outputs
        )
        return _Method(
            name=entry.name,
            parameters=tuple(sorted((self._parameter(t) for t in given), key=lambda p: p.optional)),
            wants=tuple(self._want(t) for t in given),
            outputs=outputs,
            calls=tuple(calls),
            known=known,
            own=tuple(n for n, e in known if e.startswith("self.") and " if " not in e),
            flags=flags,
            hosts=entry.host_calls,
            launches=tuple(la.name for la in entry.launches),
            needs=needs,
        )

    def context(self) -> dict[str, object]:
        runner, program = self.program.runner, self.program
        methods = [self._method(e) for e in program.entries]
        absent = sorted({p.absent.split("[")[1].rstrip("]") for m in methods for p in m.parameters if p.optional})
        return {
            "program": program,
            "runner": runner,
            "options": self.options,
            "classes": [self._class(c, c is runner.weights[-1]) for c in runner.weights],
            "nested": tuple(f.name for f in runner.weights[-1].fields if f.kind == "class"),
            "methods": methods,
            "buffers": self.buffers(),
            "absent": absent,
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
        return f">= {e.size}" if e.at_least else str(e.size)

    return f"[{', '.join(map(one, extents))}] {dtype.removeprefix('torch.')}"


def emit_runner(program: Program, schedule: Schedule) -> str:
    """The text of ``runner.py`` (unformatted, unheaded).

    Raises :class:`RunnerError` if a launch takes what the runner cannot give it.
    """
    context = _Runner(program, schedule).context()
    return environment().get_template("runner.py.j2").render(context)
