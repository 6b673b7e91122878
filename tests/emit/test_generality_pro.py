"""Variations of V4-Pro by spec edits alone: they compile, are proved, and their launches fit the target."""

from __future__ import annotations

from pathlib import Path

from variants import edited_spec

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package

PRO = "dsv4_pro.yaml"
# Hidden 4096, 64 heads, 8 output groups, tp 4 and 8, top 512, 8 experts a token, two hops from 8 rows.
SMALLER = (
    (PRO, "hidden: 7168", "hidden: 4096"),
    (PRO, "heads: 128 / tp", "heads: 64 / tp"),
    (PRO, "groups: 16 / tp", "groups: 8 / tp"),
    (PRO, "  tp: 8\n", "  tp: [4, 8]\n"),
    (PRO, "picks: 1024}", "picks: 512}"),
    (PRO, "topk: 6", "topk: 8"),
    (PRO, "two_hop: tokens >= 42", "two_hop: tokens >= 8"),
)
# What the model's docking says of its deployment does not hold for another layer.
UNDOCKED = ((PRO, "docking: docking/dsv4_pro.yaml\n", ""),)


def package(folder: Path, *edits: tuple[str, str, str]) -> EmittedPackage:
    made = compile_spec(str(edited_spec(folder / "specs", PRO, (*edits, *UNDOCKED))))
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


def test_another_layer(tmp_path: Path) -> None:
    layer = package(tmp_path, *SMALLER)
    check_fits(layer, "k2", tokens=16, tp=4, ratio=4, hash_route=0)
    check_fits(layer, "k2", tokens=8, tp=8, ratio=128, picks=128, hash_route=1)


def test_a_smaller_grid(tmp_path: Path) -> None:
    check_fits(package(tmp_path, (PRO, "ctas: 256", "ctas: 240")), "k1", tokens=16, fold=1)


def test_a_grid_the_target_cannot_hold(tmp_path: Path) -> None:
    edits = ((PRO, "ctas: 256", "ctas: 304"), *UNDOCKED)
    (failure,) = compile_spec(str(edited_spec(tmp_path / "specs", PRO, edits))).proof.failures
    assert "cannot be resident on 256 compute units: give the spec's target at most 256 ctas" in failure.message
