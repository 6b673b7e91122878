"""Host side of the simulator: GPU host code (runners) runs unchanged on the CPU."""

from monoc.sim.host.memory import Allocation, DeviceMemory
from monoc.sim.host.simulation import Engine, SimulatedHost, ThreadGroup, simulate

__all__ = ["Allocation", "DeviceMemory", "Engine", "SimulatedHost", "ThreadGroup", "simulate"]
