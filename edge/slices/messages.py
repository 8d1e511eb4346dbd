"""What the slices of a cell do to a control message, and to the end of a long transfer."""

import math
from collections.abc import Sequence

import numpy as np

from edge.slices.latency import Latency, Repeats, last_blocks_s, late_share, one_way
from edge.slices.pathloss import Floats
from edge.slices.profile import Direction, Profile, SliceProfile

MESSAGE_BYTES = 1000.0  # of a packet of others, and of a control message
_SLOT_S = 0.5e-3  # at 30 kHz, the only spacing there is
_MANY_BLOCKS = 1000  # more change nothing at the end of a transfer


def transfer_delay_s(profile: Profile, one: SliceProfile, way: Direction) -> float:
    """Return by how many s the end of a transfer comes later than its bits over its rate, on average."""
    link = profile.link(one, way)
    repeats = Repeats(bler=link.table.bler_target)
    repeated_s = last_blocks_s(repeats, num_blocks=_MANY_BLOCKS, block_s=_SLOT_S / link.slot_share)
    return one.side(way).delay_ms / 1e3 + repeated_s


def message_latency(
    profile: Profile, one: SliceProfile, way: Direction, offered_bps: Sequence[float], sinr_db: Floats
) -> tuple[Latency, float]:
    """Return what a control message of a slice waits, and the share of messages that miss the slice's delay budget.

    It waits for what users with a rate of their own offer in the slice, and not for those that take what they get: bulk
    has a lower priority. Served it is in the slice's guaranteed PRBs or, if more, its even part of the cell.

    Args:
        profile: The cell and its slices.
        one: The slice.
        way: The direction.
        offered_bps: What each of the others in the slice offers in bit/s; inf for one that takes what it gets.
        sinr_db: The median SINR of the slice's terminals in dB; none have no channel to wait for.
    """
    side, link = one.side(way), profile.link(one, way)
    loads_bps = [bps for bps in offered_bps if math.isfinite(bps)]
    load_bps, num = math.fsum(loads_bps), max(len(loads_bps), 1)
    percent = max(side.rrm.min, min(side.rrm.max, 100 / len(profile.slices)))
    prbs = profile.cell.prbs * percent / 100
    # Together those who offer make more of the PRBs than one terminal's power could.
    capacity_bps = num * float(np.median(link.rate_bps(prbs / num, sinr_db))) if len(sinr_db) else math.inf
    own_bps = float(np.median(link.rate_bps(prbs, sinr_db))) if len(sinr_db) else math.inf
    repeats = Repeats(bler=link.table.bler_target)
    latency = one_way(side, repeats, load_bps=load_bps, capacity_bps=capacity_bps, packet_bytes=MESSAGE_BYTES)
    sending_s = 8.0 * MESSAGE_BYTES / own_bps if own_bps else math.inf
    utilisation = min(load_bps / capacity_bps, 1.0) if capacity_bps else 1.0
    budget_s = one.qos.delay_budget_ms / 1e3 - sending_s
    return latency, late_share(latency, repeats, budget_s=budget_s, utilisation=utilisation) if budget_s > 0 else 1.0
