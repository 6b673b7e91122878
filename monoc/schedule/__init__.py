"""Stages placed, handed off and laid out: the Schedule, its printout ``plan.py`` and its proofs."""
