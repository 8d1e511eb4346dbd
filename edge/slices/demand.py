"""What an exchange is asked to do, who uses the cell meanwhile, and what came of it."""

from dataclasses import dataclass, field

from edge.slices.pathloss import Floats
from edge.slices.profile import Direction
from edge.slices.terminals import Availability, Indices, Terminals
from edge.slices.uplink import Uplink
from fedslice.core.records import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a node does in an exchange: it loads, computes for so many seconds, and sends."""

    node: NodeId
    bytes_down: int
    compute_s: float
    bytes_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Who uses the cell: the cohort first, then the background. Arrays have an entry a user.

    Attributes:
        terminals: The channel of all terminals.
        availability: When their links are down.
        who: The terminal of each user.
        slices: The index of the slice of each.
        delays_s: How long a bit takes in each slice down and up, however few there are.
        names: The slices.
    """

    terminals: Terminals
    availability: Availability
    who: Indices
    slices: Indices
    delays_s: tuple[Floats, Floats]
    names: tuple[str, ...]


@dataclass(slots=True)
class Use:
    """What a direction carried, from event to event."""

    until_s: list[float] = field(default_factory=lambda: [0.0])
    prbs: list[Floats] = field(default_factory=list)  # of the cohort by slice, then of the background by slice
    background_bits: float = 0.0
    due_s: float = 0.0  # users of GBR slices times the seconds in which their channel bore the rate
    short_s: float = 0.0  # of these, those in which they had less


@dataclass(slots=True)
class Traffic:
    """What came of an exchange. Arrays have an entry a member of the cohort; times in s; inf for a node that was lost."""

    nodes: tuple[NodeId, ...]
    download_s: Floats
    compute_s: Floats
    upload_s: Floats
    sinr_db: dict[Direction, Floats]  # of one PRB, in the mean of the transfer
    use: dict[Direction, Use]
    start: Uplink
    grants: int = 0
    limits: list[str] = field(default_factory=list)
