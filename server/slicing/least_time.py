"""The soonest that a cohort, or so many of it, can have sent all; and how soon no policy can."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edge.slices.uplink import Floats, Grant, Uplink
from server.slicing.room import LEAST_PRBS, Indices, Room

_NEAR = 1e-9  # of the time that is left: how exact the search is
_NEAR_S = 1e-9  # a window that is short by this still holds its transfer: moments are rounded
_LEAST_SHARE = 1e-12  # of the best rate: whoever has a last bit to send needs more than nothing
_FOREVER_S = 1e12
_MOST_MOMENTS = 16


@dataclass(frozen=True, slots=True)
class Solution:
    """Constant shares of the radio.

    Attributes:
        finish_s: When the last of those who count has sent all, in s since the round began; inf if one never does.
        prbs: PRBs of each node while it sends; 0 for those that have sent all, do not count or never finish.
        limit: Why some never finish, in words that name the constraint; empty if all do.
    """

    finish_s: float
    prbs: Floats
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """What nodes need to be done by some moment. Arrays have an entry a node.

    Attributes:
        uplink: Who has how much to send.
        room: The radio that there is for it.
        ids: The nodes.
        most: The most PRBs that are of use to each.
        top_bps: The rate of each in them in bit/s.
        alone_s: How long each would send at that; inf if it never gets done, or is.
    """

    uplink: Uplink
    room: Room
    ids: Indices
    most: Floats
    top_bps: Floats
    alone_s: Floats

    @classmethod
    def of(cls, uplink: Uplink) -> "Demand":
        """Work out what each node could do by itself."""
        room = Room.of(uplink)
        allowed = np.minimum(uplink.most_prbs, room.most[uplink.slice])
        allowed = np.where(allowed > LEAST_PRBS, allowed, 0.0)
        top_bps = uplink.rate_bps(allowed)
        # More PRBs than the power fills would be wasted.
        most = np.minimum(uplink.prbs_for(top_bps), allowed)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            alone_s = np.where((uplink.bits > 0.0) & (top_bps > 0.0), uplink.bits / top_bps, np.inf)
        able = (alone_s < _FOREVER_S) & (uplink.release_s + uplink.delay_s < _FOREVER_S)
        return cls(uplink, room, np.array(uplink.nodes, np.intp), most, top_bps, np.where(able, alone_s, np.inf))

    @property
    def unfinished(self) -> npt.NDArray[np.bool_]:
        """Return who still has something to send."""
        return self.uplink.bits > 0.0

    @property
    def able(self) -> npt.NDArray[np.bool_]:
        """Return who has something to send and can."""
        return np.isfinite(self.alone_s)

    @property
    def start_s(self) -> Floats:
        """Return when each can go on sending."""
        return np.maximum(self.uplink.release_s, self.uplink.now_s)

    def soonest_s(self) -> Floats:
        """Return when each would be done if it were alone; inf if never, or if it is done."""
        return self.start_s + self.uplink.delay_s + self.alone_s

    def prbs(self, finish_s: float) -> Floats:
        """Return the fewest PRBs in which each is done by a moment, constant from its start; inf where it cannot be."""
        window_s = finish_s - self.uplink.delay_s - self.start_s
        near_s = _NEAR_S + 4.0 * np.spacing(finish_s)
        possible = self.able & (self.alone_s <= window_s + near_s)
        # As a share of the best rate, or a window of no length would ask for more than there is.
        share = np.where(possible, self.alone_s, 0.0) / np.maximum(window_s, near_s)
        rate_bps = np.clip(share, _LEAST_SHARE, 1.0) * self.top_bps
        needed = np.minimum(self.uplink.prbs_for(rate_bps), self.most)
        return np.where(possible, needed, np.inf)

    def chosen(self, finish_s: float, num: int) -> tuple[Floats, float]:
        """Return the PRBs of the `num` nodes that are done by a moment at the least cost, and by how much they fit.

        Returns:
            PRBs, 0 for all others; and the factor by which they could have more, below 1 if they do not fit.
        """
        needed = self.prbs(finish_s)
        order, _ = self.room.cheapest(self.uplink.slice, needed, self.ids)
        prbs = np.zeros(len(needed))
        prbs[order[:num]] = needed[order[:num]]
        if not np.isfinite(prbs).all():
            return prbs, 0.0
        return prbs, self.room.spare_factor(self.uplink.slice, prbs)

    def soonest(self, num: int) -> tuple[float, Floats]:
        """Return when `num` of those who can are done at the soonest, and their PRBs; see `least_time`."""
        if num <= 0:
            return self.uplink.now_s, np.zeros(len(self.ids))
        alone_s = self.soonest_s()
        first = np.argsort(alone_s, kind="stable")[:num]
        low = float(alone_s[first].max())
        # The limits are convex, so each can have as much of its most as its time alone is of the sum of all times.
        serial_s = float(self.alone_s[first].sum()) * (1.0 + _NEAR) + _NEAR_S
        high = max(float((self.start_s + self.uplink.delay_s)[first].max()) + serial_s, low)
        near_s = _NEAR * (low - self.uplink.now_s) + 4.0 * float(np.spacing(high))
        finish_s = _first_moment(lambda at_s: self.chosen(at_s, num)[1] - 1.0, low, high, near_s)
        return finish_s, self.chosen(finish_s, num)[0]


def least_time(uplink: Uplink, num: int | None = None) -> Solution:
    """Return the shares, constant from each node's start on, in which `num` nodes are done soonest.

    A node is done at T if it has n PRBs with rate(n) (T - delay - start) >= bits. The fewest such n fall as T grows,
    so the least T at which they fit is found by bisection. Of linear rates s_i n and equal starts and delays it is
    T = start + delay + sum(bits_i / s_i) / PRBs, and n_i goes by bits_i / s_i: by PRB-seconds, not by bytes.

    Args:
        uplink: Who has how much to send.
        num: How many more nodes must be done; all that have something to send if None. Which, is chosen by
            `Room.cheapest`. If fewer can ever be, those who can count.
    """
    return _solution(Demand.of(uplink), num)


def fastest(uplink: Uplink, num: int | None = None) -> Grant:
    """Return the shares of `least_time` as floors, raised in step until the cell is full, and no ceilings."""
    demand = Demand.of(uplink)
    solution = _solution(demand, num)
    floors = demand.room.filled(uplink.slice, solution.prbs, demand.most)
    no_ceilings = np.full(len(floors), np.inf)
    return Grant(floor_prbs=floors, ceiling_prbs=no_ceilings, finish_s=solution.finish_s, limit=solution.limit)


def bound_s(uplink: Uplink, num: int | None = None) -> float:
    """Return a moment before which no policy has `num` nodes done over this channel, not even with shares that change.

    Between equal starts and equal delays constant shares are best: rates are concave and limits convex, so the mean
    share over time is allowed and sends as much (Jensen). So for any moment the nodes that start no sooner, all their
    starts put at it and their delays at the least of them, have a least time that none can beat, and each node alone
    has one. For linear rates in one slice it is max_j(r_j + sum(bits_i / (s_i PRBs) for r_i >= r_j)), the optimum of
    1|r_j,pmtn|Cmax. Of `num` nodes that are done, no more can have started sooner than there are. What others hold stays
    held. Of many starts, 16 are tried.

    Args:
        uplink: Who has how much to send.
        num: How many of those that have something to send; all if None.
    """
    demand = Demand.of(uplink)
    num = int(demand.unfinished.sum()) if num is None else num
    num_able = int(demand.able.sum())
    if num > num_able:
        return math.inf
    found_s = float(np.sort(demand.soonest_s()[demand.able])[:num].max(initial=uplink.now_s))
    moments = np.unique(demand.start_s[demand.able])
    tried = np.unique(np.linspace(0, len(moments) - 1, min(len(moments), _MOST_MOMENTS)).astype(np.intp))
    for moment in moments[tried]:
        later = demand.able & (demand.start_s >= moment)
        at_least = num - (num_able - int(later.sum()))
        if at_least <= 0:
            break
        alike = replace(
            uplink,
            release_s=np.full(len(later), moment),
            delay_s=np.full(len(later), uplink.delay_s[later].min()),
        )
        relaxed = replace(demand, uplink=alike, alone_s=np.where(later, demand.alone_s, np.inf))
        if relaxed.chosen(found_s, at_least)[1] < 1.0:
            found_s = max(found_s, relaxed.soonest(at_least)[0])
    return found_s


def finish_s(uplink: Uplink, prbs: Floats) -> Floats:
    """Return when each node is done if it has so many PRBs from its start on; inf if never, now if it is done."""
    rate_bps = uplink.rate_bps(np.minimum(prbs, uplink.total_prbs))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        sending_s = np.where(rate_bps > 0.0, uplink.bits / rate_bps, np.inf)
    done_s = np.maximum(uplink.release_s, uplink.now_s) + uplink.delay_s + sending_s
    return np.where(uplink.bits > 0.0, done_s, uplink.now_s)


def _solution(demand: Demand, num: int | None) -> Solution:
    num_unfinished, num_able = int(demand.unfinished.sum()), int(demand.able.sum())
    num = num_unfinished if num is None else min(num, num_unfinished)
    last_s, prbs = demand.soonest(min(num, num_able))
    return Solution(last_s, prbs) if num <= num_able else Solution(math.inf, prbs, unable(demand))


def unable(demand: Demand) -> str:
    """Return why the first node that never gets done does not, and how many others do not; empty if all do."""
    never = np.flatnonzero(demand.unfinished & ~demand.able)
    if not len(never):
        return ""
    at = never[np.argmin(demand.ids[never])]
    others = f"; {len(never) - 1} more never finish" if len(never) > 1 else ""
    return _why(demand, int(at)) + others


def _why(demand: Demand, at: int) -> str:
    uplink, of = demand.uplink, int(demand.uplink.slice[at])
    node, name = f"node {uplink.nodes[at]}", uplink.names[of]
    if uplink.maximum[of] <= uplink.held[of]:
        return f"slice {name}: its maximum of {uplink.maximum[of]:.1f} PRBs is held by others"
    if demand.room.most[of] <= 0.0:
        return f"cell: its {uplink.total_prbs:.1f} PRBs are held by others or dedicated to other slices than {name}"
    if uplink.rate_bps(np.ones(len(uplink.nodes)))[at] <= 0.0:
        return f"{node}: its power reaches no MCS"
    if uplink.release_s[at] + uplink.delay_s[at] >= _FOREVER_S:
        return f"{node}: nobody knows when it begins to send"
    return f"{node}: it may have no more than {demand.most[at]:.3g} PRBs"


def _first_moment(spare: Callable[[float], float], low: float, high: float, near: float) -> float:
    """Return, to `near`, the least moment at which what is spare is not negative; at `high` it is not.

    Bisection that looks first where a line between the ends would cross zero, pushed a little over it (ITP, Oliveira
    and Takahashi, ACM TOMS 47(1), 2020): never more than one step longer, and here several times shorter.
    """
    below, above = spare(low), spare(high)
    if below >= 0.0 or high - low <= near:
        return low if below >= 0.0 else high
    width, push = high - low, 0.2 / (high - low)
    reach = near * 2.0 ** math.ceil(math.log2(width / near))
    while high - low > near:
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        line = low + (high - low) * below / (below - above) if math.isfinite(above - below) else middle
        toward = math.copysign(min(push * (high - low) ** 2, abs(middle - line)), middle - line)
        radius = max(reach - half, 0.0)
        at = min(max(line + toward, middle - radius), middle + radius)
        value = spare(at)
        low, below, high, above = (low, below, at, value) if value >= 0.0 else (at, value, high, above)
        reach /= 2.0
    return high
