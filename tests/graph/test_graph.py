"""The layer graph and its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from monoc.cli import make_app
from monoc.graph import GraphError, LayerGraph, Operation, build_graphs
from monoc.graph.draw import dot, mermaid
from monoc.spec.buildexpr import TRUE
from monoc.spec.load import load_program

SPEC = str(Path(__file__).parents[2] / "layer_specs" / "tiny.yaml")


@pytest.fixture(scope="module")
def graphs() -> tuple[LayerGraph, ...]:
    return build_graphs(load_program(SPEC))


def test_one_graph_a_launch(graphs: tuple[LayerGraph, ...]) -> None:
    assert [g.launch for g in graphs][:2] == ["k1", "k2"]
    assert len(graphs) == 3


def test_a_value_may_have_a_producer_a_guard(graphs: tuple[LayerGraph, ...]) -> None:
    made = graphs[0].producers("res_mid")
    assert [str(op.guard) for op in made] == ["fold", "not fold"]
    assert len({op.name for op in made}) == 2


def test_outputs_are_what_somebody_else_reads(graphs: tuple[LayerGraph, ...]) -> None:
    assert {"y", "q_lat", "q", "res_mid"} <= set(graphs[0].outputs)
    assert "attn_seam.h" not in graphs[0].outputs
    assert "out" in graphs[1].outputs


def test_order_is_producers_first(graphs: tuple[LayerGraph, ...]) -> None:
    for graph in graphs:
        seen: set[str] = set()
        for op in graph.topological():
            assert all(p.name in seen or p.name == op.name for v in op.reads for p in graph.producers(v))
            seen.add(op.name)


def test_a_cycle_names_two_operations(graphs: tuple[LayerGraph, ...]) -> None:
    some = graphs[0].operations[0].statement
    a = Operation("a", "map", some, TRUE, ("y",), ("x",))
    b = Operation("b", "map", some, TRUE, ("x",), ("y",))
    with pytest.raises(GraphError, match="each need the other's value"):
        LayerGraph("k1", (a, b), {}).topological()


def test_pictures_show_every_operation_and_value(graphs: tuple[LayerGraph, ...]) -> None:
    drawn, flow = dot(graphs), mermaid(graphs)
    for graph in graphs:
        assert f"cluster_{graph.launch}" in drawn
        assert all(op.name in drawn and op.name in flow for op in graph.operations)
    assert drawn.count("->") == sum(1 for g in graphs for _ in g.edges()) == flow.count("-->")
    assert "when fold" in drawn


def test_the_command() -> None:
    app = make_app(["graph"])
    whole = CliRunner().invoke(app, ["graph", SPEC])
    assert whole.exit_code == 0
    assert whole.output.startswith("digraph layer {")
    one = CliRunner().invoke(app, ["graph", SPEC, "--format", "mermaid", "--launch", "k1"])
    assert one.output.startswith("flowchart TB")
    assert "subgraph k2" not in one.output
    none = CliRunner().invoke(app, ["graph", SPEC, "--launch", "k9"])
    assert none.exit_code == 2
    assert "no launch 'k9'" in none.output
