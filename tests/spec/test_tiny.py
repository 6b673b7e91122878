"""layer_specs/tiny.yaml is the same layer, small."""

from __future__ import annotations

from pathlib import Path

from monoc.spec.load import load_program

SPECS = Path(__file__).parents[2] / "layer_specs"


def test_same_program_as_the_large_layer() -> None:
    tiny, full = (load_program(str(SPECS / f"{name}.yaml")) for name in ("tiny", "dsv41"))
    assert list(tiny.launch) == list(full.launch)
    for a, b in zip(tiny.launch.values(), full.launch.values(), strict=True):
        assert [(s.results, s.scope, str(s.guard)) for s in a.statements] == [
            (s.results, s.scope, str(s.guard)) for s in b.statements
        ]
    assert tiny.space.params[1].values == (1, 2, 4)
    assert tiny.digest != full.digest


def test_every_build_has_sizes() -> None:
    tiny = load_program(str(SPECS / "tiny.yaml"))
    for build in tiny.space.builds():
        env = tiny.environment(build)
        assert all(d.expr.evaluate(env) >= 1 for d in tiny.dims)
