"""Min-max: the last node is done as soon as it can be."""

from dataclasses import dataclass
from typing import Literal

from edge.slices.uplink import Grant, Uplink
from fedslice.core.federation import FederationConfig
from server.slicing.least_time import fastest
from server.slicing.steady import SteadyConfig, steady


class MinMaxConfig(SteadyConfig):
    """The common keys and no other."""

    policy: Literal["min_max"] = "min_max"

    def build(self, federation: FederationConfig) -> "MinMax":
        """Return the policy."""
        return MinMax(self.period_s, self.hysteresis)


@dataclass(frozen=True, slots=True)
class MinMax:
    """For rounds that wait for everybody: all are done at once, the early ones later than they could be.

    Attributes:
        period_s: The least time in s between two grants.
        hysteresis: See `steady`.
    """

    period_s: float
    hysteresis: float

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        """Return floors in which the last is done soonest; one who has not begun has one too, that the cell lends."""
        return steady(uplink, before, fastest(uplink), self.hysteresis)
