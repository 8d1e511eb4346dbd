"""The uplink of a cell in a round, as a slicing policy sees it, and what it grants.

Of the radio the uplink is what is scarce: a TDD cell gives it a quarter of the time, and terminals have little power.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge.slices.link import Link
from fedslice.core.records import NodeId

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """Who has how much to send over which channel. Arrays have an entry a node or, the last three, an entry a slice.

    Attributes:
        now_s: The moment, in s since the round began; so are all other moments.
        nodes: The cohort, also those that have sent all.
        release_s: When each can begin to send; in the past for those that are sending.
        delay_s: How much later than it was sent the last bit arrives.
        bits: What each has left to send; 0 when it is done.
        sinr_db: SINR in dB of each in one PRB that gets all its power.
        most_prbs: The most PRBs that each may have, by its bandwidth, its slice and its rate limits.
        slice: Index of the slice of each.
        names: The slices.
        links: The radio link of each slice's terminals.
        total_prbs: PRBs of the cell.
        dedicated: PRBs that no other slice ever gets.
        maximum: The most PRBs of a slice.
        held: PRBs of a slice that others than the cohort are promised in it.
    """

    now_s: float
    nodes: tuple[NodeId, ...]
    release_s: Floats
    delay_s: Floats
    bits: Floats
    sinr_db: Floats
    most_prbs: Floats
    slice: npt.NDArray[np.intp]
    names: tuple[str, ...]
    links: tuple[Link, ...]
    total_prbs: float
    dedicated: Floats
    maximum: Floats
    held: Floats

    def rate_bps(self, prbs: Floats) -> Floats:
        """Return the rate in bit/s of each node in as many PRBs."""
        return self._by_slice(lambda link, at: link.rate_bps(prbs[at], self.sinr_db[at]))

    def prbs_for(self, rate_bps: Floats) -> Floats:
        """Return the fewest PRBs in which each node has a rate in bit/s; inf where what it may have is too little."""
        needed = self._by_slice(lambda link, at: link.prbs_for(rate_bps[at], self.sinr_db[at]))
        return np.where(needed <= self.most_prbs * (1.0 + 1e-9), needed, np.inf)

    def _by_slice(self, value: Callable[[Link, npt.NDArray[np.intp]], Floats]) -> Floats:
        found = np.empty(len(self.nodes))
        for index, link in enumerate(self.links):
            at = np.flatnonzero(self.slice == index)
            found[at] = value(link, at)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a policy gives the nodes of an `Uplink`, in its order, until the next grant.

    Attributes:
        floor_prbs: PRBs that each is promised while it sends; what is left is shared by the slices' own ratios.
        ceiling_prbs: PRBs that each gets at the most.
        finish_s: When the policy expects to have what it aims at, in s since the round began.
        limit: Why it cannot have it, in words that name the constraint; empty if it can.
    """

    floor_prbs: Floats
    ceiling_prbs: Floats
    finish_s: float = float("nan")
    limit: str = field(default="")


class Slicing(Protocol):
    """Decides, a few times in a round, which share of the radio each of its nodes gets."""

    @property
    def period_s(self) -> float:
        """Return the least time in s between two grants."""

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        """Return what holds from now on; `before` is what held until now, and None at the first grant of a round."""
