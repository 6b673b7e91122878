"""Variations of V4-Pro by spec edits alone: they compile, are proved, and their launches fit the target. Those with
small sizes run in tests/verify/test_verify_variants.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from variants import OTHER_PRO, edited_spec

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.diagnostics import CompileErrors
from monoc.emit.files import write_package

PRO = "dsv4_pro.yaml"
UNDOCKED = OTHER_PRO[-1]


def package(folder: Path, *edits: tuple[str, str, str]) -> EmittedPackage:
    made = compile_spec(str(edited_spec(folder / "specs", PRO, edits)))
    assert not made.proof.failures
    write_package(folder / "layer", made.files)
    return EmittedPackage.load(folder / "layer")


def check_fits(layer: EmittedPackage, launch: str, **fixed: int) -> None:
    values = {name: (value,) for name, value in fixed.items()}
    b = next(b for name, b in layer.kernels(**values) if name == launch)
    resources = layer.compile(launch, b).resources
    assert (resources.scratch_bytes, resources.vgpr_spills) == (0, 0)
    assert resources.vgprs <= 256
    assert resources.lds_bytes <= 160 * 1024


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> EmittedPackage:
    return package(tmp_path_factory.mktemp("other_pro"), *OTHER_PRO)


@pytest.mark.parametrize(
    ("launch", "build"),
    [
        ("k1", {"tokens": 1, "tp": 4, "ratio": 4}),
        ("k2", {"tokens": 1, "tp": 4, "ratio": 4, "hash_route": 0}),
        ("k2", {"tokens": 16, "tp": 4, "ratio": 4, "hash_route": 0}),
        ("k1", {"tokens": 8, "tp": 8, "ratio": 128, "picks": 128}),
        ("k2", {"tokens": 8, "tp": 8, "ratio": 128, "picks": 128, "hash_route": 1}),
    ],
    ids=lambda v: v if isinstance(v, str) else "-".join(f"{n}{x}" for n, x in v.items()),
)
def test_another_layer(other: EmittedPackage, launch: str, build: dict[str, int]) -> None:
    check_fits(other, launch, **build)


def test_a_smaller_grid(tmp_path: Path) -> None:
    layer = package(tmp_path, (PRO, "ctas: 256", "ctas: 240"), UNDOCKED)
    check_fits(layer, "k1", tokens=16, fold=1)
    check_fits(layer, "k2", tokens=1, fold=1, ratio=4, hash_route=0)


def test_a_grid_the_target_cannot_hold(tmp_path: Path) -> None:
    edits = ((PRO, "ctas: 256", "ctas: 304"), UNDOCKED)
    with pytest.raises(CompileErrors) as caught:
        compile_spec(str(edited_spec(tmp_path / "specs", PRO, edits)))
    (only,) = caught.value.diagnostics
    assert only.message == "`ctas` is 304"
    help_line = "at most 256: CTAs wait for each other, so each needs one of gfx950's 256 compute units"
    assert help_line in caught.value.render()
