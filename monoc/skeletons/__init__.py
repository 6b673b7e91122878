"""Skeletons: the fixed device code of each kind of stage (docs/architecture.md, "Skeletons")."""
