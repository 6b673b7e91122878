"""Functional simulator of gfx950 assembly (see docs/simulator.md)."""
