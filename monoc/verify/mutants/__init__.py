"""Faults seeded into emitted packages: is there one that verification does not find?"""
