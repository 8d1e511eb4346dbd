"""Who a slice takes in (NSACF, TS 23.501 clause 5.15.11), and whose rate it guarantees (ARP, clause 5.7.2.2).

Applicants ask one after another, in their order. Who finds the slice at its most terminals or sessions is refused.

A guaranteed flow needs the PRBs that give its GFBR, both ways, in all but the worst share of its channel. The flows of a
slice may have the slice's minimum and beyond it, up to its maximum, what is left of the PRBs that no slice is promised.
A flow for which that is too little comes before those that are preemptible and of lower priority, if its slice preempts
and if that is enough. These, and flows without a guarantee that preempt as well, are then taken in anew, by priority and
in order, as far as they fit; the rest comes after them. A flow without its guarantee is still carried, as after a
notification that its GFBR cannot be kept (clause 5.7.2.4).

How the slices are listed makes no difference. If all may preempt each other, the outcome is that of asking by priority.
As one large flow may be taken in before two small ones, a larger cell may guarantee fewer flows; of equal ones it never
does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from edge.slices.profile import WAYS, Direction, Priority, Profile, SliceProfile

Floats = npt.NDArray[np.float64]
NO_SLICE_CAUSE = 62  # 5GMM, "no network slices available" (TS 24.501 table 9.11.3.2.1)
NO_SESSION_CAUSE = 69  # 5GSM, "insufficient resources for specific slice" (TS 24.501 table 9.11.4.2.1)
_ROUNDING = 1e-9  # PRBs; sums in another order must not decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A terminal that asks to be served by a slice. Its guaranteed rates are those of the slice.

    Attributes:
        slice: Index of the slice in the profile.
        sinr_down_db: Median SINR in dB of one PRB.
        sinr_up_db: Median SINR in dB in one PRB that has all the terminal's power.
        spread_db: Standard deviation of both in dB: the fading and, of a terminal that moves, the shadowing too.
        num_sessions: How many PDU sessions it asks for.
    """

    slice: int
    sinr_down_db: float
    sinr_up_db: float
    spread_db: float
    num_sessions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an applicant is told.

    Attributes:
        admitted: Whether it is served at all.
        guaranteed: Whether its rates are guaranteed. In a slice without GFBR none are, and there is no reason for it.
        reason: In words, why it is refused or carried without the guarantee that its slice offers; else empty.
        cause: Number of the refusal, `NO_SLICE_CAUSE` or `NO_SESSION_CAUSE`; None of who is admitted.
        prbs_down: PRBs that are set aside for its guarantee.
        prbs_up: The same, of the uplink.
    """

    admitted: bool
    guaranteed: bool = False
    reason: str = ""
    cause: int | None = None
    prbs_down: float = 0.0
    prbs_up: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What admission did in one slice; terminals are counted, or their PDU sessions.

    Attributes:
        num_ues: Terminals that are served.
        num_sessions: Their PDU sessions.
        refused_ues: Terminals refused because the slice has its most terminals.
        refused_sessions: Sessions refused, with their terminals, because the slice has its most sessions.
        not_guaranteed: Terminals that are served without the guarantee that the slice offers.
    """

    num_ues: int
    num_sessions: int
    refused_ues: int
    refused_sessions: int
    not_guaranteed: int


def admit(profile: Profile, applicants: Sequence[Applicant], percentile: float = 0.05) -> list[Outcome]:
    """Decide who is served, and whose rate is guaranteed, by the rules at the top of this file.

    Args:
        profile: The cell and its slices.
        applicants: Who asks.
        percentile: The share of time in 0..1, exclusive, in which the channel may be too poor for the guarantee.

    Returns:
        An outcome for each applicant, in their order.

    Raises:
        ValueError: `percentile` is out of range, or an applicant names no slice, no session or no channel.
    """
    if not 0.0 < percentile < 1.0:
        raise ValueError(f"percentile: above 0 and below 1; given: {percentile:g}")
    for applicant in applicants:
        _check(profile, applicant)
    outcomes = _refuse_beyond_the_most(profile, applicants)
    ledger = _Ledger(profile)
    for at, (prbs, too_poor) in enumerate(_needs(profile, applicants, percentile)):
        one = profile.slices[applicants[at].slice]
        if not (outcomes[at].admitted and one.qos.guaranteed):
            continue
        if too_poor:
            outcomes[at] = replace(outcomes[at], reason=too_poor)
        else:
            ledger.ask(_Flow(at, applicants[at].slice, one.arp, prbs))
    for at, reason in ledger.reasons.items():
        outcomes[at] = replace(outcomes[at], reason=reason)
    for at, flow in ledger.kept.items():
        outcomes[at] = replace(outcomes[at], guaranteed=True, prbs_down=flow.prbs[0], prbs_up=flow.prbs[1])
    return outcomes


def counters(profile: Profile, applicants: Sequence[Applicant], outcomes: Sequence[Outcome]) -> list[Counters]:
    """Return what `admit` did in each slice, in the order of the profile."""
    found = []
    for index, one in enumerate(profile.slices):
        asked = [(a.num_sessions, o) for a, o in zip(applicants, outcomes, strict=True) if a.slice == index]
        found.append(
            Counters(
                num_ues=sum(o.admitted for _, o in asked),
                num_sessions=sum(sessions for sessions, o in asked if o.admitted),
                refused_ues=sum(o.cause == NO_SLICE_CAUSE for _, o in asked),
                refused_sessions=sum(sessions for sessions, o in asked if o.cause == NO_SESSION_CAUSE),
                not_guaranteed=sum(one.qos.guaranteed and o.admitted and not o.guaranteed for _, o in asked),
            )
        )
    return found


def _check(profile: Profile, applicant: Applicant) -> None:
    if not 0 <= applicant.slice < len(profile.slices):
        raise ValueError(f"applicant: slices are numbered 0 to {len(profile.slices) - 1}; given: {applicant.slice}")
    if applicant.num_sessions < 1:
        raise ValueError(f"applicant: at least one PDU session; given: {applicant.num_sessions}")
    if math.isnan(applicant.sinr_down_db + applicant.sinr_up_db) or not 0.0 <= applicant.spread_db < math.inf:
        raise ValueError(f"applicant: SINR in dB, and a spread that is finite and not negative; given: {applicant}")


def _refuse_beyond_the_most(profile: Profile, applicants: Sequence[Applicant]) -> list[Outcome]:
    """Return who is served by the limits of NSACF; who is refused uses up nothing of them."""
    ues, sessions = [0] * len(profile.slices), [0] * len(profile.slices)
    outcomes = []
    for applicant in applicants:
        index = applicant.slice
        one, most = profile.slices[index].name, profile.slices[index].admission
        if ues[index] == most.max_ues:
            words = f"5GMM cause #{NO_SLICE_CAUSE}: slice {one} has its {most.max_ues} terminals (max_ues)"
            outcomes.append(Outcome(admitted=False, cause=NO_SLICE_CAUSE, reason=words))
        elif sessions[index] + applicant.num_sessions > most.max_sessions:
            words = (
                f"5GSM cause #{NO_SESSION_CAUSE}: slice {one} has {sessions[index]} of {most.max_sessions} PDU sessions "
                f"(max_sessions), and {applicant.num_sessions} more are asked for"
            )
            outcomes.append(Outcome(admitted=False, cause=NO_SESSION_CAUSE, reason=words))
        else:
            ues[index] += 1
            sessions[index] += applicant.num_sessions
            outcomes.append(Outcome(admitted=True))
    return outcomes


def _needs(profile: Profile, applicants: Sequence[Applicant], percentile: float) -> list[tuple[tuple[float, float], str]]:
    """Return the PRBs down and up that each one's GFBR takes, and why it is out of the reach of a single terminal."""
    below = NormalDist().inv_cdf(percentile)
    low_db = np.array([(a.sinr_down_db, a.sinr_up_db) for a in applicants]).reshape(-1, 2)
    low_db = low_db + below * np.array([a.spread_db for a in applicants])[:, None]
    of_slice = np.array([a.slice for a in applicants], np.intp)
    prbs = np.zeros_like(low_db)
    for index, one in enumerate(profile.slices):
        at = np.flatnonzero(of_slice == index)
        for column, way in enumerate(WAYS):
            if (gfbr_bps := one.side(way).gfbr_bps) > 0.0:
                prbs[at, column] = profile.link(one, way).prbs_for(gfbr_bps, low_db[at, column])
    return [
        ((down, up), _too_poor(profile, profile.slices[a.slice], (down, up), low))
        for a, (down, up), low in zip(applicants, prbs.tolist(), low_db.tolist(), strict=True)
    ]


def _too_poor(profile: Profile, one: SliceProfile, prbs: tuple[float, float], low_db: list[float]) -> str:
    for way, needed, sinr_db in zip(WAYS, prbs, low_db, strict=True):
        if needed > (most := profile.most_prbs(one, way)) + _ROUNDING:
            takes = "no number of PRBs reaches" if math.isinf(needed) else f"it takes {needed:.1f} PRBs to reach"
            return f"{way}: {takes} {one.side(way).gfbr_bps:.3g} bit/s at {sinr_db:.1f} dB; a terminal may have {most:.1f}"
    return ""


@dataclass(frozen=True, slots=True)
class _Flow:
    """A guaranteed flow: whose it is, its slice and priority there, and the PRBs that it needs down and up."""

    at: int
    slice: int
    arp: Priority
    prbs: tuple[float, float]

    @property
    def rank(self) -> tuple[int, int]:
        return self.arp.priority, self.at


class _Side:
    """The PRBs of one direction that guaranteed flows hold, slice by slice."""

    def __init__(self, profile: Profile, way: Direction) -> None:
        total, ratios = profile.cell.prbs, [one.side(way).rrm for one in profile.slices]
        self.way = way
        self._minimum = [total * ratio.min / 100 for ratio in ratios]
        self._maximum = [total * ratio.max / 100 for ratio in ratios]
        self._unreserved = total - sum(self._minimum)
        self._held = [0.0] * len(ratios)

    def hold(self, index: int, prbs: float) -> None:
        self._held[index] += prbs

    def room(self, index: int) -> float:
        """Return how many PRBs more a slice may hold."""
        others = sum(max(h - m, 0.0) for at, (h, m) in enumerate(zip(self._held, self._minimum, strict=True)) if at != index)
        return min(self._maximum[index], self._minimum[index] + self._unreserved - others) - self._held[index]


class _Ledger:
    """Which flows are guaranteed so far, and why others are not; all by the index of the applicant."""

    def __init__(self, profile: Profile) -> None:
        self.kept: dict[int, _Flow] = {}
        self.reasons: dict[int, str] = {}
        self._waiting: dict[int, _Flow] = {}
        self._names = [one.name for one in profile.slices]
        self._sides = [_Side(profile, way) for way in WAYS]

    def ask(self, flow: _Flow) -> None:
        """Take in a flow if there is room, or if there is once others have given way."""
        if self._fits(flow):
            self._keep(flow)
        elif not (flow.arp.preempts and self._preempt(flow)):
            self._waiting[flow.at] = flow
            self.reasons[flow.at] = self._shortage(flow)

    def _preempt(self, flow: _Flow) -> bool:
        lower = [other for other in self.kept.values() if other.arp.preemptible and other.arp.priority > flow.arp.priority]
        for other in lower:
            self._drop(other)
        if not self._fits(flow):
            for other in lower:
                self._keep(other)
            return False
        self._keep(flow)
        for other in lower:
            self._waiting[other.at] = other
            ranks = f"ARP priority {flow.arp.priority} before {other.arp.priority}"
            self.reasons[other.at] = f"pre-empted by slice {self._names[flow.slice]}: {ranks}"
        self._take_in_anew({other.at for other in lower})
        return True

    def _take_in_anew(self, lower: set[int]) -> None:
        # Who may not pre-empt must not take the place of those who had their guarantee.
        for other in sorted(self._waiting.values(), key=lambda one: (one.at not in lower and not one.arp.preempts, *one.rank)):
            if self._fits(other):
                self._keep(self._waiting.pop(other.at))
                del self.reasons[other.at]

    def _fits(self, flow: _Flow) -> bool:
        return all(prbs <= side.room(flow.slice) + _ROUNDING for side, prbs in zip(self._sides, flow.prbs, strict=True))

    def _shortage(self, flow: _Flow) -> str:
        for side, prbs in zip(self._sides, flow.prbs, strict=True):
            if prbs > (room := side.room(flow.slice)) + _ROUNDING:
                return f"{side.way}: it takes {prbs:.1f} PRBs, and the slice has {max(room, 0.0):.1f} left to guarantee"
        return ""

    def _keep(self, flow: _Flow) -> None:
        self.kept[flow.at] = flow
        for side, prbs in zip(self._sides, flow.prbs, strict=True):
            side.hold(flow.slice, prbs)

    def _drop(self, flow: _Flow) -> None:
        del self.kept[flow.at]
        for side, prbs in zip(self._sides, flow.prbs, strict=True):
            side.hold(flow.slice, -prbs)
