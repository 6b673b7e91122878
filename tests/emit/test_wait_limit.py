"""The wait limit in the emitted launches: every wait has it when it is on, nothing is there when it is off."""

import re
from pathlib import Path
from typing import Any

import pytest

import monoc
from monoc.build.package import EmittedPackage

ROOT = Path(monoc.__file__).parent


def build(package: EmittedPackage, launch: str, **fixed: int) -> Any:
    wanted = {"tokens": (3,), "tp": (2,), **{name: (value,) for name, value in fixed.items()}}
    return next(b for name, b in package.kernels(**wanted) if name == launch)


def loops(text: str) -> list[str]:
    """The waiting loops: from the label a loop comes back to, up to the jump back, around an ``s_sleep``."""
    lines = text.splitlines()
    label = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\.LBB\d+_\d+):", line))}
    found = []
    for at, line in enumerate(lines):
        if "s_sleep" in line:
            back = next(
                (label[m[1]], i)
                for i, later in enumerate(lines)
                if i > at and (m := re.search(r"s_c?branch\S* (\.LBB\d+_\d+)", later)) and label[m[1]] <= at
            )
            found.append("\n".join(lines[back[0] : back[1]]))
    return found


@pytest.mark.parametrize(("launch", "barriers"), [("k1", False), ("ffn", False), ("ffn", True)])
def test_every_wait_reads_the_clock_only_where_there_is_a_limit(
    tiny: EmittedPackage, launch: str, barriers: bool
) -> None:
    b = tiny.plan.with_flags(build(tiny, launch), barriers=barriers)
    off = tiny.compile(launch, b)
    on = tiny.compile(launch, tiny.plan.with_flags(b, wait_limit=1000))
    assert "s_memrealtime" not in off.text
    assert off.text.count("ASMSTART\n\ts_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_endpgm") == 0
    assert len(loops(off.text)) >= 2
    assert all("s_memrealtime" in loop for loop in loops(on.text))
    # the limited launch has a few waits more: the steps' ends on all CTAs and ranks
    assert len(loops(on.text)) >= len(loops(off.text))
    assert on.resources.lds_bytes == off.resources.lds_bytes + 4
    for resources in (off.resources, on.resources):
        assert not resources.scratch_bytes
        assert not resources.vgpr_spills
        assert not resources.sgpr_spills
    assert on.symbol == f"{off.symbol}_wait1000"


def test_limits_are_checked(tiny: EmittedPackage) -> None:
    b = build(tiny, "ffn")
    assert tiny.plan.health(b, "ffn") is None
    with pytest.raises(ValueError, match="wait_limit = 20000001 is not between 0 and 20000000 microseconds"):
        tiny.plan.with_flags(b, wait_limit=20_000_001)
    with pytest.raises(ValueError, match="wait_limit = -1"):
        tiny.plan.with_flags(b, wait_limit=-1)


def test_health_words_do_not_overlap(tiny: EmittedPackage) -> None:
    for tp in (1, 2, 4):
        b = tiny.plan.with_flags(build(tiny, "ffn", tp=tp), wait_limit=5)
        h = tiny.plan.health(b, "ffn")
        assert h.byte >= tiny.plan.peer_bytes(tp)
        assert h.stop < h.ended
        assert h.ended + tp <= h.records
        assert h.records + tp * h.grid * h.record_words <= h.marks
        assert h.ticks == 500


def test_places_have_names(tiny: EmittedPackage) -> None:
    plan = tiny.plan
    launches, regions = list(plan.LAUNCHES), list(plan.ffn_regions(build(tiny, "ffn")))
    stages = plan.STAGES["ffn"]
    at = launches.index("ffn")
    place = plan.wait_place(at, stages.index("ffn_seam_norm"), regions.index("h_row"))
    assert place == ("ffn", "ffn_seam_norm", "region h_row", ("ffn_seam_slice",), False, stages.index("ffn_seam_slice"))
    assert plan.wait_place(at, len(stages), -2) == ("ffn", "the launch's end", "the epoch's marks", (), False, -1)
    assert plan.wait_place(at, 3, -1)[5] == 2


def test_ctas_meet_by_one_function() -> None:
    """A bare barrier would let a CTA go on that has lost a wave; a sleep elsewhere would be a wait without a limit."""
    sources = [*ROOT.glob("device/*.py"), *ROOT.glob("skeletons/templates/*.j2"), *ROOT.glob("emit/templates/*.j2")]
    barriers = {p.name: p.read_text().count("gpu.barrier(") for p in sources if "gpu.barrier(" in p.read_text()}
    assert barriers == {"cta.py": 1}
    sleeps = {p.name for p in sources if "s_sleep" in p.read_text()}
    assert sleeps == {"handoff.py", "epoch.py"}
