"""5G slices: how long a node's transfers and computing take."""

from edge.slices.demand import Demand, Traffic
from edge.slices.model import Background, Network, NetworkConfig
from edge.slices.nodes import NodeProfile, NodesConfig, profiles
from edge.slices.profile import WAYS, Direction
from edge.slices.radio_log import radio_fields
from edge.slices.survey import survey
from edge.slices.uplink import Grant, Slicing, Uplink

__all__ = [
    "WAYS",
    "Background",
    "Demand",
    "Direction",
    "Grant",
    "Network",
    "NetworkConfig",
    "NodeProfile",
    "NodesConfig",
    "Slicing",
    "Traffic",
    "Uplink",
    "profiles",
    "radio_fields",
    "survey",
]
