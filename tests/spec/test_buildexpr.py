"""Build expressions print as what they evaluate to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoc.spec.buildexpr import (
    BinOp,
    BuildBinary,
    BuildCall,
    BuildExpr,
    BuildFunction,
    BuildInt,
    BuildName,
    BuildNot,
    InexactDivisionError,
    conjunction,
    negation,
)

ENV = {"a": 5, "b": 0, "c": 12}

leaves = st.one_of(st.integers(0, 40).map(BuildInt), st.sampled_from(sorted(ENV)).map(BuildName))


def _branches(child: st.SearchStrategy[BuildExpr]) -> st.SearchStrategy[BuildExpr]:
    ops = st.sampled_from([op for op in BinOp if op is not BinOp.DIV])
    functions = st.sampled_from([BuildFunction.MIN, BuildFunction.MAX])
    positive = st.integers(1, 9).map(BuildInt)
    return st.one_of(
        st.builds(BuildBinary, ops, child, child),
        st.builds(BuildNot, child),
        st.builds(lambda f, x, y: BuildCall(f, (x, y)), functions, child, child),
        st.builds(lambda x, y: BuildCall(BuildFunction.PAD, (x, y)), child, positive),
        st.builds(lambda x, y: BuildCall(BuildFunction.CDIV, (x, y)), child, positive),
    )


expressions = st.recursive(leaves, _branches, max_leaves=12)


@given(expressions)
def test_python_text(expr: BuildExpr) -> None:
    helpers = {"cdiv": lambda n, m: -(-n // m), "round_up": lambda n, m: -(-n // m) * m, "min": min, "max": max}
    text = expr.text(python=True)
    # The text is our own print of a generated tree; comparing it needs Python's reading of it.
    assert int(eval(text, {"__builtins__": {}}, {**helpers, **ENV})) == expr.evaluate(ENV), text


@given(expressions)
def test_negation_and_conjunction(expr: BuildExpr) -> None:
    truth = bool(expr.evaluate(ENV))
    assert bool(negation(expr).evaluate(ENV)) is not truth
    assert bool(conjunction(expr, BuildName("a")).evaluate(ENV)) is truth


def test_division_is_exact() -> None:
    expr = BuildBinary(BinOp.DIV, BuildName("c"), BuildName("a"))
    with pytest.raises(InexactDivisionError, match="12 / 5"):
        expr.evaluate(ENV)
    assert expr.text(lambda n: n.upper(), python=True) == "C // A"
