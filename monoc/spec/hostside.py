"""The `target:`, `runner:` and `schedule:` sections."""

from __future__ import annotations

from monoc.diagnostics import Code, suggestion
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.fields import Fields, Reader
from monoc.spec.names import NameKind, Names
from monoc.spec.program import (
    HandoffOverride,
    Role,
    Runner,
    RunnerBound,
    RunnerOption,
    Schedule,
    Target,
    TensorDecl,
    WeightClass,
    WeightField,
)
from monoc.spec.yamltree import YamlList, YamlMap, YamlNode, YamlText
from monoc.target import target

__all__ = ["read_runner", "read_schedule", "read_target"]

_ARCHES = ("gfx950",)
_FORMS = ("pair", "flag", "barrier")
_TEXT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;()+-*/=<>_%[]")
_WAVE = 64
# What the passes can be told: 32-column groups of an expert up task
_KNOBS = ("expert_groups",)


def read_target(node: YamlMap, reader: Reader) -> Target | None:
    """``{arch, ctas, threads}``: what the launches run on; ``ctas`` is the grid, one CTA a compute unit."""
    f = Fields(reader, node, "`target`", ("arch", "ctas", "threads"))
    arch = f.choice("arch", _ARCHES, required=True)
    ctas = f.integer("ctas", required=True, least=1)
    threads = f.integer("threads", required=True, least=1)
    if threads is not None and (threads % _WAVE or threads > 1024):
        reader.diagnostics.error(
            Code.WRONG_KIND, f"`threads` is {threads}", f.at("threads"), f"a multiple of {_WAVE}, at most 1024"
        )
    if arch is not None and ctas is not None and ctas > (units := target(arch).cus):
        reader.diagnostics.error(
            Code.WRONG_KIND, f"`ctas` is {ctas}", f.at("ctas"),
            f"at most {units}: CTAs wait for each other, so each needs one of {arch}'s {units} compute units",
        )  # fmt: skip
    if arch is None or ctas is None or threads is None:
        return None
    return Target(arch, ctas, threads)


def read_runner(node: YamlMap, reader: Reader, names: Names, tensors: tuple[TensorDecl, ...]) -> Runner | None:
    """Class names, weight classes with their fields in order, constructor options, the first layer's inputs."""
    f = Fields(reader, node, "`runner`", ("class", "weights", "options", "first", "aliases", "bounds", "defaults"))
    text = f.text("class", required=True)
    name = None if text is None else reader.name(text, "a class")
    section = f.map("weights", required=True)
    classes = () if section is None else _classes(section, reader, names, tensors)
    options = _options(f.map("options"), reader, names)
    first = _first(f.map("first"), reader, tensors)
    aliases = _aliases(f.map("aliases"), reader)
    bounds, defaults = _bounds(f.map("bounds"), reader, names), _defaults(f.map("defaults"), reader, names)
    return None if name is None else Runner(name, classes, options, first, aliases, bounds, defaults)


def _parameter(key: YamlText, what: str, reader: Reader, names: Names) -> str | None:
    """A build parameter by its name."""
    if key.text in names.of(NameKind.PARAM):
        names.use(key.text)
        return key.text
    reader.diagnostics.error(
        Code.RUNNER, f"`{what}` names `{key.text}`, which is no build parameter", key.span,
        suggestion(key.text, names.of(NameKind.PARAM)),
    )  # fmt: skip
    return None


def _bounds(node: YamlMap | None, reader: Reader, names: Names) -> tuple[RunnerBound, ...]:
    found: list[RunnerBound] = []
    for key, value in node.items if node is not None else ():
        param = _parameter(key, "bounds", reader, names)
        fields = reader.kind(value, YamlMap, f"the bound `{key.text}`")
        if fields is None:
            continue
        f = Fields(reader, fields, f"the bound `{key.text}`", ("keyword", "limit"))
        texts = [f.text(k, required=True) for k in ("keyword", "limit")]
        words = [None if t is None else reader.name(t, "a keyword") for t in texts]
        if param is not None and words[0] is not None and words[1] is not None:
            found.append(RunnerBound(param, words[0], words[1]))
    return tuple(found)


def _defaults(node: YamlMap | None, reader: Reader, names: Names) -> tuple[tuple[str, bool], ...]:
    found: list[tuple[str, bool]] = []
    for key, value in node.items if node is not None else ():
        param = _parameter(key, "defaults", reader, names)
        text = reader.kind(value, YamlText, f"the default of `{key.text}`")
        word = None if text is None else reader.choice(text, ("true", "false"), f"the default of `{key.text}`:")
        if param is not None and word is not None:
            found.append((param, word == "true"))
    return tuple(found)


def _classes(node: YamlMap, reader: Reader, names: Names, tensors: tuple[TensorDecl, ...]) -> tuple[WeightClass, ...]:
    weights = {t.name for t in tensors if t.role is Role.WEIGHT}
    scales = {t.scale.name for t in tensors if t.scale is not None}
    placed: dict[str, str] = {}
    classes: list[WeightClass] = []
    for key, value in node.items:
        name = reader.name(key, "a class")
        items = reader.kind(value, YamlList, f"class `{key.text}`")
        if name is None or items is None:
            continue
        fields: list[WeightField] = []
        for item in items.items:
            field = _field(item, reader, names, weights, scales, tuple(c.name for c in classes))
            if field is None:
                continue
            if field.name in {f.name for f in fields}:
                reader.diagnostics.error(
                    Code.RUNNER, f"`{field.name}` is twice a field of `{name}`", item.span, "remove one"
                )
            if field.refers in placed and field.kind in ("tensor", "scale"):
                reader.diagnostics.error(
                    Code.RUNNER,
                    f"`{field.refers}` is already a field of `{placed[field.refers]}`",
                    item.span,
                    "remove one",
                )
            placed[field.refers] = name
            if field.kind != "tensor":  # a weight must be used by the program
                names.use(field.refers)
            fields.append(field)
        classes.append(WeightClass(name, tuple(fields)))
    for missing in sorted((weights | scales) - placed.keys() - names.faulty):
        reader.diagnostics.error(
            Code.RUNNER, f"no class of `weights` has the tensor `{missing}`", node.span, f"add `{missing}` to one"
        )
    return tuple(classes)


def _field(
    item: YamlNode, reader: Reader, names: Names, weights: set[str], scales: set[str], classes: tuple[str, ...]
) -> WeightField | None:
    """``tensor``, ``scale``, ``param``, ``name: int`` or ``name: Class`` (``name: Class?`` if it may be None)."""
    if isinstance(item, YamlText):
        if item.text in weights or item.text in scales:
            return WeightField(item.text, "tensor" if item.text in weights else "scale", item.text)
        if item.text in names.of(NameKind.PARAM):
            return WeightField(item.text, "param", item.text)
        if item.text in names.faulty:
            return None
        known = [*weights, *scales, *names.of(NameKind.PARAM)]
        reader.diagnostics.error(
            Code.RUNNER,
            f"`{item.text}` is no weight, scale or build parameter",
            item.span,
            suggestion(item.text, known),
        )
        return None
    if not isinstance(item, YamlMap) or len(item.items) != 1:
        reader.diagnostics.error(Code.RUNNER, "a field is a name or `name: kind`", item.span, "e.g. `layer_id: int`")
        return None
    key, value = item.items[0]
    name = reader.name(key, "a field")
    kind = reader.kind(value, YamlText, f"the kind of `{key.text}`")
    if name is None or kind is None:
        return None
    if kind.text == "int":
        return WeightField(name, "int", "int")
    cls = kind.text.removesuffix("?")
    if cls in classes:
        return WeightField(name, "class", cls, kind.text.endswith("?"))
    reader.diagnostics.error(
        Code.RUNNER, f"`{kind.text}` is neither `int` nor a class above", kind.span, suggestion(cls, ["int", *classes])
    )
    return None


def _options(node: YamlMap | None, reader: Reader, names: Names) -> tuple[RunnerOption, ...]:
    options: list[RunnerOption] = []
    for key, value in node.items if node is not None else ():
        name = reader.name(key, "a constructor option")
        text = reader.kind(value, YamlText, f"option `{key.text}`")
        if name is None or text is None:
            continue
        if text.text not in names.of(NameKind.PARAM):
            reader.diagnostics.error(
                Code.RUNNER, f"option `{name}` sets `{text.text}`, which is no build parameter", text.span,
                suggestion(text.text, names.of(NameKind.PARAM)),
            )  # fmt: skip
            continue
        names.use(text.text)
        options.append(RunnerOption(name, text.text))
    return tuple(options)


def _first(
    node: YamlMap | None, reader: Reader, tensors: tuple[TensorDecl, ...]
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    inputs = [t.name for t in tensors if t.role is Role.INPUT]
    found: list[tuple[str, tuple[float, ...]]] = []
    for key, value in node.items if node is not None else ():
        items = reader.kind(value, YamlList, f"`first` of `{key.text}`")
        if key.text not in inputs:
            reader.diagnostics.error(Code.RUNNER, f"`{key.text}` is no input", key.span, suggestion(key.text, inputs))
        elif items is not None:
            numbers = [_number(i, reader) for i in items.items]
            if None not in numbers:
                found.append((key.text, tuple(n for n in numbers if n is not None)))
    return tuple(found)


def _number(node: YamlNode, reader: Reader) -> float | None:
    if isinstance(node, YamlText) and len(node.text) < 24 and node.text.replace(".", "", 1).isdecimal():
        return float(node.text)
    reader.diagnostics.error(Code.WRONG_KIND, "not a number", node.span, "write a number such as 1 or 0.5")
    return None


def _aliases(node: YamlMap | None, reader: Reader) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for key, value in node.items if node is not None else ():
        text = reader.kind(value, YamlText, f"the alias of `{key.text}`")
        name = None if text is None else reader.name(text, "an argument")
        if name is not None:
            found.append((key.text, name))
    return tuple(found)


def read_schedule(node: YamlMap, reader: Reader, names: Names) -> Schedule:
    """``handoff``: overrides with a reason; ``knobs``: named integers over build parameters; ``two_hop``: a guard."""
    f = Fields(reader, node, "`schedule`", ("handoff", "knobs", "two_hop"))
    overrides: list[HandoffOverride] = []
    listed = f.list("handoff")
    for item in listed.items if listed is not None else ():
        fields = reader.kind(item, YamlMap, "an item of `handoff`")
        if fields is None:
            continue
        g = Fields(reader, fields, "a hand-off", ("launch", "value", "form", "reason"))
        launch, value, reason = (g.text(k, required=True) for k in ("launch", "value", "reason"))
        form = g.choice("form", _FORMS, required=True)
        if reason is not None and (not set(reason.text) <= _TEXT or not 8 <= len(reason.text) <= 200):
            reader.diagnostics.error(
                Code.BAD_TEXT,
                "a reason is 8 to 200 plain characters",
                reason.span,
                "no quotes, backslashes or line breaks",
            )
        if launch is not None and value is not None and form is not None and reason is not None:
            overrides.append(HandoffOverride(launch.text, value.text, form, reason.text, value.span, launch.span))
    knobs: list[tuple[str, BuildExpr]] = []
    table = f.map("knobs")
    for key, value_ in table.items if table is not None else ():
        name = reader.choice(key, _KNOBS, "knob")
        text = reader.kind(value_, YamlText, f"knob `{key.text}`")
        ast = None if text is None else reader.expression("dim_value", text)
        expr = None if ast is None else names.build_expr(ast, f"knob `{key.text}`")
        if name is not None and expr is not None:
            knobs.append((name, expr))
    for i, o in enumerate(overrides):
        if any((o.launch, o.value) == (p.launch, p.value) for p in overrides[:i]) and o.span is not None:
            reader.diagnostics.error(
                Code.SCHEDULE, f"two overrides of the hand-off of `{o.value}` in `{o.launch}`", o.span, "remove one"
            )
    guard = f.text("two_hop")
    ast = None if guard is None else reader.expression("guard_value", guard)
    two_hop = None if ast is None else names.build_expr(ast, "a guard")
    return Schedule(tuple(overrides), tuple(knobs), two_hop)
