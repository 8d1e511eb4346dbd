"""The terminals of a cell: where each is, how it moves, and how well it is heard at any moment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from edge.slices.channel import Interruptions, Wander, interruptions, obstructions_db
from edge.slices.link import prb_sinr_db
from edge.slices.pathloss import Bools, Floats
from edge.slices.profile import Profile
from fedslice.core.seeds import rng

Indices = npt.NDArray[np.intp]
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A terminal: the index of its slice, how far it is from the antenna, and how fast it moves.

    Without a distance it stands anywhere on the floor around the antenna, each spot as likely as any other.
    """

    slice: int
    distance_m: float | None = None
    speed_m_s: float = 0.0


class Terminals:
    """The channel of every terminal of a cell, as a function of time that the seed fixes."""

    def __init__(self, profile: Profile, spots: Sequence[Spot], seed: int) -> None:
        """Place the terminals.

        Args:
            profile: The cell and its slices.
            spots: One a terminal.
            seed: The seed of the run.
        """
        count, place, dynamics = len(spots), profile.cell.place, profile.cell.dynamics
        near, far = place.nearest_m, place.farthest_m
        drawn = np.sqrt(rng(seed, "place").uniform(near**2, far**2, count))
        given = np.array([math.nan if s.distance_m is None else s.distance_m for s in spots], np.float64)
        self._start_m = np.where(np.isnan(given), drawn, given)
        self._speed_m_s = np.array([s.speed_m_s for s in spots], np.float64)
        self._profile, self._seed = profile, seed
        self._obstruction_db = obstructions_db(place, count, rng(seed, "obstruction"))
        self._shadow = Wander(count, dynamics.decorrelation_m, rng(seed, "shadow"))
        self._sight = Wander(count, place.sight_correlation_m, rng(seed, "sight"))
        self._fading = Wander(count, dynamics.coherence_s, rng(seed, "fading"))
        kinds = [profile.slices[s.slice].terminal for s in spots]
        self._power_dbm = np.array([k.power_dbm for k in kinds], np.float64)
        self._noise_figure_db = np.array([k.noise_figure_db for k in kinds], np.float64)
        # Where nobody moves it stays as it is, and all else of it would be worked out anew in every step.
        self._still_db = None if self.move else self._loss_db(0.0, np.arange(count))

    @property
    def changes(self) -> bool:
        """Return whether the channel of any terminal changes with time, but for outages."""
        return self._profile.cell.dynamics.fading_db > 0 or self.move

    @property
    def move(self) -> bool:
        """Return whether any terminal moves."""
        return bool(self._speed_m_s.any())

    @property
    def step_s(self) -> float:
        """Return the time in s over which fading barely moves: half of what it takes to forget."""
        return self._profile.cell.dynamics.coherence_s / 2.0

    def distance_m(self, at_s: float, who: Indices) -> Floats:
        """Return how far terminals are at a moment: who moves goes to and fro between the nearest and the farthest spot."""
        start, place = self._start_m[who], self._profile.cell.place
        span = place.farthest_m - place.nearest_m
        if span == 0.0 or not self.move:
            return start
        around = np.mod(start - place.nearest_m + self._speed_m_s[who] * at_s, 2.0 * span)
        return np.where(self._speed_m_s[who] > 0, place.nearest_m + np.minimum(around, 2.0 * span - around), start)

    def path_loss_db(self, at_s: float, who: Indices) -> Floats:
        """Return the path loss of terminals in dB at a moment, with shadows and obstructions, without fading."""
        return self._loss_db(at_s, who) if self._still_db is None else self._still_db[who]

    def _loss_db(self, at_s: float, who: Indices) -> Floats:
        place, way_m = self._profile.cell.place, self._speed_m_s[who] * at_s
        distance_m = self.distance_m(at_s, who)
        # One normal draw along the way makes sight come and go in places, not from one moment to the next.
        los = self.sees(distance_m, way_m, who)
        shadow_db = place.shadow_sigma_db(los) * self._shadow.at(way_m, who)
        return place.path_loss_db(distance_m, los, self._profile.cell.carrier_ghz) + shadow_db + self._obstruction_db[who]

    def sees(self, distance_m: Floats, way_m: Floats, who: Indices) -> Bools:
        """Return which terminals see the antenna (TR 38.901 clauses 7.4.2 and 7.6.3.3)."""
        return np.asarray(ndtr(self._sight.at(way_m, who)) < self._profile.cell.place.los_probability(distance_m))

    def sinr_db(self, at_s: float, who: Indices, *, faded: bool = True) -> tuple[Floats, Floats]:
        """Return the SINR in dB of one PRB, down with the power that a PRB has and up with all of a terminal's.

        A TDD channel is the same both ways, and so is its fading.

        Args:
            at_s: The moment.
            who: Which terminals.
            faded: Whether fading is in it; without, it is the median around which the channel moves.
        """
        cell = self._profile.cell
        loss_db = self.path_loss_db(at_s, who) + cell.noise_rise_db
        if faded and cell.dynamics.fading_db > 0:
            loss_db = loss_db - cell.dynamics.fading_db * self._fading.at(at_s, who)
        prb_dbm = cell.power_dbm - 10.0 * math.log10(cell.prbs)
        down_db = prb_sinr_db(prb_dbm, loss_db, 0.0) - self._noise_figure_db[who]
        up_db = self._power_dbm[who] + cell.receive_gain_db + prb_sinr_db(0.0, loss_db, cell.noise_figure_db)
        return down_db, up_db

    def spread_db(self, who: Indices) -> Floats:
        """Return the standard deviation in dB of terminals' channels around their median."""
        dynamics, place = self._profile.cell.dynamics, self._profile.cell.place
        sigma_db = place.shadow_sigma_db(np.zeros(len(who), np.bool_))
        return np.hypot(dynamics.fading_db, np.where(self._speed_m_s[who] > 0, sigma_db, 0.0))

    def availability(self, num_nodes: int) -> "Availability":
        """Return when links are down: outages of all, and handovers of those that move. The first terminals are nodes."""
        return Availability(self._profile, self._speed_m_s > 0, num_nodes, self._seed)


class Availability:
    """When the link of each terminal is up. Each hour is drawn for itself, and begins with all links up."""

    def __init__(self, profile: Profile, moving: Bools, num_nodes: int, seed: int) -> None:
        """Keep what is to be drawn.

        Args:
            profile: Says how often links go and for how long.
            moving: Which terminals have handovers.
            num_nodes: How many of the terminals are nodes: others beside them change nothing for them.
            seed: The seed of the run.
        """
        self._dynamics, self._moving, self._seed = profile.cell.dynamics, moving, seed
        self._groups = {"node": num_nodes, "other": len(moving) - num_nodes}
        self._hour = lru_cache(maxsize=2)(self._drawn)

    def _drawn(self, hour: int) -> list[Floats]:
        """Return begins and ends by turns of all that happens in an hour, for outages and for handovers.

        They are moments as `at` tells them: who asks there must find the change done, however sums round.
        """
        outages = self._rows("outage", self._dynamics.outage, hour)
        if not self._moving.any():
            return [outages]
        handovers = self._rows("handover", self._dynamics.handover, hour)
        return [outages, np.where(self._moving[:, None], handovers, math.inf)]

    def _rows(self, name: str, kind: Interruptions, hour: int) -> Floats:
        drawn = [
            interruptions(kind, count, _HOUR_S, rng(self._seed, name, group, hour)).reshape(count, -1)
            for group, count in self._groups.items()
            if count
        ]
        widest = max((rows.shape[1] for rows in drawn), default=0)
        padded = [np.pad(rows, ((0, 0), (0, widest - rows.shape[1])), constant_values=math.inf) for rows in drawn]
        return hour * _HOUR_S + np.concatenate(padded) if padded else np.empty((0, 0))

    def at(self, at_s: npt.ArrayLike, who: Indices) -> tuple[Bools, Floats]:
        """Return which terminals' links are up at a moment, or each at its own, and when each may next change."""
        moments = np.broadcast_to(np.asarray(at_s, np.float64), who.shape)
        hours = np.floor(moments / _HOUR_S)
        up, change_s = np.ones(len(who), np.bool_), (hours + 1.0) * _HOUR_S
        for hour in np.unique(hours).tolist():
            here = np.flatnonzero(hours == hour)
            for edges in self._hour(int(hour)):
                rows = zip(who[here].tolist(), moments[here].tolist(), strict=True)
                passed = np.array([edges[node].searchsorted(moment, side="right") for node, moment in rows], np.intp)
                up[here] &= passed % 2 == 0
                following = edges[who[here], np.minimum(passed, edges.shape[1] - 1)]
                following = np.where(passed < edges.shape[1], following, math.inf)
                change_s[here] = np.minimum(change_s[here], following)
        return up, change_s
