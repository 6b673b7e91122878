"""`mono_decode.py` of each spec with a docking section, beside a runner that only records."""

from __future__ import annotations

from pathlib import Path

import pytest
from docking.emitted import Docked
from docking.fakes import Host

SPECS = Path(__file__).parents[2] / "layer_specs"


@pytest.fixture(scope="session")
def v41_module() -> Docked:
    return Docked.load(SPECS / "dsv41.yaml")


@pytest.fixture(scope="session")
def pro_module() -> Docked:
    return Docked.load(SPECS / "dsv4_pro.yaml")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host.install(monkeypatch)


@pytest.fixture
def v41(v41_module: Docked, host: Host) -> Docked:
    v41_module.restart()
    host.tp = 4
    return v41_module


@pytest.fixture
def pro(pro_module: Docked, host: Host) -> Docked:
    pro_module.restart()
    host.tp = 8
    return pro_module
