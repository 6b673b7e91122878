"""monoc: a compiler for mono kernels (see docs/architecture.md)."""

__all__ = ["__version__"]

__version__ = "0.1.0"
