"""Static: the slices' own ratios rule, as if nobody learned here."""

import math
from typing import Literal

import numpy as np

from edge.slices.uplink import Grant, Uplink
from fedslice.core.config import Table


class StaticConfig(Table):
    """Nothing to choose."""

    policy: Literal["static"] = "static"

    def build(self) -> "Static":
        """Return the policy."""
        return Static()


class Static:
    """Promises nothing and bounds nothing."""

    @property
    def period_s(self) -> float:
        """Return infinity: what it grants never changes."""
        return math.inf

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        """Return no floors and no ceilings."""
        return Grant(floor_prbs=np.zeros(len(uplink.nodes)), ceiling_prbs=np.full(len(uplink.nodes), np.inf))
