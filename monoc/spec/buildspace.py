"""Builds: every choice of build parameters one package serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from monoc.expr.ir import Span
from monoc.spec.buildexpr import BuildExpr, BuildValue

__all__ = ["Build", "BuildParam", "BuildSpace", "DimDecl", "Variant"]


@dataclass(frozen=True)
class Build:
    """One choice of every build parameter: ``build["tokens"]``, ``build["ratio"]``, ..."""

    variant: str
    values: tuple[tuple[str, int], ...]  # booleans are 0 and 1

    @cached_property
    def env(self) -> Mapping[str, BuildValue]:
        """The parameters by name, ``variant`` apart."""
        return dict(self.values)

    def __getitem__(self, name: str) -> int:
        return int(self.env[name])


@dataclass(frozen=True)
class BuildParam:
    """A build parameter all variants share: its possible values, ascending (a range is written out)."""

    name: str
    values: tuple[int, ...]
    boolean: bool
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Variant:
    """A named complete variant of the layer (``target``, ``draft``): the values each of its parameters takes."""

    name: str
    values: tuple[tuple[str, tuple[int, ...]], ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class BuildSpace:
    """Every build a package serves: variants x their parameters x the shared ones, less what ``require`` rules out."""

    params: tuple[BuildParam, ...]
    variants: tuple[Variant, ...]
    require: tuple[BuildExpr, ...]

    def names(self) -> tuple[str, ...]:
        """All parameter names: the shared ones, then those of the variants."""
        return tuple(p.name for p in self.params) + tuple(n for n, _ in self.variants[0].values)

    def builds(self, **fixed: int) -> Iterator[Build]:
        """The builds with ``fixed`` parameters, in a fixed order (``builds(tokens=8, tp=4)``)."""
        for variant in self.variants:
            axes = [(p.name, p.values) for p in self.params] + list(variant.values)
            choices = [[v for v in values if fixed.get(name, v) == v] for name, values in axes]
            for combo in product(*choices):
                env = {name: value for (name, _), value in zip(axes, combo, strict=True)}
                if all(r.evaluate(env) for r in self.require):
                    yield Build(variant.name, tuple(env.items()))


@dataclass(frozen=True)
class DimDecl:
    """A named dimension: an integer expression over earlier dimensions and build parameters."""

    name: str
    expr: BuildExpr
    span: Span | None = field(default=None, compare=False)
