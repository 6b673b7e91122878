"""Passes: from a program's graphs to the stages of its launches, one pass a file."""
