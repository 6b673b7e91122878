"""Slots from statements: a chain of maps folded into one scalar program of what the skeleton has at hand.

Maps that the stage computes itself are inlined, each element once (a ``let``); sums over a small axis (streams) are
unrolled in their stated order; every other element read becomes an input of the slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from keyword import iskeyword

from monoc.expr.flydsl import WORDS
from monoc.expr.ir import (
    Access,
    Binary,
    BinaryOp,
    Compare,
    Const,
    Expr,
    Fma,
    IndexConst,
    IndexSum,
    IndexTerm,
    IndexVar,
    Local,
    Reduce,
    ReduceOp,
    Round,
    Select,
    Unary,
)
from monoc.expr.slot import Slot, SlotInput
from monoc.spec.program import MapStatement

__all__ = ["SlotError", "SlotMaker", "affine", "identifier"]

# A reduction longer than this is the skeleton's business, not a slot's.
_UNROLL = 16


class SlotError(ValueError):
    """A statement a slot cannot hold; the message names it and says why."""


def identifier(value: str) -> str:
    """A value's name as a Python identifier: ``attn_seam.S`` is ``attn_seam_S``."""
    return value.replace(".", "_").replace("#", "_")


def affine(term: IndexTerm) -> tuple[dict[str, int], int]:
    """An index term as factors by variable, and an offset."""
    match term:
        case IndexConst(value=value):
            return {}, value
        case IndexVar(name=name):
            return {name: 1}, 0
        case IndexSum(terms=terms, offset=offset):
            return dict(terms), offset


def _term(factors: Mapping[str, int], offset: int) -> IndexTerm:
    kept = tuple((n, f) for n, f in factors.items() if f)
    if not kept:
        return IndexConst(offset)
    if offset == 0 and len(kept) == 1 and kept[0][1] == 1:
        return IndexVar(kept[0][0])
    return IndexSum(kept, offset)


def _at(term: IndexTerm, where: Mapping[str, IndexTerm]) -> IndexTerm:
    """``term`` with its variables replaced."""
    factors, offset = affine(term)
    out: dict[str, int] = {}
    for name, factor in factors.items():
        inner, shift = affine(where.get(name, IndexVar(name)))
        offset += factor * shift
        for n, f in inner.items():
            out[n] = out.get(n, 0) + factor * f
    return _term(out, offset)


@dataclass
class SlotMaker:
    """Folds ``maps`` (by the value they define) into slots. ``extents``: axis lengths that are the same in every
    build."""

    maps: Mapping[str, MapStatement]
    extents: Mapping[str, int]
    _inputs: dict[Access, str] = field(default_factory=dict)
    _lets: dict[tuple[str, tuple[IndexTerm, ...]], tuple[str, Expr]] = field(default_factory=dict)
    _statements: dict[str, None] = field(default_factory=dict)

    def make(self, name: str, value: str, order: tuple[str, ...] = ()) -> Slot:
        """The slot that computes an element of ``value`` at its own index variables.

        ``order``: values whose accesses come first among the inputs, in this order (a slot a skeleton calls by
        position). Raises :class:`SlotError`.
        """
        statement = self._statement(value)
        maker = replace(self, _inputs={}, _lets={}, _statements={})
        result = maker._expression(statement.expr, {v: IndexVar(v) for v in statement.index}, value)
        maker._statements[statement.origin] = None
        inputs = [SlotInput(local, access) for access, local in maker._inputs.items()]
        inputs.sort(key=lambda i: order.index(i.access.tensor) if i.access and i.access.tensor in order else len(order))
        lets = tuple(maker._lets.values())
        return Slot(name, tuple(inputs), lets, (result,), tuple(maker._statements))

    def _statement(self, value: str) -> MapStatement:
        if value not in self.maps:
            raise SlotError(f"{value} is not computed element by element here")
        return self.maps[value]

    def _expression(self, expr: Expr, where: Mapping[str, IndexTerm], value: str) -> Expr:
        def inner(e: Expr) -> Expr:
            return self._expression(e, where, value)

        match expr:
            case Const() | Local():
                return expr
            case Access():
                return self._access(Access(expr.tensor, tuple(_at(i, where) for i in expr.index)))
            case Unary():
                return Unary(expr.op, inner(expr.x))
            case Binary():
                return Binary(expr.op, inner(expr.a), inner(expr.b))
            case Fma():
                return Fma(inner(expr.a), inner(expr.b), inner(expr.c))
            case Round():
                return Round(expr.dtype, inner(expr.x))
            case Compare():
                return Compare(expr.op, inner(expr.a), inner(expr.b))
            case Select():
                condition = Compare(expr.condition.op, inner(expr.condition.a), inner(expr.condition.b))
                return Select(condition, inner(expr.a), inner(expr.b))
            case Reduce():
                return self._unrolled(expr, where, value)

    def _access(self, access: Access) -> Expr:
        if access.tensor in self.maps:
            return self._let(access)
        if access not in self._inputs:
            stem = _stem(access)
            taken = set(self._inputs.values()) | {n for n, _ in self._lets.values()}
            self._inputs[access] = _free(stem, taken)
        return Local(self._inputs[access])

    def _let(self, access: Access) -> Expr:
        key = access.tensor, access.index
        if key not in self._lets:
            statement = self._statement(access.tensor)
            where = dict(zip(statement.index, access.index, strict=True))
            expr = self._expression(statement.expr, where, access.tensor)
            self._statements[statement.origin] = None
            if isinstance(expr, Local | Const):
                return expr
            stem = _stem(access)
            taken = {n for n, _ in self._lets.values()} | set(self._inputs.values())
            self._lets[key] = _free(stem, taken), expr
        return Local(self._lets[key][0])

    def _unrolled(self, reduce: Reduce, where: Mapping[str, IndexTerm], value: str) -> Expr:
        elements = [dict(where)]
        for variable in reduce.over:
            extent = self.extents.get(variable)
            if extent is None or extent * len(elements) > _UNROLL:
                raise SlotError(f"{value}: the {reduce.op.value} over {variable} is too long for a scalar program")
            elements = [{**e, variable: IndexConst(i)} for e in elements for i in range(extent)]
        terms = [self._expression(reduce.body, e, value) for e in elements]
        if reduce.op is ReduceOp.PAIRWISE_SUM:
            return _pairwise(terms)
        total = terms[0]
        for term in terms[1:]:
            op = BinaryOp.MAX if reduce.op is ReduceOp.MAX else BinaryOp.ADD
            total = Binary(op, total, term)
            if reduce.rounding is not None:
                total = Round(reduce.rounding, total)
        return total


def _stem(access: Access) -> str:
    """A name for an element: its value's, and the fixed ones of its indices."""
    fixed = [str(index.value) for index in access.index if isinstance(index, IndexConst)]
    return "_".join([identifier(access.tensor.rpartition(".")[2]), *fixed])


def _free(stem: str, taken: set[str]) -> str:
    """``stem``, or the first of ``stem_x2``, ``stem_x3``, ... that is neither taken nor a word of a slot's text."""
    names = chain([stem], (f"{stem}_x{n}" for n in count(2)))
    return next(name for name in names if name not in taken and name not in WORDS and not iskeyword(name))


def _pairwise(terms: list[Expr]) -> Expr:
    while len(terms) > 1:
        pairs: list[Expr] = [Binary(BinaryOp.ADD, a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]
