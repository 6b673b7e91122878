"""A drawn sample of faults in the small layer's package: verification finds them. (`monoc mutate` runs many more.)"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from monoc.spec.program import Program
from monoc.verify.mutants.bench import Bundle
from monoc.verify.mutants.campaign import Campaign
from monoc.verify.mutants.operators import OPERATORS
from monoc.verify.mutants.outcome import Outcome, Verdict


@pytest.fixture(scope="module")
def campaign(program: Program, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Campaign([Bundle(program, folder, tmp_path_factory.mktemp("mutants"))], seed=2, orders=2)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_drawn_fault_is_found(campaign: Campaign, operator: str) -> None:
    outcomes: list[Outcome] = []
    campaign.run(1, outcomes.append, [operator])
    last = outcomes[-1]
    assert last.counts, [o.detail for o in outcomes]
    assert last.verdict is Verdict.KILLED, last.site
    assert last.check
    assert last.bench in last.ran
