"""The simulator as the engine of a simulated host: buffers kept in step, launches passed on."""

from collections.abc import Mapping
from dataclasses import dataclass

from monoc.build.device import DeviceLaunch
from monoc.sim.host.memory import DeviceMemory
from monoc.sim.observe import Observations, Report
from monoc.sim.simulator import Launch, Simulator

__all__ = ["LaunchReport", "SimulatorEngine"]


@dataclass(frozen=True)
class LaunchReport:
    """What one launch of all ranks did; `symbols` are the kernels by rank."""

    symbols: Mapping[int, str]
    report: Report

    @property
    def seconds(self) -> float:
        """Host seconds the simulator took."""
        return self.report.seconds

    @property
    def instructions(self) -> int:
        """Wave-instructions executed, polls included."""
        return self.report.instructions

    @property
    def observations(self) -> Observations | None:
        """Counts, when the simulator observes."""
        return self.report.observations


class SimulatorEngine:
    """Runs the launches of a simulated host on `simulator`."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    @property
    def arch(self) -> str:
        """The target, e.g. `gfx950`."""
        return self.simulator.arch

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return self.simulator.ranks

    def sync(self, memory: DeviceMemory) -> None:
        """Tells the simulator which device memory came, went and was written since the last launch."""
        fresh, dead = memory.changes()
        for allocation in dead:
            self.simulator.unregister(allocation.address)
        for allocation in fresh:
            whole = (0, allocation.nbytes) in allocation.written
            if whole:
                allocation.written = []
            self.simulator.register_memory(
                None if allocation.shared else allocation.rank,
                allocation.address,
                allocation.nbytes,
                name=allocation.name,
                written=whole,
                read_only=allocation.read_only,
            )
        for allocation, spans in memory.take_written():
            for first, end in spans:
                self.simulator.mark_written(allocation.address + first, end - first)

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> LaunchReport:
        """One launch a rank, all together, to the end. Raises what `Simulator.launch` raises."""
        self.sync(memory)
        native = {
            rank: Launch(
                self.simulator.load(launch.text, launch.symbol),
                grid=launch.grid,
                block=launch.block,
                lds=launch.lds,
                kernarg=launch.kernarg,
            )
            for rank, launch in launches.items()
        }
        return LaunchReport({rank: launch.symbol for rank, launch in launches.items()}, self.simulator.launch(native))
