"""What a typing rule sees of a call, and how it reports.

A rule reports through its :class:`OpCheck`, which raises; the results are then untyped and what uses them is not
checked further, so that one mistake is one error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from monoc.diagnostics import Code, Diagnostics, Note
from monoc.expr.ir import DType, Span
from monoc.spec.buildexpr import BuildAny, BuildExpr
from monoc.spec.builds import Samples
from monoc.spec.program import REPLICATED, AttributeValue, ShardingKind, TensorDecl, ValueType

__all__ = ["OpCheck", "UntypedError", "type_text"]


class UntypedError(Exception):
    """The operation has no type; why is reported."""


@dataclass(frozen=True)
class OpCheck:
    """What a rule sees of one call: operand types by parameter, attributes, the number of results."""

    op: str
    types: Mapping[str, ValueType]
    spans: Mapping[str, Span]  # of operands and attributes as written
    tensors: Mapping[str, TensorDecl]  # operands that are tensors
    attributes: Mapping[str, AttributeValue]
    results: int
    span: Span
    samples: Samples
    diagnostics: Diagnostics

    def fail(self, code: Code, message: str, at: str | None, remedy: str | None = None) -> NoReturn:
        """Report ``message`` at operand or attribute ``at``. Raises :class:`UntypedError`."""
        span = self.spans.get(at, self.span) if at is not None else self.span
        tensor = self.tensors.get(at) if at is not None else None
        note = Note(f"`{tensor.name}` is declared", tensor.span) if tensor is not None and tensor.span else None
        self.diagnostics.error(code, message, span, remedy, note)
        raise UntypedError

    def want(self, param: str, dtypes: tuple[DType, ...], ranks: tuple[int, ...]) -> ValueType:
        """The operand's type, which must be plain (not block-scaled), of one of ``dtypes`` and ``ranks``."""
        t = self.types[param]
        if t.dtype not in dtypes or t.block is not None:
            listed = " or ".join(dtypes)
            self.fail(
                Code.DTYPE, f"`{param}` of {self.op} is {type_text(t)}, not {listed}", param, _cast_help(t, dtypes)
            )
        if len(t.shape) not in ranks:
            listed = " or ".join(map(str, ranks))
            self.fail(Code.RANK, f"`{param}` of {self.op} has {len(t.shape)} axes, not {listed}", param)
        return t

    def same(self, a: BuildExpr, b: BuildExpr, what: str, at: str) -> None:
        """Fail unless sizes ``a`` and ``b`` are equal in every build."""
        if isinstance(a, BuildAny) or isinstance(b, BuildAny):
            self.fail(Code.SHAPE, f"{what}: a size only the host knows", at, "declare the size")
        if not self.samples.equal(a, b):
            self.fail(Code.SHAPE, f"{what}: {a} and {b} ({self.samples.differing(a, b)})", at)

    def multiple(self, size: BuildExpr, of: int, what: str, at: str) -> None:
        if not self.samples.known(size):
            return
        bad = next((v for v in self.samples.values(size) if v % of), None)
        if bad is not None:
            self.fail(Code.ALIGNMENT, f"{what} is {bad}, no multiple of {of}", at, f"pad the dimension: `pad(n, {of})`")

    def pairs(self, a: BuildExpr, b: BuildExpr) -> list[tuple[int, int]]:
        """The two sizes in every build; nothing where one has no value."""
        if not self.samples.known(a, b):
            return []
        return list(zip(self.samples.values(a), self.samples.values(b), strict=True))

    def whole(self, param: str) -> ValueType:
        """The operand, which must not be a partial sum."""
        t = self.types[param]
        if t.sharding.kind is ShardingKind.PARTIAL:
            self.fail(
                Code.PARTIAL, f"`{param}` of {self.op} is a partial sum over the ranks", param,
                "add up the ranks first: `all_reduce(...)`",
            )  # fmt: skip
        return t

    def replicated(self, param: str) -> ValueType:
        t = self.whole(param)
        if t.sharding != REPLICATED:
            self.fail(Code.SHARDING, f"`{param}` of {self.op} is {t.sharding}, not replicated", param)
        return t

    def size(self, name: str) -> BuildExpr:
        value = self.attributes[name]
        assert isinstance(value, BuildExpr)
        return value


def type_text(t: ValueType) -> str:
    """``bf16``, ``MXFP8``: the element type in words."""
    return {DType.E4M3: "MXFP8", DType.E2M1X2: "MXFP4"}[t.dtype] if t.block is not None else t.dtype.value


def _cast_help(t: ValueType, dtypes: tuple[DType, ...]) -> str | None:
    return "round it: `bf16(...)`" if t.dtype is DType.F32 and dtypes == (DType.BF16,) else None
