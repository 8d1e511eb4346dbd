"""The simulated radio, first form: each node has its slice's rate, its own place and a fading channel.

`Network.transfer_time` is the door; everything behind it may grow.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, model_validator

from edge.slices.nodes import NodeProfile, Positive
from fedslice.core.config import Table
from fedslice.core.records import NodeId
from fedslice.core.seeds import rng

Direction = Literal["down", "up"]
_CHUNK = 64  # blocks of one coherence time
_CHUNKS_KEPT = 4  # chunks a node and direction


class SliceConfig(Table):
    """What a slice gives one node. SST as in TS 23.501 table 5.15.2.2-1: 1 eMBB, 2 URLLC, 3 MIoT."""

    name: str
    sst: Annotated[int, Field(ge=0, le=255)]
    down_bps: Positive
    up_bps: Positive
    latency_ms: Annotated[float, Field(ge=0, le=1e6)]


_DEFAULT = [
    SliceConfig(name="embb", sst=1, down_bps=60e6, up_bps=15e6, latency_ms=15),
    SliceConfig(name="urllc", sst=2, down_bps=10e6, up_bps=5e6, latency_ms=4),
    SliceConfig(name="mmtc", sst=3, down_bps=1.5e6, up_bps=0.5e6, latency_ms=60),
]


class NetworkConfig(Table):
    """The slices, and how much nodes and moments differ within one."""

    slices: Annotated[list[SliceConfig], Field(min_length=1)] = _DEFAULT
    spread_db: Annotated[float, Field(ge=0, le=40)] = 2.0
    fading_db: Annotated[float, Field(ge=0, le=40)] = 1.5
    coherence_s: Positive = 5.0

    @model_validator(mode="after")
    def _names_once(self) -> "NetworkConfig":
        names = [s.name for s in self.slices]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"network.slices: the name {min(twice)} is used twice")
        return self


class Network:
    """Says how long a transfer takes."""

    def __init__(self, config: NetworkConfig, nodes: Sequence[NodeProfile], seed: int) -> None:
        """Place the nodes.

        Args:
            config: The slices.
            nodes: The profile of each node, by node id.
            seed: The seed of the run; it fixes places and fading.

        Raises:
            ValueError: A profile names a slice that is not there.
        """
        slices = {s.name: s for s in config.slices}
        if unknown := {p.slice for p in nodes} - set(slices):
            raise ValueError(f"nodes.profiles: no slice is called {min(unknown)}; there are {', '.join(slices)}")
        self._config, self._seed = config, seed
        self._slices = [slices[p.slice] for p in nodes]
        self._fading_db = lru_cache(maxsize=2 * _CHUNKS_KEPT * len(nodes))(self._draw_fading_db)
        self._place_db = [config.spread_db * float(rng(seed, "place", n).standard_normal()) for n in range(len(nodes))]

    def slice_of(self, node: NodeId) -> SliceConfig:
        """Return the slice that carries a node."""
        return self._slices[node]

    def rate_bps(self, node: NodeId, direction: Direction, at_s: float) -> float:
        """Return the rate of a node in bit/s at a moment of the virtual clock."""
        carrier = self._slices[node]
        nominal = carrier.down_bps if direction == "down" else carrier.up_bps
        chunk, block = divmod(math.floor(at_s / self._config.coherence_s), _CHUNK)
        fading_db = self._fading_db(node, direction, chunk)[block]
        return nominal * 10 ** ((self._place_db[node] + fading_db) / 10)

    def transfer_time(self, node: NodeId, direction: Direction, num_bytes: int, at_s: float) -> float:
        """Return the seconds that `num_bytes` take to or from a node when they start at `at_s`.

        The rate at the start holds for the whole transfer.
        """
        return self._slices[node].latency_ms / 1000 + 8 * num_bytes / self.rate_bps(node, direction, at_s)

    def _draw_fading_db(self, node: NodeId, direction: Direction, chunk: int) -> list[float]:
        """Return a run of blocks at once: to make a generator takes longer than to draw from it."""
        draws = rng(self._seed, "fading", node, direction, chunk).standard_normal(_CHUNK)
        return [float(self._config.fading_db * draw) for draw in draws]
