"""A runner with a wait limit: the same bits where nothing is missing; where something is, every rank says what."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from verify.planting import planted

from monoc.build.package import EmittedPackage
from monoc.spec.program import Program
from monoc.verify.cells import Cell, Kind
from monoc.verify.drive import Driver
from monoc.verify.report import explain
from monoc.verify.verify import Verifier

LIMIT = 50  # microseconds of a wave's own time: some 30,000 instructions


class AbsentError(Exception):
    """A rank does not start."""


def limited(kind: Any, errors: dict[int, Any], absent: int | None = None, limit: int = LIMIT) -> Any:
    """The runner class ``kind`` with a wait limit; what a rank's check raises goes to ``errors`` too."""

    class Limited(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, wait_limit=limit, **options)

        def check_waits(self) -> None:
            try:
                super().check_waits()
            except RuntimeError as error:
                errors[self.rank] = error
                raise

        def _launch(self, name: str, b: Any) -> Any:
            if self.rank == absent:
                raise AbsentError
            return super()._launch(name, b)

    return Limited


def stopped(
    program: Program, folder: Path, kind: Kind, tp: int, barriers: bool = False, absent: int | None = None
) -> Any:
    """The WaitTimeoutError of each rank in one step of 3 rows; each refuses the next step with it."""
    errors: dict[int, Any] = {}
    package = EmittedPackage.load(folder)
    error = package.part("waits").WaitTimeoutError
    torch.set_num_threads(1)
    with Driver(program, package) as driver:
        driver.runner_class = limited(driver.runner_class, errors, absent)
        driver._simulated(tp)[0].simulator.threads = 1  # one order of events, however busy the machine is
        cell = Cell(kind, (3,), tp, seed=7, barriers=barriers)
        verifier = Verifier(driver)
        entry = next(e for e in program.entries if e.name == kind.entry)
        (build,) = cell.builds(program)
        with driver.session(cell, verifier._weights_of(cell)) as session:
            with pytest.raises((error, AbsentError)):
                session.step(verifier._inputs(cell, entry, 0, build))
            runners = session.watch.runners

            def again(rank: int) -> None:
                with pytest.raises(error) as checked:
                    runners[rank].check_waits()
                with pytest.raises(error) as refused:
                    getattr(runners[rank], entry.name)(None, **dict.fromkeys(entry.arguments))
                assert refused.value is checked.value

            session.host.run(again)
    assert sorted(errors) == list(range(tp))
    return [errors[rank] for rank in range(tp)]


def places(error: Any) -> list[tuple[int, str, str]]:
    return [(m.rank, m.place.stage, m.place.region) for m in error.missed]


@pytest.mark.parametrize(
    ("name", "tp", "barriers"),
    [("ratio2-index", 2, False), ("ffn", 4, True)],
)
def test_the_same_bits(
    program: Program, package: EmittedPackage, cache: Path, kind_of: dict[str, Kind], name: str, tp: int, barriers: bool
) -> None:
    cell = Cell(kind_of[name], (3, 3), tp, seed=5, barriers=barriers)
    bits = []
    for limit in (None, 100_000):
        with Driver(program, package, cache) as driver:
            if limit is not None:
                driver.runner_class = limited(driver.runner_class, {}, limit=limit)
            result = Verifier(driver).run(cell)
        assert result.good, "\n".join(explain(result))
        bits.append(result.bits)
    assert bits[0] == bits[1]


DROPPED_PUT = ("ffn.py", r"\n( +)to_row\.put\(", r"\n\1if task != 0: to_row.put(")


@pytest.mark.parametrize("tp", [1, 2])
def test_a_dropped_put(program: Program, folder: Path, kind_of: dict[str, Kind], tmp_path: Path, tp: int) -> None:
    errors = stopped(program, planted(folder, tmp_path / "tiny", *DROPPED_PUT), kind_of["ffn"], tp)
    for rank, error in enumerate(errors):
        assert places(error) == [(r, "ffn_seam_norm", "region h_row") for r in range(tp)]
        assert [(m.place.launch, m.awaited, m.seen) for m in error.missed] == [("ffn", 2, 0)] * tp
        assert error.missed == errors[0].missed
        assert re.match(
            rf"rank {rank}: a launch was stopped, a wait took longer than {LIMIT} us: rank 0, launch ffn, stage "
            r"ffn_seam_norm, CTA \d and \d more: waited \d+ us for region h_row, tag awaited 0x2, tag seen 0x0 "
            r"\(never written\); probably stage ffn_seam_slice of the same rank did not announce what it made",
            str(error),
        )
        assert "make a new one on every rank" in str(error)


def test_a_dropped_flag(program: Program, folder: Path, kind_of: dict[str, Kind], tmp_path: Path) -> None:
    faulty = planted(folder, tmp_path / "tiny", "k2.py", r"to_table\.done\(cta, task\)", "pass")
    (error,) = stopped(program, faulty, kind_of["ratio2-index"], 1)
    assert {(m.place.launch, m.place.region) for m in error.missed} == {("k2", "region keys_table")}
    assert error.missed[0].place.stage == "o_split"
    assert error.missed[0].place.writers == ("key_table",)


@pytest.mark.parametrize(
    ("region", "stage", "writer"),
    [("attn_ranks", "ffn_seam_slice", "part_push"), ("out_ranks", "out_reduce", "w2_experts")],
)
def test_a_rank_that_is_told_nothing(
    program: Program, folder: Path, kind_of: dict[str, Kind], tmp_path: Path, region: str, stage: str, writer: str
) -> None:
    # rank 1 gets everything; what it made of the last region was all it had to do
    faulty = planted(
        folder, tmp_path / "tiny", "ffn.py", rf'mail\["{region}"\]', rf'mail["{region}"].owned(fx.Int32(1))'
    )
    for error in stopped(program, faulty, kind_of["ffn"], 2):
        assert places(error) == [(0, stage, f"region {region}")]
        assert error.missed[0].place.writers == (writer,)
        assert "another rank does not run this step" in str(error)


def test_a_rank_that_does_not_start(program: Program, folder: Path, kind_of: dict[str, Kind]) -> None:
    for error in stopped(program, folder, kind_of["ffn"], 2, absent=1):
        assert places(error) == [(0, "ffn_seam_slice", "region attn_ranks")]


def test_a_mark_that_is_not_made(program: Program, folder: Path, kind_of: dict[str, Kind], tmp_path: Path) -> None:
    faulty = planted(
        folder, tmp_path / "tiny", "device.py", r"marks \+ cta\.bid, fx\.Int32\(tag\)", "marks, fx.Int32(tag)"
    )
    (error,) = stopped(program, faulty, kind_of["ffn"], 1)
    assert places(error) == [(0, "the launch's end", "the epoch's marks")]
    assert error.missed[0].ctas == (0,)


def test_a_rank_whose_epoch_does_not_end(
    program: Program, folder: Path, kind_of: dict[str, Kind], tmp_path: Path
) -> None:
    # rank 1's CTAs mark another tag: its very last wait, when rank 0 has long done its own
    faulty = planted(
        folder, tmp_path / "tiny", "ffn.py", r"(mark_epoch\(cta, [^)]*), tag\)", r'\1, tag - fx.Int32(args["rank"]))'
    )
    for error in stopped(program, faulty, kind_of["ffn"], 2):
        assert places(error) == [(1, "the launch's end", "the epoch's marks")]
        assert (error.missed[0].awaited, error.missed[0].seen) == (2, 1)


def test_a_grid_barrier_that_a_cta_does_not_raise(
    program: Program, folder: Path, kind_of: dict[str, Kind], tmp_path: Path
) -> None:
    faulty = planted(
        folder, tmp_path / "tiny", "device.py", r"store\(pairs, 2 \* cta\.bid,", "store(pairs, 2 * fx.min(cta.bid, 6),"
    )
    (error,) = stopped(program, faulty, kind_of["ffn"], 1, barriers=True)
    assert [m.place.region for m in error.missed] == ["the grid barrier"]
    assert error.missed[0].ctas[0] == 0
