"""The names of a spec: what each is, where it was declared, whether anything used it; build expressions over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from monoc.diagnostics import Code, Diagnostics, Note, quoted, suggestion
from monoc.expr.ir import Span
from monoc.spec.ast import Call, Name, Node, Number, Op
from monoc.spec.buildexpr import (
    BinOp,
    BuildBinary,
    BuildCall,
    BuildExpr,
    BuildFunction,
    BuildInt,
    BuildName,
    BuildNot,
)

__all__ = ["Declared", "NameKind", "Names"]


class NameKind(StrEnum):
    """What a name stands for, as errors say it."""

    PARAM = "build parameter"
    DIM = "dimension"
    CONSTANT = "constant"
    TENSOR = "tensor"
    SCALE = "scale tensor"
    FN = "function"
    DEF = "definition"


@dataclass
class Declared:
    """A name's declaration."""

    kind: NameKind
    span: Span
    value: Fraction | None = None  # of a constant
    used: bool = False
    boolean: bool = False  # of a build parameter


@dataclass
class Names:
    """Every name of a spec; errors go to ``diagnostics``."""

    diagnostics: Diagnostics
    table: dict[str, Declared] = field(default_factory=dict)
    folded: dict[str, str] = field(default_factory=dict)  # upper case -> the name
    faulty: set[str] = field(default_factory=set)  # names whose declaration is wrong (reported): uses are not checked

    def declare(
        self, name: str, kind: NameKind, span: Span, value: Fraction | None = None, boolean: bool = False
    ) -> bool:
        """Enter ``name``; False (reported) if it is taken."""
        taken = self.folded.setdefault(name.upper(), name)  # dimensions are upper case in generated code
        old = self.table.get(taken)
        if old is not None:
            self.diagnostics.error(
                Code.DUPLICATE_NAME,
                f"{kind} `{name}`: the name {f'`{taken}` ' if taken != name else ''}is already a {old.kind}'s",
                span,
                "rename one of them",
                Note(f"the {old.kind} is declared", old.span),
            )
            self.faulty.add(name)
            return False
        self.table[name] = Declared(kind, span, value, boolean=boolean)
        return True

    def of(self, *kinds: NameKind) -> tuple[str, ...]:
        return tuple(n for n, d in self.table.items() if d.kind in kinds)

    def use(self, name: str) -> Declared | None:
        declared = self.table.get(name)
        if declared is not None:
            declared.used = True
        return declared

    def unknown(self, name: str, span: Span, what: str, known: Iterable[str]) -> None:
        """Report an unknown name, suggesting the nearest of ``known``; silent where its declaration was faulty."""
        if name in self.faulty:
            return
        self.diagnostics.error(Code.UNKNOWN_NAME, f"unknown {what} {quoted(name)}", span, suggestion(name, known))

    def report_unused(self) -> None:
        for name, d in self.table.items():
            if not d.used:
                self.diagnostics.error(Code.UNUSED, f"{d.kind} `{name}` is never used", d.span, "use it or remove it")

    # ---- build expressions

    def build_expr(self, node: Node, what: str) -> BuildExpr | None:
        """``node`` over dimensions and build parameters; None (reported) where it is anything else."""
        match node:
            case Number():
                if node.value.denominator == 1 and node.value < 1 << 31:
                    return BuildInt(int(node.value), span=node.span)
                return self._bad(node, f"{what} is made of integers", "write an integer")
            case Name():
                declared = self.use(node.name)
                if declared is not None and declared.kind in (NameKind.PARAM, NameKind.DIM):
                    return BuildName(node.name, span=node.span)
                if declared is not None:
                    return self._bad(node, f"`{node.name}` is a {declared.kind}, not a number of {what}", None)
                if node.name not in self.faulty:
                    known = self.of(NameKind.PARAM, NameKind.DIM)
                    self.diagnostics.error(
                        Code.UNKNOWN_NAME,
                        f"unknown name {quoted(node.name)} in {what}",
                        node.span,
                        suggestion(node.name, known),
                    )
                return None
            case Op(op="neg"):
                x = self.build_expr(node.args[0], what)
                return None if x is None else BuildBinary(BinOp.SUB, BuildInt(0), x, span=node.span)
            case Op(op="not"):
                x = self.build_expr(node.args[0], what)
                return None if x is None else BuildNot(x, span=node.span)
            case Op() if node.op in set(BinOp):
                a, b = (self.build_expr(x, what) for x in node.args)
                return None if a is None or b is None else BuildBinary(BinOp(node.op), a, b, span=node.span)
            case Call() if node.function.name in set(BuildFunction):
                function = BuildFunction(node.function.name)
                args = [self.build_expr(x, what) for x in node.args]
                binary = function in (BuildFunction.CDIV, BuildFunction.PAD)
                if node.keywords or (len(args) != 2 if binary else len(args) < 2):
                    return self._bad(node, f"`{function}` takes {'two' if binary else 'two or more'} arguments", None)
                good = tuple(a for a in args if a is not None)
                return BuildCall(function, good, span=node.span) if len(good) == len(args) else None
            case Call():
                return self._bad(
                    node,
                    f"{quoted(node.function.name)} is no function of {what}",
                    "there are " + ", ".join(f"`{f}`" for f in BuildFunction),
                )
            case _:
                return self._bad(node, f"this is not allowed in {what}", "use integers, names, + - * / and comparisons")

    def _bad(self, node: Node, message: str, remedy: str | None) -> BuildExpr | None:
        self.diagnostics.error(Code.DIM_EXPRESSION, message, node.span, remedy)
        return None
