"""The network between the coordinator and its nodes: one cell, its slices, and who shares them."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from edge.slices.admission import Applicant, Outcome, admit, counters
from edge.slices.demand import Demand, Traffic, Users
from edge.slices.lane import Lane
from edge.slices.latency import Latency
from edge.slices.messages import message_latency, transfer_delay_s
from edge.slices.nodes import NodeProfile, Positive
from edge.slices.profile import WAYS, Direction, Profile, SliceProfile
from edge.slices.terminals import Spot, Terminals
from edge.slices.traffic import Exchange
from edge.slices.uplink import Slicing
from fedslice.core.config import Table, load, located, validate
from fedslice.core.errors import UsageError
from fedslice.core.records import NodeId

Offered = Annotated[float, Field(ge=0, allow_inf_nan=True)]  # bit/s; inf takes what it gets


class Background(Table):
    """Terminals beside the federation's: so many in a slice, each offering so many bit/s, or with inf taking what it gets."""

    slice: str
    num_users: Annotated[int, Field(ge=1, le=10_000)] = 1
    down_bps: Offered = 0.0
    up_bps: Offered = 0.0
    weight: Positive = 1.0
    distance_m: Annotated[float, Field(gt=0)] | None = None


class NetworkConfig(Profile):
    """A cell, its slices, and who else uses it.

    `profile` names a file of `configs/slices`, or is a path; what stands beside it in the table goes before. The
    config that a run keeps has all of it written out, and no name.
    """

    profile: str = ""
    background: list[Background] = []

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, tables: Any) -> Any:
        if not isinstance(tables, dict) or not isinstance(name := tables.get("profile", ""), str):
            return tables
        if not name and {"cell", "slices"} <= tables.keys():  # complete
            return {**tables, "profile": ""}
        merged = _merged(_profile(name or _DEFAULT_PROFILE), tables)
        if merged == tables:
            raise ValueError(f"profile = {name!r} has no effect: cell and slices are all written out beside it; leave it out")
        return {**merged, "profile": ""}

    @model_validator(mode="after")
    def _background_is_on_slices(self) -> "NetworkConfig":
        names = [s.name for s in self.slices]
        for one in self.background:
            if one.slice not in names:
                raise ValueError(f"background: no slice is called {one.slice}; there are {', '.join(names)}")
        return self


_SHIPPED, _DEFAULT_PROFILE = "configs/slices", "factory-n78-40"


def _profile(name: str) -> dict[str, Any]:
    """Return the tables of a shipped profile, by its name, or of a file."""
    path = located(name if name.endswith(".toml") or "/" in name else f"{_SHIPPED}/{name}.toml")
    if not path.is_file():
        known = sorted(file.stem for file in located(f"{_SHIPPED}/{_DEFAULT_PROFILE}.toml").parent.glob("*.toml"))
        hint = f"shipped are {', '.join(known)}; a file of your own ends in .toml"
        raise UsageError(f"network.profile = {name!r}: there is no file {path}; {hint}")
    tables = load(path)
    validate(Profile, tables, str(path))  # what is wrong in the file is said of the file
    return tables


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return two tables as one; where both have a key that holds no table, the one above counts."""
    both = {k: _merged(below[k], v) for k, v in above.items() if isinstance(v, dict) and isinstance(below.get(k), dict)}
    return {**below, **above, **both}


class Network:
    """Says how long exchanges over the cell take, and what they use of it."""

    def __init__(self, config: NetworkConfig, nodes: Sequence[NodeProfile], seed: int) -> None:
        """Place the nodes and the others.

        Args:
            config: The cell, its slices and its background.
            nodes: The profile of each node, by node id.
            seed: The seed of the run; it fixes places and channels.

        Raises:
            ValueError: A profile names a slice that is not there, somebody is out of the cell's place, or a slice is full.

        `alone_bps` and `together_bps` are the rates in bit/s that each terminal would have at its median channel: if no
        other were there, and if all had something to send at once.
        """
        self.config, self.num_nodes = config, len(nodes)
        index = {s.name: i for i, s in enumerate(config.slices)}
        for kind in nodes:
            if kind.slice not in index:
                raise ValueError(
                    f"nodes.profiles: {kind.name} is on slice {kind.slice}, and the cell has {', '.join(index)}; "
                    "give [[nodes.profiles]] that fit it"
                )
        self._check_distances(nodes)
        spots = [Spot(slice=index[p.slice], distance_m=p.distance_m, speed_m_s=p.speed_m_s) for p in nodes]
        others = [one for one in config.background for _ in range(one.num_users)]
        spots += [Spot(slice=index[one.slice], distance_m=one.distance_m) for one in others]
        self._slices = np.array([spot.slice for spot in spots], np.intp)
        self._offered_bps = {
            "down": np.array([math.inf] * len(nodes) + [one.down_bps for one in others]),
            "up": np.array([math.inf] * len(nodes) + [one.up_bps for one in others]),
        }
        self._weight = np.array([p.weight for p in nodes] + [one.weight for one in others], np.float64)
        self.terminals = Terminals(config, spots, seed)
        self.outcomes = self._admit()
        self._guaranteed = np.array([outcome.guaranteed for outcome in self.outcomes], np.bool_)
        self._availability = self.terminals.availability(len(nodes))
        self._delays_s = tuple(np.array([transfer_delay_s(config, s, way) for s in config.slices]) for way in WAYS)
        everyone = self._median_lanes()
        self.alone_bps = {way: lane.alone_bps() for way, lane in everyone.items()}
        self.together_bps = {way: lane.share(np.ones(len(spots), np.bool_))[1] for way, lane in everyone.items()}

    def _check_distances(self, nodes: Sequence[NodeProfile]) -> None:
        """See that everybody is where the cell's place is."""
        place = self.config.cell.place
        given = [("nodes.profiles", p.name, p.distance_m) for p in nodes]
        given += [("network.background", b.slice, b.distance_m) for b in self.config.background]
        for table, name, distance_m in given:
            if distance_m is not None and not place.nearest_m <= distance_m <= place.farthest_m:
                reach = f"{place.nearest_m:g} to {place.farthest_m:g} m"
                raise ValueError(f"{table}: {name} has distance_m = {distance_m:g}; the cell's place is {reach}")

    def _admit(self) -> list[Outcome]:
        """Ask for admission, in the order of the terminals; a node that is refused could never train."""
        everyone = np.arange(len(self._slices))
        down_db, up_db = self.terminals.sinr_db(0.0, everyone, faded=False)
        rows = zip(
            self._slices.tolist(), down_db.tolist(), up_db.tolist(), self.terminals.spread_db(everyone).tolist(), strict=True
        )
        applicants = [Applicant(slice=of, sinr_down_db=down, sinr_up_db=up, spread_db=spread) for of, down, up, spread in rows]
        outcomes = admit(self.config, applicants)
        self.counters = counters(self.config, applicants, outcomes)
        for terminal, outcome in enumerate(outcomes):
            if not outcome.admitted:
                who = f"node {terminal}" if terminal < self.num_nodes else f"background user {terminal - self.num_nodes}"
                raise ValueError(f"network: {who} is not admitted: {outcome.reason}")
        return outcomes

    @property
    def out_of_reach(self) -> list[NodeId]:
        """Return the nodes whose median channel bears no MCS, one way or the other."""
        reached = (self.alone_bps["down"] > 0.0) & (self.alone_bps["up"] > 0.0)
        return np.flatnonzero(~reached[: self.num_nodes]).tolist()

    def slice_of(self, node: NodeId) -> SliceProfile:
        """Return the slice that carries a node."""
        return self.config.slices[int(self._slices[node])]

    def carry(self, demands: Sequence[Demand], at_s: float, slicing: Slicing | None = None) -> Traffic:
        """Return how long a cohort's exchange takes that begins at a moment, and what it uses.

        Args:
            demands: What each member of the cohort does; each node once.
            at_s: The moment on the virtual clock.
            slicing: Steers the uplink; without it the slices' own ratios rule.
        """
        who = np.array([*(d.node for d in demands), *range(self.num_nodes, len(self._slices))], np.intp)
        users = Users(
            terminals=self.terminals,
            availability=self._availability,
            who=who,
            slices=self._slices[who],
            delays_s=(self._delays_s[0], self._delays_s[1]),
            names=tuple(s.name for s in self.config.slices),
        )
        lanes, medians = ((self._lane("down", who), self._lane("up", who)) for _ in range(2))
        return Exchange(users, lanes, medians, demands, at_s).run(slicing)

    def alone_s(self, demand: Demand) -> float:
        """Return how long an exchange would take a node that had the cell for itself, at its median channel."""
        total_s = demand.compute_s
        for way, num_bytes, delays_s in zip(WAYS, (demand.bytes_down, demand.bytes_up), self._delays_s, strict=True):
            rate_bps = float(self.alone_bps[way][demand.node])
            total_s += float(delays_s[self._slices[demand.node]]) + (8.0 * num_bytes / rate_bps if rate_bps else math.inf)
        return total_s

    def messages(self, one: SliceProfile, way: Direction) -> tuple[Latency, float]:
        """Return what a control message of a slice waits, and the share of messages that miss the slice's delay budget."""
        members = np.flatnonzero(self._slices == self.config.slices.index(one))
        channel_db = self.terminals.sinr_db(0.0, members, faded=False)[WAYS.index(way)]
        offered_bps = self._offered_bps[way][members[members >= self.num_nodes]].tolist()
        return message_latency(self.config, one, way, offered_bps, channel_db)

    def _median_lanes(self) -> dict[Direction, Lane]:
        """Return both directions with everybody in them, at the median channel of the beginning."""
        everyone = np.arange(len(self._slices))
        channel = self.terminals.sinr_db(0.0, everyone, faded=False)
        lanes = {way: self._lane(way, everyone) for way in WAYS}
        for lane, sinr_db in zip(lanes.values(), channel, strict=True):
            lane.hear(sinr_db, everyone)
        return lanes

    def _lane(self, way: Direction, who: np.ndarray[Any, np.dtype[np.intp]]) -> Lane:
        return Lane(self.config, way, self._slices[who], self._offered_bps[way][who], self._guaranteed[who], self._weight[who])
