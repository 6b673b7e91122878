"""What ``monoc explain`` says of every kind of name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from monoc.cli import make_app
from monoc.explain.facts import explain, known_names
from monoc.explain.model import Subject
from monoc.spec.load import load_program

SPEC = "layer_specs/tiny.yaml"


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.of(load_program(SPEC))


@pytest.fixture
def invoke() -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(make_app(["explain"]), ["explain", SPEC, *arguments])


def facts(subject: Subject, name: str) -> dict[str, str]:
    (found,) = explain(subject, name)
    return {"kind": found.kind, **{title: "\n".join(lines) for title, lines in found.facts}}


def test_every_name_is_explained(subject: Subject) -> None:
    """Every name has something to say, and a name of its own kind is unambiguous unless a value of a definition shares
    its last part."""
    for name in known_names(subject):
        found = explain(subject, name)
        assert found
        assert all(e.facts for e in found)


def test_a_value(subject: Subject) -> None:
    found = facts(subject, "attn_seam.h")
    assert found["kind"] == "value"
    assert found["type"] == "bf16 [tokens, hidden], replicated"
    assert "mhc_mla_moe.monoc:" in found["defined"]
    assert "h[t,c]" in found["defined"]
    assert found["computed by"] == "attn_seam.h (reduce) in stage k1.attn_seam_slice"
    assert found["lives"].startswith("region k1.h_row: scratch, ")
    assert "k2.h_row" not in found["lives"]  # another value of the same short name
    assert "barrier where b.barriers" in found["lives"]
    assert "y (map) in stage k1.attn_seam_norm" in found["read by"]


def test_a_short_name_is_every_value_of_that_name(subject: Subject) -> None:
    assert [e.name for e in explain(subject, "h")] == ["attn_seam.h", "ffn_half.ffn_seam.h"]


def test_a_part_and_a_value_that_stays_inside(subject: Subject) -> None:
    found = facts(subject, "q_raw")
    assert found["a part of"] == "qkv, from column 0"
    assert found["lives"] == "registers and LDS of its stage"


def test_tensors_and_scales(subject: Subject) -> None:
    weight = facts(subject, "wqkv")
    assert weight["kind"] == "weight"
    assert weight["field"] == "AttnWeights.wqkv"
    assert weight["read by"] == "qkv_linear (linear) in stage k1.wqkv_gemv"
    assert facts(subject, "wqkv_scale")["of"].startswith("weight wqkv")
    assert "region k2.out_ranks: peer" in facts(subject, "out")["lives"]


def test_parameters_and_sizes(subject: Subject) -> None:
    index = facts(subject, "index")
    assert (index["kind"], index["values"]) == ("build parameter", "no, yes")
    assert "keys (key_table) in stage k1.key_table" in index["decides whether"]
    assert "host call select of forward" in index["decides whether"]
    heads = facts(subject, "heads")
    assert heads["kind"] == "dimension"
    assert "tp" in heads["is"]


def test_stages_regions_launches_entries(subject: Subject) -> None:
    stage = facts(subject, "k1.wqkv_gemv")
    assert stage["kind"] == "stage"
    assert "region qkv_parts" in stage["writes"]
    assert "@ wqkv" in stage["from"]
    region = facts(subject, "k1.qkv_parts")
    assert (region["written by"], region["read by"]) == ("wqkv_gemv", "k1_latents")
    assert facts(subject, "k1")["stages"].startswith("attn_seam_slice (row_slice)")
    assert facts(subject, "forward")["runs"] == "k1\nselect\nk2"


def test_the_command(invoke: Callable[..., Any]) -> None:
    text = invoke("wqkv")
    assert text.exit_code == 0
    assert text.output.startswith("wqkv: weight\n  written             layer_specs/tiny.yaml:")
    (found,) = json.loads(invoke("wqkv", "--json").output)
    assert found["place"]["file"] == SPEC
    assert found["field"] == ["AttnWeights.wqkv"]


def test_an_unknown_name(invoke: Callable[..., Any]) -> None:
    wrong = invoke("wqvk")
    assert wrong.exit_code == 2
    assert wrong.output == f"{SPEC} has nothing named 'wqvk'; did you mean `wqkv`?\n"
