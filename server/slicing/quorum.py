"""Quorum: so many nodes are done as soon as they can be."""

import math
from dataclasses import dataclass
from typing import Literal

from edge.slices.uplink import Grant, Uplink
from fedslice.core.federation import FederationConfig
from server.slicing.least_time import fastest
from server.slicing.steady import SteadyConfig, steady


class QuorumConfig(SteadyConfig):
    """The common keys and no other; how many close a round is `federation.close_at`."""

    policy: Literal["quorum"] = "quorum"

    def build(self, federation: FederationConfig) -> "Quorum":
        """Return the policy."""
        return Quorum(self.period_s, self.hysteresis, federation.close_at)


@dataclass(frozen=True, slots=True)
class Quorum:
    """For rounds that close early. It prefers whoever has a good channel, so far nodes are seldom heard.

    Attributes:
        period_s: The least time in s between two grants.
        hysteresis: See `steady`.
        share: Of the cohort, 0 to 1, rounded up.
    """

    period_s: float
    hysteresis: float
    share: float

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        """Return floors in which the quorum is there soonest; the others share what is left. Who is done counts."""
        num_done = int((uplink.bits <= 0.0).sum())
        num = math.ceil(self.share * len(uplink.nodes) - 1e-9)  # 0.55 of 20 is 11, whatever it rounds to
        return steady(uplink, before, fastest(uplink, max(num - num_done, 0)), self.hysteresis)
