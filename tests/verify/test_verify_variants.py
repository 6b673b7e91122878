"""Layers made by editing the small V4-Pro spec run and are right, on four and eight ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from variants import OTHER_TINY_PRO, edited_spec

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package
from monoc.spec.load import load_program
from monoc.verify.cells import Cell, kinds
from monoc.verify.drive import Driver
from monoc.verify.report import explain
from monoc.verify.verify import Verifier


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    folder = tmp_path_factory.mktemp("variant")
    spec = edited_spec(folder / "specs", "tiny_pro.yaml", OTHER_TINY_PRO)
    made = compile_spec(str(spec))
    assert not made.proof.failures, made.proof.failures
    write_package(folder / "layer", made.files)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Driver(load_program(str(spec)), EmittedPackage.load(folder / "layer")) as driver:
        yield Verifier(driver)
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("tp", "turns"), [(4, ("forward", "hca-picks32")), (8, ("hash_route", "forward"))])
def test_variant_runs(verifier: Verifier, tp: int, turns: tuple[str, str]) -> None:
    """9 rows take two hops, one row one."""
    found = {k.name: k for k in kinds(verifier.program, verifier.driver.runner_class)}
    first, second = (found[n] for n in turns)
    result = verifier.run(Cell(first, (9, 1), tp, seed=3, turns=(second,)))
    assert result.good, "\n".join(explain(result))
