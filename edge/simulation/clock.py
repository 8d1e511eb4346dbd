"""Virtual time, and what one exchange between the coordinator and a cohort cost."""

from dataclasses import dataclass, field

from edge.slices import Traffic
from fedslice.core.records import NodeId


@dataclass(slots=True)
class VirtualClock:
    """Seconds since the run began, as the modelled network tells them."""

    now_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one node's part in an exchange took and cost."""

    download_s: float = 0.0
    compute_s: float = 0.0
    upload_s: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    joules: float = 0.0
    late: bool = False

    @property
    def total_s(self) -> float:
        """Return the seconds from the instruction to the last byte of the reply."""
        return self.download_s + self.compute_s + self.upload_s


@dataclass(slots=True)
class Phase:
    """One exchange: who took how long, filled while the replies are read, and what the cell carried, known beforehand."""

    from_s: float = 0.0
    duration_s: float = 0.0
    num_awaited: int = 0  # how many arrivals of those that are timed close it
    complete: bool = False  # whether the last of these closed it, and not a deadline or who was lost or failed
    timings: dict[NodeId, Timing] = field(default_factory=dict)
    traffic: Traffic | None = None

    def rows(self) -> dict[NodeId, dict[str, float]]:
        """Return each node's seconds of download, computing and upload, and its energy, in node order."""
        parts = ("download_s", "compute_s", "upload_s", "joules")
        return {node: {part: getattr(self.timings[node], part) for part in parts} for node in sorted(self.timings)}

    @property
    def bytes_down(self) -> int:
        """Return all bytes sent to nodes."""
        return sum(t.bytes_down for t in self.timings.values())

    @property
    def bytes_up(self) -> int:
        """Return all bytes that came back."""
        return sum(t.bytes_up for t in self.timings.values())

    @property
    def joules(self) -> float:
        """Return the energy that the nodes spent, summed in node order so that it repeats."""
        return sum(self.timings[node].joules for node in sorted(self.timings))
