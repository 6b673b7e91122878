"""The tiny layer's package, compiled once a session."""

from pathlib import Path

import pytest

from monoc.build.package import EmittedPackage
from monoc.compiler import Package, compile_spec
from monoc.emit.files import write_package

TINY = Path(__file__).parents[2] / "layer_specs" / "tiny.yaml"


@pytest.fixture(scope="session")
def tiny_package() -> Package:
    package = compile_spec(str(TINY))
    assert not package.proof.failures
    return package


@pytest.fixture(scope="session")
def tiny_folder(tiny_package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("emitted") / "tiny"
    write_package(folder, tiny_package.files)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> EmittedPackage:
    return EmittedPackage.load(tiny_folder)
