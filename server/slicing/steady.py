"""How often a policy may change its mind, and when it should: each change of a radio's ratios has a cost."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from edge.slices.uplink import Grant, Uplink
from fedslice.core.config import Table
from server.slicing.least_time import finish_s
from server.slicing.room import Room


class SteadyConfig(Table):
    """`period_s` between two grants, as control over O1 or A1 takes (E2: 0.01 to 1 s), and the `hysteresis` of their changes."""

    period_s: Annotated[float, Field(ge=0.01, le=1e6)] = 1.0
    hysteresis: Annotated[float, Field(ge=0, le=1)] = 0.05


def steady(uplink: Uplink, before: Grant | None, after: Grant, hysteresis: float) -> Grant:
    """Return `after`, but with the PRBs of `before` if the change would not be worth it.

    It is worth it if somebody's floor changes by more than `hysteresis` of the cell's PRBs, or those who have a floor
    are done sooner by more than that share of the time they still need, or PRBs were promised to one who is done, or
    others have a ceiling now. What no longer fits into the cell never stays.

    Args:
        uplink: Who has how much to send.
        before: What held until now; None if nothing did.
        after: What would be best.
        hysteresis: A share, 0 to 1.
    """
    if before is None or len(before.floor_prbs) != len(after.floor_prbs):
        return after
    promised = after.floor_prbs > 0.0
    left_s, better_s = (
        float((finish_s(uplink, grant.floor_prbs) - uplink.now_s)[promised].max(initial=0.0)) for grant in (before, after)
    )
    change = np.abs(after.floor_prbs - before.floor_prbs).max(initial=0.0)
    stays = (
        change <= hysteresis * uplink.total_prbs
        and left_s <= better_s * (1.0 + hysteresis)
        and not ((before.floor_prbs > 0.0) & (uplink.bits <= 0.0)).any()
        and np.array_equal(np.isinf(before.ceiling_prbs), np.isinf(after.ceiling_prbs))
        and (before.floor_prbs <= uplink.most_prbs).all()
        and Room.of(uplink).spare_factor(uplink.slice, before.floor_prbs) >= 1.0
    )
    return replace(after, floor_prbs=before.floor_prbs, ceiling_prbs=before.ceiling_prbs) if stays else after
