"""What places of bf16 values that are in no memory make of the values behind them."""

from typing import Any

import pytest
import torch

from monoc.reference.formats import Mx
from monoc.reference.interpret import Both, Reference
from monoc.spec.program import Program, Statement
from monoc.verify.cells import Kind
from monoc.verify.inputs.step import Contexts, make_step
from monoc.verify.inputs.weights import Weights
from monoc.verify.reach import place, reach, roundings
from monoc.verify.regions import Seen
from monoc.verify.stages import StageCheck


def test_a_place_is_the_distance_of_bf16_neighbours() -> None:
    x = torch.tensor([1.0, 1.5, 0.255859375, -7.0, 2.0**-100])
    assert place(x).tolist() == [2**-7, 2**-7, 2**-9, 2**-5, 2**-107]
    up = (x.to(torch.bfloat16).view(torch.int16) + 1).view(torch.bfloat16).float()
    assert torch.equal(x.abs() + place(x), up.abs())
    assert place(torch.tensor([0.0, torch.nan, torch.inf])).tolist() == [0, 0, 0]


def test_reach_takes_the_worst_of_the_signs() -> None:
    def difference(rank: int, values: Any) -> torch.Tensor:
        pairs = values["x"].reshape(-1, 2)
        return pairs[:, 0] - pairs[:, 1]  # equal moves cancel

    x = (torch.tensor([3.0, 1.0, 5.0, 5.0]),)
    moved = {"x": (torch.tensor([0.5, 0.25, 0.0, 0.125]),)}
    (found,) = reach(difference, [torch.tensor([2.0, 0.0])], moved, {"x": x})
    assert found.tolist() == [0.75, 0.125]


def test_a_rounding_on_the_way_counts_by_its_own_place() -> None:
    terms = torch.tensor([[200.0], [-199.0], [0.5]])

    def rounded_sum(rank: int, values: Any, rounded: Any) -> torch.Tensor:
        total = rounded(terms[0])
        for term in terms[1:]:
            total = rounded(total + term)
        return total

    (found,) = roundings(rounded_sum, [torch.tensor([1.5])])
    assert found.tolist() == [1.0]  # the place of 200, not of 1.5


def test_what_is_followed(program: Program, kind_of: dict[str, Kind]) -> None:
    """Roundings behind sums, through elementwise statements; no sums, integers and what has the same bits."""
    (entry,) = (e for e in program.entries if e.name == "ffn")
    build = kind_of["ffn"].build(program, 3, 1)
    assert build is not None
    env = program.environment(build)
    weights = Weights(program, env, 1, 5)
    given = [{**weights.tensors[0], **make_step(program, entry, env, 1, 5, Contexts()).tensors[0]}]
    weights.materialise(range(16))
    check = StageCheck(program, {}, {}, env)
    Reference(program, build).run(entry, given, observer=check)
    ends = {n.rpartition(".")[2] for n in check.off}
    assert {"shared_gate", "shared_up", "a", "routed", "m", "moe_part"} <= ends
    assert not ends & {"logit", "ids", "down", "down_mxfp8", "mix", "residual_out"}
    (routed,) = (n for n in check.off if n.endswith("moe.routed"))
    off, value = check.off[routed][0], check.hidden[routed][0]
    assert (off >= place(value)).all()
    assert (off > place(value)).any()


@pytest.mark.parametrize(("places", "good"), [(1.0, True), (6.0, False)])
def test_a_gate_that_was_rounded_to_a_neighbour(
    program: Program, kind_of: dict[str, Kind], places: float, good: bool
) -> None:
    """The shared experts' activation, where the gate is steep: three places for one of the gate."""
    (entry,) = (e for e in program.entries if e.name == "ffn")
    build = kind_of["ffn"].build(program, 3, 1)
    assert build is not None
    env = program.environment(build)
    weights = Weights(program, env, 1, 5)
    given = [{**weights.tensors[0], **make_step(program, entry, env, 1, 5, Contexts()).tensors[0]}]
    kernel: dict[str, torch.Tensor] = {}

    def other(name: str, statement: Statement, both: Both) -> list[Any] | None:
        value = both.stated[0]
        if name.endswith(".shared_gate"):
            steep = value == value.min()  # one element
            return [value + torch.where(steep, places * place(value), 0.0)]
        if isinstance(value, torch.Tensor):
            kernel[name] = value.clone()
        return None

    reference = Reference(program, build)
    reference.run(entry, given, observer=other)
    (name,) = (n for n in kernel if n.endswith("moe.a"))
    check = StageCheck(program, {name: Seen(name, (kernel[name],), "memory")}, {}, env)
    reference.run(entry, given, observer=check)
    (found,) = check.findings
    assert found.difference.share > 0
    assert found.difference.good is good
    assert not isinstance(kernel[name], Mx)
