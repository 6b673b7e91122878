"""The layer graph: typed operations and the values between them, one graph a launch."""

from monoc.graph.build import build_graphs
from monoc.graph.model import GraphError, LayerGraph, Operation

__all__ = ["GraphError", "LayerGraph", "Operation", "build_graphs"]
