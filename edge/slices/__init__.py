"""5G slices: how long a node's transfers and computing take."""

from edge.slices.model import Direction, Network, NetworkConfig, SliceConfig
from edge.slices.nodes import NodeProfile, NodesConfig, profiles

__all__ = ["Direction", "Network", "NetworkConfig", "NodeProfile", "NodesConfig", "SliceConfig", "profiles"]
