"""Another layer by spec edits alone: it compiles, is proved, and its launches fit the target."""

import pytest
from variants import OTHER_LAYER, edited_spec

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> EmittedPackage:
    folder = tmp_path_factory.mktemp("other")
    package = compile_spec(str(edited_spec(folder / "specs", "dsv41.yaml", OTHER_LAYER)))
    assert not package.proof.failures
    write_package(folder / "other", package.files)
    return EmittedPackage.load(folder / "other")


@pytest.mark.parametrize("launch", ["k1", "k2", "ffn"])
@pytest.mark.parametrize("tokens", [1, 17])
def test_launches_fit(other: EmittedPackage, launch: str, tokens: int) -> None:
    b = next(b for name, b in other.kernels(tokens=(tokens,), variant=("target",), ratio=(2,)) if name == launch)
    resources = other.compile(launch, b).resources
    assert (resources.scratch_bytes, resources.vgpr_spills) == (0, 0)
    assert resources.vgprs <= 256
    assert resources.lds_bytes <= 160 * 1024
