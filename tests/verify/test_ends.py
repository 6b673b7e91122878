"""Outputs end to end: what the layer's own noise explains and what it does not."""

import pytest
import torch

from monoc.reference.noise import Reordered
from monoc.spec.program import Entry, Program
from monoc.verify.cells import Kind
from monoc.verify.ends import TIMES, compare_ends, reroutes
from monoc.verify.inputs.step import Contexts, make_step
from monoc.verify.inputs.weights import Weights
from monoc.verify.noise import Ends, Picks, run_ends

TOKENS = 5


@pytest.fixture(scope="module")
def entry(program: Program) -> Entry:
    return program.entries[0]


@pytest.fixture(scope="module")
def ends(program: Program, entry: Entry, kind_of: dict[str, Kind]) -> Ends:
    build = kind_of["ratio2"].build(program, TOKENS, 2)
    assert build is not None
    env = program.environment(build)
    inputs = make_step(program, entry, env, 2, 1, Contexts(padded=(3,)))
    return run_ends(program, entry, build, inputs, Weights(program, env, 2, 1), 1)


def test_runs_differ_by_noise_only(ends: Ends) -> None:
    out = ends.outputs["out"]
    assert len(out) >= 3
    for run in out[1:]:
        apart = (run - out[0]).norm(dim=1) / out[0].norm(dim=1)
        assert 0 < float(apart.max()) < 0.3
    assert not torch.equal(out[1], out[2])


def test_the_first_run_is_the_stated_one(program: Program, entry: Entry, kind_of: dict[str, Kind], ends: Ends) -> None:
    build = kind_of["ratio2"].build(program, TOKENS, 2)
    assert build is not None
    env = program.environment(build)
    inputs = make_step(program, entry, env, 2, 1, Contexts(padded=(3,)))
    weights = Weights(program, env, 2, 1)
    again = run_ends(program, entry, build, inputs, weights, 2)
    for name, runs in ends.outputs.items():
        assert torch.equal(runs[0], again.outputs[name][0])
    assert not torch.equal(ends.outputs["out"][1], again.outputs["out"][1])


def test_a_kernel_as_noisy_as_the_runs_is_good_one_off_is_not(program: Program, entry: Entry, ends: Ends) -> None:
    none = torch.zeros(TOKENS, dtype=torch.bool)
    kernel = {n: runs[1] for n, runs in ends.outputs.items()}
    near = compare_ends(program, entry, kernel, ends, none)
    assert all(e.good for e in near.values())
    for name, runs in ends.outputs.items():
        assert near[name].limit == pytest.approx(TIMES * near[name].noise, abs=2**-8)
        off = dict(kernel)
        off[name] = runs[0].clone()
        off[name][2] *= 1 + 1.01 * near[name].limit
        found = compare_ends(program, entry, off, ends, none)[name]
        assert not found.good
        assert found.token == 2
    off = {**kernel, "out": torch.full_like(kernel["out"], torch.nan)}
    assert not compare_ends(program, entry, off, ends, none)["out"].good


def test_only_values_behind_the_route_are_left_out(program: Program, entry: Entry, ends: Ends) -> None:
    rerouted = torch.arange(TOKENS) == 1
    off = {n: runs[0].clone() for n, runs in ends.outputs.items()}
    off["out"][1] += 100
    assert compare_ends(program, entry, off, ends, rerouted)["out"].good
    off["residual_out"][1] += 100
    assert not compare_ends(program, entry, off, ends, rerouted)["residual_out"].good


def test_other_picks_want_near_keys() -> None:
    keys = torch.tensor([[[4.0, 3.0, 2.999, 1.0]], [[4.001, 3.0, 3.0, 1.0]]])
    picks = Picks(torch.tensor([[[0, 1]], [[0, 1]]]), keys)
    ends = Ends({}, {"ids": picks})
    assert reroutes({"ids": torch.tensor([[1, 0]])}, ends, 1).tokens.tolist() == [False]
    near = reroutes({"ids": torch.tensor([[0, 2]])}, ends, 1)
    assert near.tokens.tolist() == [True]
    assert near.unexplained == ()
    for far in ([0, 3], [1, 2], [0, 0], [0, 7]):
        assert reroutes({"ids": torch.tensor([far])}, ends, 1).unexplained == (0,), far
    given = Ends({}, {"ids": Picks(picks.ids, None)})
    assert reroutes({"ids": torch.tensor([[0, 2]])}, given, 1).unexplained == (0,)


def test_chunks_cover_every_key() -> None:
    reordered = Reordered(0, torch.Generator().manual_seed(3))
    for keys in (1, 2, 63, 64, 65, 640):
        at = [k for chunk in reordered.chunks(keys) for k in range(keys)[chunk]]
        assert at == list(range(keys))
