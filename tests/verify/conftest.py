"""The small layer, emitted once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package
from monoc.spec.load import load_program
from monoc.spec.program import Program
from monoc.verify.cells import Kind, kinds
from monoc.verify.drive import Driver

SPEC = Path(__file__).parents[2] / "layer_specs" / "tiny.yaml"


@pytest.fixture(scope="session")
def program() -> Program:
    return load_program(str(SPEC))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emitted package."""
    package = compile_spec(str(SPEC))
    assert not package.proof.failures, package.proof.failures
    made = tmp_path_factory.mktemp("verify") / "tiny"
    write_package(made, package.files)
    return made


@pytest.fixture(scope="session")
def package(folder: Path) -> EmittedPackage:
    return EmittedPackage.load(folder)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled kernels are kept."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def driver(program: Program, package: EmittedPackage, cache: Path) -> Iterator[Driver]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Driver(program, package, cache) as made:
        yield made
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def kind_of(program: Program, package: EmittedPackage) -> dict[str, Kind]:
    """Every kind of the layer by name."""
    runner = getattr(package.part("runner"), program.runner.class_name)
    return {k.name: k for k in kinds(program, runner)}
