"""The radio that the isolation of slices and of promised flows leaves to a cohort, and how to deal it out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.slices.scheduler import max_min
from edge.slices.uplink import Floats, Uplink

Indices = npt.NDArray[np.intp]
_NEAR_PRBS = 1e-9  # sums may round above a limit by this
LEAST_PRBS = 1e-6  # what a slice or a node may have below this is rounding
_SLOWEST = 1e-9


@dataclass(frozen=True, slots=True)
class Room:
    """How many PRBs a cohort may have; arrays have an entry a slice.

    A slice in which the cohort has X PRBs costs the cell max(X + held, dedicated). So the first dedicated - held of
    them are the slice's own and cost nobody else anything; those beyond come out of what all slices share.

    Attributes:
        own: PRBs dedicated to a slice and not held in it.
        shared: PRBs of the cell that are neither dedicated nor held.
        most: The most PRBs in a slice, by its maximum and by the cell, while no other slice shares.
    """

    own: Floats
    shared: float
    most: Floats

    @classmethod
    def of(cls, uplink: Uplink) -> "Room":
        """Return the room in a cell: none where others hold more than there is."""
        own = np.maximum(uplink.dedicated - uplink.held, 0.0)
        shared = max(uplink.total_prbs - float(np.maximum(uplink.held, uplink.dedicated).sum()), 0.0)
        most = np.minimum(uplink.maximum - uplink.held, own + shared)
        return cls(own, shared, np.where(most > LEAST_PRBS, most, 0.0))

    def taken(self, slices: Indices, prbs: Floats) -> Floats:
        """Return the PRBs that nodes have in each slice; `slices` has the slice of each node."""
        return np.bincount(slices, weights=prbs, minlength=len(self.most)).astype(np.float64)

    def spare_factor(self, slices: Indices, prbs: Floats) -> float:
        """Return the factor by which nodes can have more PRBs at once: below 1 if they have too many, inf for none."""
        taken = self.taken(slices, prbs)
        used = np.append(taken, np.maximum(taken - self.own, 0.0).sum())
        limits = np.append(self.most, self.shared) + _NEAR_PRBS
        some = used > 0.0
        return float((limits[some] / used[some]).min(initial=np.inf))

    def cheapest(self, slices: Indices, prbs: Floats, ids: Indices) -> tuple[Indices, int]:
        """Order nodes so that the first k are, for each k that fits, the k that together cost the others least.

        In one slice those are the k with the fewest PRBs, and their cost max(sum - own, 0) is convex in k, as the sums
        of an ascending series are. For convex costs the best k of all slices are the k smallest increments of cost;
        within a slice these ascend, so that none is taken before those it builds on. A slice's maximum cuts its series.

        Args:
            slices: The slice of each node, by index.
            prbs: What each needs; inf if it is not to be served.
            ids: Decides between equals, so that the order of the nodes does not.

        Returns:
            The nodes by index, and how many of them fit: no other choice serves more.
        """
        increment, rank = np.full((2, len(prbs)), np.inf)
        fits = np.zeros(len(prbs), np.bool_)
        for index, most in enumerate(self.most):
            at = np.flatnonzero((slices == index) & np.isfinite(prbs))
            at = at[np.lexsort((ids[at], prbs[at]))]
            sums = np.cumsum(prbs[at])
            increment[at] = np.minimum(prbs[at], np.maximum(sums - self.own[index], 0.0))
            rank[at], fits[at] = np.arange(len(at)), sums <= most + _NEAR_PRBS
        order = np.lexsort((ids, rank, increment, ~fits))
        costs = np.cumsum(increment[order])
        return order, int((fits[order] & (costs <= self.shared + _NEAR_PRBS)).sum())

    def filled(self, slices: Indices, pace: Floats, most: Floats) -> Floats:
        """Raise the PRBs of all nodes in step until each has its most, its slice is full or the cell is.

        This is weighted max-min fairness within each slice, and between slices for what they share.

        Args:
            slices: The slice of each node, by index.
            pace: In proportion to what each rises; 0 for those that get nothing.
            most: The most PRBs of each.

        Returns:
            PRBs of each node: `pace` times one level, but for limits.
        """
        rising = (pace > 0.0) & (most > 0.0)
        if not rising.any():
            return np.zeros(len(pace))
        # Nobody is so slow beside the others that the search for a level would not end.
        pace = np.where(rising, np.maximum(pace / pace.max(), _SLOWEST), 0.0)
        level = self._level(slices, pace, most, float((most[rising] / pace[rising]).max()))
        taken = np.minimum(self.taken(slices, np.minimum(level * pace, most)), self.most)
        capacity = np.minimum(np.maximum(taken, self.own), self.most)  # its own are there when the shared are gone
        found = np.zeros(len(pace))
        for index in range(len(self.most)):
            at = np.flatnonzero((slices == index) & rising)
            if len(at):
                found[at] = max_min(float(capacity[index]), most[at], pace[at])
        return found

    def _level(self, slices: Indices, pace: Floats, most: Floats, high: float) -> float:
        """Return the level, at the most `high`, at which nothing is left of what slices share."""

        def shares(level: float) -> bool:
            taken = np.minimum(self.taken(slices, np.minimum(level * pace, most)), self.most)
            return float(np.maximum(taken - self.own, 0.0).sum()) <= self.shared

        if shares(high):
            return high
        low = 0.0
        while high - low > 1e-13 * high:
            middle = (low + high) / 2.0
            low, high = (middle, high) if shares(middle) else (low, middle)
        return low
