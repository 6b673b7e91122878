"""``monoc plan``: every edge with its form and why, every region, every stage, the chain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from monoc.cli import make_app

SPEC = str(Path(__file__).parents[2] / "layer_specs" / "tiny.yaml")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The proofs run once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *options: CliRunner().invoke(make_app(["plan"]), ["plan", SPEC, *options])


def test_json_has_all_of_it(run) -> None:  # type: ignore[no-untyped-def]
    result = run("--tokens", "8", "--tp", "4", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["failures"] == []
    assert (report["build"]["tokens"], report["build"]["tp"], report["build"]["index"]) == (8, 4, False)
    for launch in report["launches"]:
        assert launch["chain_length"] > 0
        names = {s["name"] for s in launch["stages"]}
        for edge in launch["hand_offs"]:
            assert edge["form"]
            assert edge["why"]
            assert edge["consumer"] in names
        assert all(s["placement"].removeprefix("after ") in {*names, "first on the grid"} for s in launch["stages"])
        used = {e["region"] for e in launch["hand_offs"]}
        regions = {r["region"]: r for r in launch["regions"]}
        assert used <= regions.keys()
        assert all(r["bytes"] > 0 and r["offset"] % 256 == 0 and r["first"] for r in regions.values())
        assert all(s["tasks"] > 0 and 0 <= s["first_cta"] < 8 for s in launch["stages"])
    weights = {s["name"]: s["weight_bytes"] for la in report["launches"] for s in la["stages"]}
    assert weights["wqkv_gemv"] == (128 + 256) * 256  # an e4m3 byte a weight
    assert report["scratch_bytes"] > 0
    for launch in report["launches"]:
        by_rows = report["chains"][launch["name"]]
        assert len(by_rows) == 20
        assert by_rows["8"] == launch["chain_length"]
        assert by_rows["1"] <= by_rows["20"]


def test_tables_name_the_form_and_the_reason(run) -> None:  # type: ignore[no-untyped-def]
    result = run("--set", "index=1", "--set", "ratio=1")
    assert result.exit_code == 0, result.output
    assert "critical chain" in result.output
    assert "crosses ranks" in result.output
    assert "all hold" in result.output


def test_the_barrier_form_marks_its_barriers(run) -> None:  # type: ignore[no-untyped-def]
    report = json.loads(run("--barriers", "--json").output)
    k1 = report["launches"][0]
    assert next(s["name"] for s in k1["stages"] if s["barrier_before"]) == "attn_seam_norm"
    assert {e["form"] for e in k1["hand_offs"]} <= {"barrier", "launch"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tokens", "99"), "tokens = 99 is not served"),
        (("--variant", "other"), "variant 'other' is not one of target, draft"),
        (("--set", "colour=1"), "'colour' is no build parameter"),
        (("--set", "index"), "write NAME=VALUE"),
        (("--set", "index=1"), "must satisfy"),
    ],
)
def test_bad_builds_are_refused(run, options: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    result = run(*options)
    assert result.exit_code == 2
    assert message in result.output
