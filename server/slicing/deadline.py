"""Deadline: no more of the radio than it takes to be done in time; the rest is for others."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.slices.uplink import Floats, Grant, Uplink
from fedslice.core.federation import FederationConfig
from server.slicing.least_time import Demand, fastest, finish_s, unable
from server.slicing.steady import SteadyConfig, steady


class DeadlineConfig(SteadyConfig):
    """`deadline_s` after the round began, or the federation's; and a `margin` on PRBs, because channels fade."""

    policy: Literal["deadline"] = "deadline"
    deadline_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    margin: Annotated[float, Field(ge=0, le=10)] = 0.15

    def build(self, federation: FederationConfig) -> "Deadline":
        """Return the policy.

        Raises:
            ValueError: There is no deadline.
        """
        last_s = federation.deadline_s
        deadline_s = min((one for one in (self.deadline_s, last_s) if one is not None), default=None)
        if deadline_s is None:
            raise ValueError("slicing.policy = 'deadline' needs slicing.deadline_s or federation.deadline_s")
        return Deadline(self.period_s, self.hysteresis, deadline_s, self.margin, deadline_s == last_s)


@dataclass(frozen=True, slots=True)
class Deadline:
    """Nodes are done in time, at the least cost to others.

    Attributes:
        period_s: The least time in s between two grants.
        hysteresis: See `steady`.
        deadline_s: In s since the round began.
        margin: What is added to the PRBs of each node, as a share of them, while there is room.
        refuses: Whether later updates are of no use. If so, and not all can be in time, as many as fit are; if not, all
            are done as soon as they can be, for the coordinator waits for them.
    """

    period_s: float
    hysteresis: float
    deadline_s: float
    margin: float
    refuses: bool

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        """Return what each node needs as its floor and its ceiling.

        If not all fit, and the late are refused, `Room.cheapest` says which do: the most nodes, for the fewest PRBs (in
        one slice that is the order of Moore and Hodgson). The others get no floor, and share what is left; so do all
        after the deadline.
        """
        demand = Demand.of(uplink)
        needed = demand.prbs(self.deadline_s)
        order, num_fit = demand.room.cheapest(uplink.slice, needed, demand.ids)
        admitted = np.zeros(len(needed), np.bool_)
        admitted[order[:num_fit]] = True
        limit = self._limit(demand, needed, admitted)
        if limit and not self.refuses:
            return steady(uplink, before, replace(fastest(uplink), limit=limit), self.hysteresis)
        pace = np.where(admitted, needed, 0.0)
        floors = demand.room.filled(uplink.slice, pace, np.minimum(pace * (1.0 + self.margin), demand.most))
        after = Grant(
            floor_prbs=floors,
            ceiling_prbs=np.where(admitted, floors, np.inf),
            finish_s=math.inf if limit else float(finish_s(uplink, floors).max(initial=uplink.now_s)),
            limit=limit,
        )
        return steady(uplink, before, after, self.hysteresis)

    def _limit(self, demand: Demand, needed: Floats, admitted: npt.NDArray[np.bool_]) -> str:
        """Return what keeps the first node that is not admitted from being done in time; empty if all are."""
        left_out = np.flatnonzero(demand.unfinished & ~admitted)
        if not len(left_out):
            return ""
        if reason := unable(demand):
            return reason
        uplink = demand.uplink
        if uplink.now_s >= self.deadline_s:
            return f"deadline: {self.deadline_s:g} s are over"
        late = left_out[np.isinf(needed[left_out])]
        if len(late):
            at = late[np.argmin(demand.ids[late])]
            most, done_s = demand.most[at], demand.soonest_s()[at]
            return f"node {uplink.nodes[at]}: in {most:.1f} PRBs, the most of use to it, it would be done at {done_s:.1f} s"
        taken = demand.room.taken(uplink.slice, np.where(demand.unfinished, needed, 0.0))
        over = np.flatnonzero(taken > demand.room.most)
        if len(over):
            of = int(over[0])
            return f"slice {uplink.names[of]}: its nodes need {taken[of]:.1f} PRBs, and may have {demand.room.most[of]:.1f}"
        return f"cell: the nodes need {taken.sum():.1f} PRBs, more than others leave of {uplink.total_prbs:.1f}"
