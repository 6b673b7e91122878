"""Functional simulator of gfx950 assembly (see docs/simulator.md)."""

from monoc.sim.errors import AsmError, Finding, HangError, SimulationError, SimulatorError, UsageError, WaitingGroup
from monoc.sim.observe import Observations, Report
from monoc.sim.program import Program, load_program
from monoc.sim.simulator import Checks, Launch, Simulator

__all__ = [
    "AsmError",
    "Checks",
    "Finding",
    "HangError",
    "Launch",
    "Observations",
    "Program",
    "Report",
    "SimulationError",
    "Simulator",
    "SimulatorError",
    "UsageError",
    "WaitingGroup",
    "load_program",
]
