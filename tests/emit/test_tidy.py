"""Needless parentheses of emitted code."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoc.emit.tidy import without_needless_parentheses

CASES = {
    "x = (a)": "x = a",
    "x = ((a))": "x = a",
    "x = a + (b * c)": "x = a + b * c",
    "x = (a * b) // c": "x = a * b // c",
    "x = (a // 2) + (b % c)": "x = a // 2 + b % c",
    "f((a + b), (c))": "f(a + b, c)",
    "x = y[(a):(b + 1)]": "x = y[a:b + 1]",
    "f(*(a), -(b))": "f(*a, -b)",
    "x = (a if b else c)": "x = a if b else c",
    "if (a):\n    pass  # (so)": "if a:\n    pass  # (so)",
    "f((\n a +\n b), (c))": "f(\n a +\n b, c)",
}


@pytest.mark.parametrize("text", CASES)
def test_taken_out(text: str) -> None:
    assert without_needless_parentheses(text + "\n") == CASES[text] + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "x = (a + b) * c",
        "x = a * (b * c)",
        "x = a - (b - c)",
        "x = (a % b) * c",
        "x = a // (b // c)",
        "x = (a & b) | (c << d)",
        "x = (a < b) & (c < d)",
        "(x,) = y",
        "x = (a, b)",
        "f((i for i in z))",
        "x = [i for i in y if (a if b else c)]",
        "x = -(a + b)",
        "x = (1).real",
        "x = a ** (b)",
        "x = (\n a + b)",
        "x = ('a' 'b').join(c)",
        "x = b <= (1 if c else 2)",
        "x = not (a and b)",
    ],
)
def test_kept(text: str) -> None:
    assert without_needless_parentheses(text + "\n") == text + "\n"


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "//", "%", "&", "<<", "<", "and", "or"])
    return st.one_of(
        st.builds("({})".format, inner),
        st.builds("({} {} {})".format, inner, operators, inner),
        st.builds("f({}, ({}))".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("-({})".format, inner),
        st.builds("(not {})".format, inner),
        st.builds("x[{}]".format, inner),
        st.builds("(lambda: {})".format, inner),
    )


@given(st.recursive(st.sampled_from(["a", "b", "1", "(c)", "d.e"]), _wrapped, max_leaves=12))
def test_the_same_program(text: str) -> None:
    """Whatever is taken out, the syntax tree is the same, and nothing is left to take out."""
    source = f"y = {text}\n"
    tidy = without_needless_parentheses(source)
    assert ast.dump(ast.parse(tidy)) == ast.dump(ast.parse(source))
    assert without_needless_parentheses(tidy) == tidy
