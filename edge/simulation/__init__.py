"""A federation in one process, on a virtual clock."""

from edge.simulation.clock import Phase, Timing, VirtualClock
from edge.simulation.grid import SimulationGrid, UserValue
from edge.simulation.host import Host
from edge.simulation.timed import TimedGrid

__all__ = ["Host", "Phase", "SimulationGrid", "TimedGrid", "Timing", "UserValue", "VirtualClock"]
