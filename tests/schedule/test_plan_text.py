"""plan.py as text: self-contained, deterministic, and right about epochs, tags and buffers."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from layer import draft, small

from monoc.schedule.loader import load_plan
from monoc.schedule.make import make_schedule
from monoc.schedule.printer import print_plan
from monoc.target import GFX950


@pytest.fixture(scope="module")
def text() -> str:
    return print_plan(make_schedule(small(draft()), GFX950))


def test_imports_nothing_but_the_standard_library(text: str) -> None:
    modules = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules <= sys.stdlib_module_names


def test_is_the_same_under_any_hash_seed(text: str) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from layer import draft, small\n"
        "from monoc.schedule.make import make_schedule\n"
        "from monoc.schedule.printer import print_plan\n"
        "from monoc.target import GFX950\n"
        "sys.stdout.write(print_plan(make_schedule(small(draft()), GFX950)))\n"
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert run.stdout == text


def test_builds_outside_the_space_are_refused(text: str) -> None:
    plan = load_plan(text)
    good = {"tokens": 3, "tp": 4, "ratio": 0, "index": False, "experts": 384, "topk": 6}
    assert plan.Plan(**good).heads == 16
    with pytest.raises(ValueError, match="tokens = 5 is not served by variant target"):
        plan.Plan(**{**good, "tokens": 5})
    with pytest.raises(ValueError, match="variant 'other' is not one of"):
        plan.Plan(**good, variant="other")


def test_epochs_start_over_in_step(text: str) -> None:
    plan = load_plan(text)
    last = plan.EPOCHS - 1
    assert plan.next_epoch(last) == 0
    assert plan.peer_half(last) != plan.peer_half(0)
    assert last % plan.COUNTER_SLOTS == plan.COUNTER_SLOTS - 1
    tags = [plan.tag(e, launch) for e in (0, 1, last) for launch in ("k1", "k2")]
    assert tags == [1, 2, 3, 4, 2 * last + 1, 2 * last + 2]
    assert all(0 < t < 2**32 for t in tags)


def test_buffers_hold_what_lies_in_them(text: str) -> None:
    plan = load_plan(text)
    for b in plan.builds():
        table = plan.regions(b)
        for at, total in ((plan.scratch(b), plan.scratch_bytes(b)), (plan.peer(b), plan.peer_half_bytes(b.tp))):
            assert all(offset % 256 == 0 and offset + table[n].bytes <= total for n, offset in at.items())
    words = plan.epoch_words()
    assert all(plan.counter_word(c) + plan.COUNTER_SLOTS <= words for c in plan.COUNTERS)
    assert plan.barrier_byte(0) >= 4 * words
