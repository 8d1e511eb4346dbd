"""One direction of a cell: who of its users gets how many resource blocks at a moment, and what rate they make."""

from dataclasses import dataclass, replace

import numpy as np

from edge.slices.pathloss import Bools, Floats
from edge.slices.profile import Direction, Profile
from edge.slices.scheduler import Policy, proportional_fair_gain, raised, share_among_slices, share_among_users
from edge.slices.terminals import Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What a slicing policy has granted the users of a lane.

    Attributes:
        floor_prbs: PRBs that each user is promised.
        ceiling_prbs: PRBs that each gets at the most.
        slices: In which slices these promises stand in the place of the slice's own minimum.
    """

    floor_prbs: Floats
    ceiling_prbs: Floats
    slices: Bools


class Lane:
    """Shares the PRBs of one direction, for a channel that stands still until `hear` says how it has changed."""

    def __init__(
        self, profile: Profile, way: Direction, slices: Indices, offered_bps: Floats, guaranteed: Bools, weight: Floats
    ) -> None:
        """Set up the users.

        Args:
            profile: The cell and its slices.
            way: Which direction.
            slices: Index of the slice of each user.
            offered_bps: The most bit/s that each user wants; inf for one that takes what it gets.
            guaranteed: Which users have their slice's guaranteed rate.
            weight: The pace at which each user fills up within its slice.
        """
        cell, sides = profile.cell, [one.side(way) for one in profile.slices]
        percent = cell.prbs / 100.0
        self.total_prbs = float(cell.prbs)
        self.links = tuple(profile.link(one, way) for one in profile.slices)
        self.policy = Policy(
            dedicated=np.array([s.rrm.dedicated * percent for s in sides]),
            minimum=np.array([s.rrm.min * percent for s in sides]),
            maximum=np.array([s.rrm.max * percent for s in sides]),
            weight=np.array([one.weight for one in profile.slices]),
        )
        # Who schedules by the channel gains from its fading, where there is some.
        self._gains = cell.scheduler == "proportional_fair" and cell.dynamics.fading_db > 0
        self._slices, self._weight = slices, weight
        self._members = [np.flatnonzero(slices == index) for index in range(len(sides))]
        most_bps = np.array([min(s.mfbr_bps, s.ue_ambr_bps, s.slice_mbr_bps) for s in sides])
        self._bandwidth = np.array([profile.most_prbs(one, way) for one in profile.slices])[slices]
        self._limit_bps = np.minimum(offered_bps, most_bps[slices])
        self._gfbr_bps = np.array([s.gfbr_bps for s in sides])[slices]
        self._guaranteed = guaranteed
        self.promises = bool(self._gfbr_bps.any())
        self._channel = self.links[0].channel(np.zeros(len(slices)))  # of all slices, once they were heard
        self.due_bps = np.zeros(len(slices))  # what a user of a GBR slice should have, where its channel bears it
        self.most_prbs = np.zeros(len(slices))
        self.floor_prbs = np.zeros(len(slices))
        self.sinr_db = np.zeros(len(slices))

    def hear(self, sinr_db: Floats, of: Indices) -> None:
        """Take the channel of some users as it is now, in dB of one PRB."""
        self.sinr_db[of] = sinr_db
        for index, link in enumerate(self.links):
            at = of[self._slices[of] == index]
            for mine, heard in zip(self._channel.arrays, link.channel(self.sinr_db[at]).arrays, strict=True):
                mine[at] = heard
        channel = self._channel.of(of)
        most = np.minimum(channel.useful_prbs(), self._bandwidth[of])
        if len(at := np.flatnonzero(np.isfinite(self._limit_bps[of]))):
            most[at] = np.minimum(most[at], channel.of(at).prbs_for(self._limit_bps[of[at]]))
        if len(at := np.flatnonzero(self._gfbr_bps[of] > 0.0)):
            users, gfbr_bps, within = of[at], self._gfbr_bps[of[at]], most[at]
            needed = channel.of(at).prbs_for(gfbr_bps)
            self.floor_prbs[users] = np.where(self._guaranteed[users], np.minimum(needed, within), 0.0)
            self.due_bps[users] = np.where(needed <= within, gfbr_bps, 0.0)
        self.most_prbs[of] = most

    def share(self, active: Bools, steering: Steering | None = None) -> tuple[Floats, Floats]:
        """Share the PRBs among those users that have something to send.

        Args:
            active: Which users.
            steering: What a slicing policy has granted; None: the slices' own ratios rule.

        Returns:
            The PRBs of each user, and its rate in bit/s.
        """
        most, policy = self.most_prbs, self.policy
        promises = [self.floor_prbs] if self.promises else []
        if steering is not None:
            most = np.minimum(most, steering.ceiling_prbs)
            policy = replace(policy, minimum=np.where(steering.slices, policy.dedicated, policy.minimum))
            # A channel that falls makes guaranteed rates dearer than when the grant was made: they go first.
            promises.append(np.maximum(self.floor_prbs, steering.floor_prbs))
        promises = [np.minimum(floor, most) for floor in promises]
        for floor in promises:
            policy = raised(policy, self.by_slice(floor * active), self.total_prbs)
        given = share_among_slices(self.total_prbs, self.by_slice(most * active), policy)
        prbs = np.zeros(len(active))
        for members, part in zip(self._members, given.tolist(), strict=True):
            at = members[active[members]]
            if len(at):
                prbs[at] = share_among_users(part, most[at], [floor[at] for floor in promises], self._weight[at])
        if not self._gains:
            return prbs, self._channel.rate_bps(prbs)
        users = self.by_slice(active.astype(np.float64))[self._slices]
        gain = proportional_fair_gain(users, self._channel.stream_db(prbs))
        return prbs, np.minimum(self._channel.rate_bps(prbs, gain), self._limit_bps)

    def by_slice(self, prbs: Floats) -> Floats:
        """Return the sums of users' PRBs by slice."""
        return np.bincount(self._slices, prbs, len(self.links)).astype(np.float64, copy=False)

    def alone_bps(self) -> Floats:
        """Return the rate in bit/s that each user would have alone."""
        return self._channel.rate_bps(self.most_prbs)

    def kept(self, first: int, up: Bools) -> Floats:
        """Return the PRBs of each user that a policy must leave to it, 0 for those before the `first`.

        A guaranteed rate is a user's own; and so is, head by head, its part of the minimum of its slice.

        Args:
            first: Where the users begin whom no policy steers.
            up: Whose link is up.
        """
        heads = np.bincount(self._slices, minlength=len(self.links))
        part = (self.policy.minimum / np.maximum(heads, 1))[self._slices]
        kept = np.maximum(self.floor_prbs, np.minimum(self.most_prbs, part))
        return np.where(up & (np.arange(len(kept)) >= first), kept, 0.0)
