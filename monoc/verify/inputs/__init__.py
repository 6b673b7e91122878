"""Seeded inputs of a verification: weights in the layouts they are loaded in, activations, caches, tables."""
