"""The `build:` and `dims:` sections, and facts about expressions that must hold in every build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from monoc.diagnostics import Code, Diagnostics
from monoc.spec.buildexpr import BuildAny, BuildExpr, BuildInt, BuildValue, InexactDivisionError
from monoc.spec.fields import Reader
from monoc.spec.names import NameKind, Names
from monoc.spec.program import Build, BuildParam, BuildSpace, DimDecl, Variant
from monoc.spec.yamltree import YamlList, YamlMap, YamlNode, YamlText

__all__ = ["Samples", "read_build", "read_dims"]

_MAX_RANGE = 4096
_MAX_BUILDS = 1 << 14


def read_build(node: YamlMap, reader: Reader, names: Names) -> BuildSpace:
    """The build space; parameters are declared in ``names``.

    Each key is a shared parameter (``lo..hi``, a list of integers, ``bool``, one integer), apart from ``variants``
    (name -> parameters, the same ones in each) and ``require`` (guards that every build fulfils)."""
    params: list[BuildParam] = []
    variants: list[Variant] = []
    for key, value in node.items:
        if key.text in ("variants", "require"):
            continue
        name = reader.name(key, "a build parameter")
        got = _values(value, reader, f"build parameter `{key.text}`") or ((1,), False)  # stands in, reported
        if name and names.declare(name, NameKind.PARAM, key.span, boolean=got[1]):
            params.append(BuildParam(name, got[0], got[1], key.span))
    for needed in ("tokens", "tp"):
        found = next((p for p in params if p.name == needed), None)
        if found is None and needed not in names.table:
            reader.diagnostics.error(Code.MISSING_KEY, f"`build` lacks `{needed}`", node.span, f"add `{needed}: ...`")
            names.faulty.add(needed)
        elif found is not None and (found.boolean or found.values[0] < 1) and found.span is not None:
            reader.diagnostics.error(
                Code.BUILD_RANGE, f"`{needed}` can be {found.values[0]}", found.span, "give integers from 1 on"
            )
            names.faulty.add(needed)
    section = node.get("variants")
    if section is not None and (table := reader.kind(section, YamlMap, "`variants`")) is not None:
        variants = _variants(table, reader, names)
    require = _require(node, reader, names)
    space = BuildSpace(tuple(params), tuple(variants) or (Variant("only", ()),), require)
    total = sum(prod(len(x) for x in (*(p.values for p in params), *(x for _, x in v.values))) for v in space.variants)
    if total > _MAX_BUILDS:
        longest = max(params, key=lambda p: len(p.values), default=None)
        reader.diagnostics.error(
            Code.BUILD_RANGE,
            f"{total} builds, the most are {_MAX_BUILDS}",
            (longest.span if longest is not None else None) or node.span,
            "narrow the ranges",
        )
        return BuildSpace(space.params, (), ())  # no sizes to check
    if not reader.diagnostics.errors and next(space.builds(), None) is None:
        at = next((k.span for k, _ in node.items if k.text == "require"), node.span)
        reader.diagnostics.error(Code.BUILD_EMPTY, "no build fulfils `require`", at, "loosen it")
    return space


def _values(node: YamlNode, reader: Reader, what: str) -> tuple[tuple[int, ...], bool] | None:
    """Possible values of a parameter and whether it is boolean."""
    if isinstance(node, YamlText) and node.text == "bool":
        return (0, 1), True
    if isinstance(node, YamlText) and node.text in ("true", "false"):
        return (int(node.text == "true"),), True
    if isinstance(node, YamlText) and ".." in node.text:
        lo, _, hi = node.text.partition("..")
        if lo.strip().isdecimal() and hi.strip().isdecimal() and len(node.text) < 24:
            first, last = int(lo), int(hi)
            if first <= last < first + _MAX_RANGE:
                return tuple(range(first, last + 1)), False
        reader.diagnostics.error(
            Code.BUILD_RANGE,
            f"{what}: `{node.text}` is no range of at most {_MAX_RANGE} integers",
            node.span,
            "write `first..last` with first <= last",
        )
        return None
    items = node.items if isinstance(node, YamlList) else (node,)
    values: list[int] = []
    for item in items:
        text = reader.kind(item, YamlText, f"a value of {what}")
        value = None if text is None else reader.integer(text, what)
        if text is None or value is None:
            return None
        if value in values:
            reader.diagnostics.error(Code.BUILD_RANGE, f"{what}: {value} is listed twice", text.span, "remove one")
            return None
        values.append(value)
    if not values:
        reader.diagnostics.error(Code.BUILD_RANGE, f"{what} has no values", node.span, "list at least one")
        return None
    return tuple(sorted(values)), False


def _variants(table: YamlMap, reader: Reader, names: Names) -> list[Variant]:
    variants: list[Variant] = []
    first: YamlMap | None = None
    for key, value in table.items:
        name = reader.name(key, "a variant")
        fields = reader.kind(value, YamlMap, f"variant `{key.text}`")
        if name is None or fields is None:
            continue
        values: list[tuple[str, tuple[int, ...]]] = []
        for k, v in fields.items:
            param = reader.name(k, "a build parameter")
            got = _values(v, reader, f"`{k.text}` of variant `{name}`") or ((1,), False)
            if param is None:
                continue
            if first is None:
                names.declare(param, NameKind.PARAM, k.span, boolean=got[1])
            elif first.get(param) is None:
                reader.diagnostics.error(
                    Code.VARIANT, f"only variant `{name}` has `{param}`", k.span, "give it in every variant or in none"
                )
                continue
            values.append((param, got[0]))
        if first is None:
            first = fields
        given = {n for n, _ in values}
        values += [(n, v) for n, v in (variants[0].values if variants else ()) if n not in given]  # stand in, reported
        for k, _ in first.items:
            if fields.get(k.text) is None:
                reader.diagnostics.error(
                    Code.VARIANT, f"variant `{name}` lacks `{k.text}`", key.span, "give it in every variant or in none"
                )
        order = [k.text for k, _ in first.items]
        variants.append(Variant(name, tuple(sorted(values, key=lambda v: order.index(v[0]))), key.span))
    return variants


def _require(node: YamlMap, reader: Reader, names: Names) -> tuple[BuildExpr, ...]:
    section = node.get("require")
    if section is None:
        return ()
    items = section.items if isinstance(section, YamlList) else (section,)
    found: list[BuildExpr] = []
    for item in items:
        text = reader.kind(item, YamlText, "an item of `require`")
        ast = None if text is None else reader.expression("guard_value", text)
        if ast is not None and (expr := names.build_expr(ast, "a guard")) is not None:
            found.append(expr)
    return tuple(found)


def read_dims(node: YamlMap, reader: Reader, names: Names) -> tuple[DimDecl, ...]:
    """The dimensions in order; each may mention the ones before it and the build parameters."""
    dims: list[DimDecl] = []
    for key, value in node.items:
        name = reader.name(key, "a dimension")
        text = reader.kind(value, YamlText, f"dimension `{key.text}`")
        ast = None if text is None else reader.expression("dim_value", text)
        expr = None if ast is None else names.build_expr(ast, f"dimension `{key.text}`")
        if name and names.declare(name, NameKind.DIM, key.span):
            if expr is None:
                names.faulty.add(name)
            dims.append(DimDecl(name, BuildInt(1) if expr is None else expr, key.span))
    return tuple(dims)


@dataclass
class Samples:
    """Every kind of build (widths only at both ends of their range, unless a guard looks at them), with values."""

    builds: tuple[Build, ...]
    envs: tuple[Mapping[str, BuildValue], ...]
    dims: tuple[DimDecl, ...]
    booleans: frozenset[str]
    unknown: frozenset[str] = frozenset()  # dimensions without a value (reported): sizes with them are not checked
    _masks: dict[BuildExpr, int] = field(default_factory=dict)
    _values: dict[BuildExpr, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, space: BuildSpace, dims: tuple[DimDecl, ...], faulty: set[str], diagnostics: Diagnostics, full: bool
    ) -> Samples:
        """Evaluates ``dims``, reporting divisions with a remainder and sizes below 1.

        ``faulty`` are the dimensions whose expression is already known to be wrong."""
        unknown = set(faulty)
        for dim in dims:
            if dim.expr.names() & unknown:
                unknown.add(dim.name)
        ends = {p.name: {p.values[0], p.values[-1]} for p in space.params if len(p.values) > 8 and not full}
        builds: list[Build] = []
        envs: list[Mapping[str, BuildValue]] = []
        for build in space.builds():
            if any(build[n] not in kept for n, kept in ends.items()):
                continue
            env: dict[str, BuildValue] = dict(build.env)
            for dim in dims:
                try:
                    value = dim.expr.evaluate(env)
                except InexactDivisionError as e:
                    at = e.expr.span or dim.span
                    if at is not None:
                        diagnostics.error(
                            Code.DIM_VALUE,
                            f"`{e.expr}` is {e.a} / {e.b}, not an integer, {_which(build, e.expr, dims)}",
                            at,
                            "use `cdiv(n, m)` or `pad(n, m)`, or leave out the builds that do not divide",
                        )
                    unknown.add(dim.name)
                    value = 1
                if value < 1 and dim.span is not None:
                    diagnostics.error(
                        Code.DIM_VALUE, f"dimension `{dim.name}` is {value} {_which(build, dim.expr, dims)}", dim.span,
                        "dimensions are 1 or more",
                    )  # fmt: skip
                    unknown.add(dim.name)
                    value = 1
                env[dim.name] = value
            builds.append(build)
            envs.append(env)
        for dim in dims:
            if dim.expr.names() & unknown:
                unknown.add(dim.name)
        booleans = frozenset(p.name for p in space.params if p.boolean)
        return cls(tuple(builds), tuple(envs), dims, booleans, frozenset(unknown))

    @property
    def everywhere(self) -> int:
        """The mask of all builds."""
        return (1 << len(self.builds)) - 1

    def known(self, *sizes: BuildExpr) -> bool:
        """Whether the sizes have values: False where the spec's error is reported already, or the host decides."""
        return not any(
            isinstance(x, BuildAny) or (self.unknown and x.names() & self.unknown) for s in sizes for x in s.walk()
        )

    def mask(self, guard: BuildExpr) -> int:
        """Bit i is set where ``guard`` holds in build i."""
        if guard not in self._masks:
            self._masks[guard] = sum(1 << i for i, env in enumerate(self.envs) if guard.evaluate(env))
        return self._masks[guard]

    def values(self, expr: BuildExpr) -> tuple[int, ...]:
        """``expr`` in every build. Raises :class:`InexactDivisionError`."""
        if expr not in self._values:
            self._values[expr] = tuple(expr.evaluate(env) for env in self.envs)
        return self._values[expr]

    def equal(self, a: BuildExpr, b: BuildExpr) -> bool:
        """Whether the two are one number in every build (also where one has no value)."""
        return a == b or not self.known(a, b) or self.values(a) == self.values(b)

    def differing(self, a: BuildExpr, b: BuildExpr) -> str:
        """Where and how two sizes differ: ``1792 and 1280 with tp 2``."""
        for build, x, y in zip(self.builds, self.values(a), self.values(b), strict=True):
            if x != y:
                return f"{x} and {y} {_which(build, a, self.dims, b)}"
        return "equal"

    def where(self, mask: int, word: str = "every") -> str:
        """``in builds with deep=true``: what the builds of ``mask`` have in common, or one of them."""
        if mask == self.everywhere:
            return f"in {word} build"
        chosen = [b for i, b in enumerate(self.builds) if mask >> i & 1]
        words = [self._say(n, chosen[0][n]) for n in self._varying() if len({b[n] for b in chosen}) == 1]
        if len({b.variant for b in self.builds}) > 1 and len({b.variant for b in chosen}) == 1:
            words = [f"variant {chosen[0].variant}", *(w for w in words if w)]
        if words:
            return f"in builds with {', '.join(words)}"
        return f"in builds such as {', '.join(self._say(n, chosen[0][n]) for n in self._varying())}"

    def _varying(self) -> list[str]:
        """Parameters of more than one value in every variant that the spec lets vary."""
        free = {n for v in {b.variant for b in self.builds} for n in self._free(v)}
        return [n for n, _ in self.builds[0].values if n in free]

    def _free(self, variant: str) -> list[str]:
        builds = [b for b in self.builds if b.variant == variant]
        return [n for n, _ in builds[0].values if len({b[n] for b in builds}) > 1]

    def _say(self, name: str, value: int) -> str:
        return f"{name}={'true' if value else 'false'}" if name in self.booleans else f"{name}={value}"


def _which(build: Build, expr: BuildExpr, dims: tuple[DimDecl, ...], other: BuildExpr | None = None) -> str:
    """The parameters of ``build`` that ``expr`` depends on, in words."""
    table = {d.name: d.expr for d in dims}
    pending = [expr] if other is None else [expr, other]
    found: set[str] = set()
    while pending:
        for n in pending.pop().names():
            if n in table:
                pending.append(table[n])
            elif n in build.env:
                found.add(n)
    words = [f"{n} {v}" for n, v in build.values if n in found]
    return "with " + ", ".join(words) if words else "in every build"
