"""Proportional: shares by the PRB-seconds that each node still needs."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edge.slices.uplink import Grant, Uplink
from fedslice.core.federation import FederationConfig
from server.slicing.least_time import Demand, finish_s, unable
from server.slicing.steady import SteadyConfig, steady


class ProportionalConfig(SteadyConfig):
    """The common keys and no other."""

    policy: Literal["proportional"] = "proportional"

    def build(self, federation: FederationConfig) -> "Proportional":
        """Return the policy."""
        return Proportional(self.period_s, self.hysteresis)


@dataclass(frozen=True, slots=True)
class Proportional:
    """Looks at those who send now, and at no rate but that of an equal share.

    Attributes:
        period_s: The least time in s between two grants.
        hysteresis: See `steady`.
    """

    period_s: float
    hysteresis: float

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        """Return floors in proportion to PRB-seconds, that fill the cell.

        What a node needs is its bits over the rate of one of its PRBs, when the cell is split equally among those who
        send. For linear rates in one slice the floors are the optimum of those who send. A node that has not begun has
        no floor yet, and `finish_s` does not count it.
        """
        demand = Demand.of(uplink)
        sending = demand.able & (uplink.release_s <= uplink.now_s)
        equal = np.minimum(demand.most, uplink.total_prbs / max(int(sending.sum()), 1))
        needs = np.zeros(len(sending))
        np.divide(uplink.bits * equal, uplink.rate_bps(equal), out=needs, where=sending)
        floors = demand.room.filled(uplink.slice, needs, demand.most)
        limit = unable(demand)
        last_s = math.inf if limit else float(finish_s(uplink, floors)[sending].max(initial=uplink.now_s))
        after = Grant(floor_prbs=floors, ceiling_prbs=np.full(len(floors), np.inf), finish_s=last_s, limit=limit)
        return steady(uplink, before, after, self.hysteresis)
