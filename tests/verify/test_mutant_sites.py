"""Where faults may be seeded: all of the emitted text, and what is left out by rule."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from monoc.verify.mutants.operators import OPERATORS, sites
from monoc.verify.mutants.source import Site, Source

TEXT = """
import flydsl.expr as fx

from . import plan
from .device import run_tasks


def row_fold(a, b):
    return bf16_round(fma(a, b, a))


def stage(cta, b, lds, from_row, to_out, to_more, at_scale, task):
    weight = load(at_scale, 0)
    from_row.wait(cta, 0, b.tokens)
    x = from_row.get([(task * 4, 4)])
    y = [row_fold(v, weight) for v in x]
    z = [bf16_round(v) for v in y]
    to_out.put(task * 4, pack_row(z))
    to_out.done(cta, task)
    to_more.done(cta, task)


def build_k9(b):
    def k9():
        if const_expr(b.timeline):
            stamp(cta, args["timeline"], 3 * task)
        run_tasks(cta, lambda task: stage(cta, b, None, mail["row"], mail["out"], mail["more"], args["s"], task))
"""


@pytest.fixture(scope="module")
def source() -> Source:
    return Source("k9.py", TEXT.encode())


@pytest.fixture(scope="module")
def across() -> Source:
    """The same with a region in peer memory."""
    return Source("k9.py", TEXT.encode(), frozenset({"out"}))


def faults(source: Source, operator: str) -> list[Site]:
    return [site for site in sites(source) if site.operator == operator]


def applied(source: Source, site: Site) -> str:
    text = site.apply(source.data).decode()
    ast.parse(text)
    return text


def test_regions_are_followed_from_the_launch_into_the_stages(source: Source) -> None:
    assert source.regions["stage"] == {
        "from_row": frozenset({"row"}), "to_out": frozenset({"out"}), "to_more": frozenset({"more"}),
    }  # fmt: skip


def test_hand_offs_are_dropped_one_at_a_time(source: Source) -> None:
    found = faults(source, "hand-off dropped")
    assert [s.what.split("(")[0] for s in found] == [
        "no from_row.wait",
        "no to_out.put",
        "no to_out.done",
        "no to_more.done",
    ]
    assert [s.form for s in found] == ["flag", "", "flag", "flag"]
    assert found[0].regions == {"row"}
    assert "from_row.wait" not in applied(source, found[0])


def test_a_second_announcement_drains_nothing(source: Source) -> None:
    (found,) = faults(source, "wait for stores removed")
    assert found.what.startswith("to_out.done")
    assert 'instead(_device, "drain_and_meet"' in applied(source, found)


def test_peer_regions_lose_either_bit(across: Source) -> None:
    bits = Counter(s.what.split(" in ")[0] for s in faults(across, "scope bit removed"))
    assert bits["to_out without sc0"] == bits["to_out without sc1"] == 1  # not where it is announced: that does nothing
    assert bits["from_row without sc1"] == 2
    assert not bits["from_row without sc0"]
    assert not [s for s in sites(across) if s.what.startswith(("no to_out.done", "to_out.done"))]
    assert faults(across, "wrong peer offset")


def test_what_is_packed_anyway_may_stay_unrounded(source: Source) -> None:
    found = [s.what for s in faults(source, "wrong rounding")]
    assert "bf16_round(v) not rounded" not in found
    assert "pack_row(z): bf16_pack towards zero" not in found
    assert "fma(a, b, a) not fused" in found
    assert "bf16_round(fma(a, b, a)) towards zero" in found


def test_clock_stamps_are_left_alone(source: Source) -> None:
    assert not [s for s in sites(source) if "3 * task" in s.what]
    assert [s for s in faults(source, "off-by-one tile") if s.what == "task + 1 in task * 4"]


@pytest.mark.parametrize("layer", ["tiny", "tiny_pro"])
def test_every_operator_has_sites_that_parse(layer: str) -> None:
    folder = Path(__file__).parents[2] / "generated" / layer
    found: Counter[str] = Counter()
    for file in sorted(folder.glob("*.py")):
        if file.stem not in ("k1", "k2", "ffn", "device", "plan"):
            continue
        made = Source(file.name, file.read_bytes(), frozenset({"attn_ranks", "out_ranks"}))
        for site in sites(made):
            found[site.operator] += 1
            assert made.data[site.start : site.end].decode() != site.text
        ast.parse(site.apply(made.data))
    assert set(found) == set(OPERATORS)
    assert all(count >= 30 for count in found.values()), found
