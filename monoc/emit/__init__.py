"""Emission: a schedule printed as a stand-alone package (docs/architecture.md)."""
