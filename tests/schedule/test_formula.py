"""The formula language: what it takes, what it refuses, how it prints."""

from __future__ import annotations

import pytest

from monoc.schedule.formula import (
    Formula,
    FormulaError,
    add,
    attributes,
    check,
    constants,
    formula,
    of_self,
    substitute,
)


def test_formulas_print_canonically() -> None:
    assert formula("((HIDDEN) // 32)") == "HIDDEN // 32"
    assert formula("b.tokens*( (HIDDEN)//2 )") == formula("b.tokens * (HIDDEN // 2)")
    assert formula(7) == "7"


def test_numbers_are_folded() -> None:
    assert formula("16 * 2 * b.k") == "32 * b.k"
    assert formula("(4 * 2 // 1) * (b.k // 1)") == "8 * b.k"
    assert formula("max(1, 32 // 16) + 1 * b.k") == "2 + b.k"
    assert formula("7 // 0 + b.k") == "7 // 0 + b.k"  # not ours to hide


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os')", "may be called"),
        ("b.__class__", "only public fields"),
        ("b.tokens.real", "only public fields"),
        ("open(1)", "may be called"),
        ("(lambda: 1)()", "may be called"),
        ("[1, 2]", "not allowed"),
        ("1.5", "not an integer"),
        ("'a; b'", "not a name"),
        ("hidden", "unknown name 'hidden'"),
        ("min(*b)", "not allowed"),
        ("2 **", "not an expression"),
        ("i + 1", "only known in task formulas"),
    ],
)
def test_anything_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(FormulaError, match=why.replace("(", r"\(")):
        check(Formula(text))


def test_the_task_index_is_for_task_formulas() -> None:
    assert formula("i // 4", task=True) == "i // 4"
    assert substitute(formula("i // 4 + i", task=True), Formula("i + 1")) == "(i + 1) // 4 + (i + 1)"


def test_what_a_formula_reads() -> None:
    text = formula("cdiv(b.heads * HEAD, 16) + b.tokens")
    assert attributes(text) == {"heads", "tokens"}
    assert constants(text) == {"HEAD"}
    assert of_self(text) == "cdiv(self.heads * HEAD, 16) + self.tokens"


def test_sums_fold_numbers() -> None:
    assert add(formula("3"), formula("b.tokens"), formula("0"), formula("4")) == "b.tokens + 7"
    assert add() == "0"
