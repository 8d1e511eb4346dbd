"""What is emulated: the slices of a profile, who is in which, and how many bits a second the cell carries each way."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from edge.slices.profile import Direction, Profile, RrmRatio, SliceProfile
from edge.slices.scheduler import Floats, Policy, max_min, share_among_slices
from fedslice.core.config import validate
from fedslice.core.errors import UsageError

WAYS: tuple[Direction, ...] = ("down", "up")
CORE = "core"
FRAME_BYTES, PAYLOAD_BYTES = 1514, 1448  # a full Ethernet frame, and what TCP carries in it beside Linux's timestamps
TCP_SHARE = PAYLOAD_BYTES / FRAME_BYTES


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """One cell to emulate. A change gives a new plan, checked as the first was.

    Ratios are of the cell's rate rather than of its PRBs: on the wire a bit costs the same whoever sends it.

    Attributes:
        profile: The slices, and what each is promised.
        slice_of: The slice of each terminal, by their names.
        down_bps: What the cell carries to all terminals together, in bit/s of Ethernet frames.
        up_bps: What it carries from them.
        limits_bps: The most that a terminal's channel bears, in bit/s, by terminal and direction; without limit if not there.
    """

    profile: Profile
    slice_of: Mapping[str, str]
    down_bps: float
    up_bps: float
    limits_bps: Mapping[tuple[str, Direction], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the names and rates.

        Raises:
            UsageError: A slice or terminal is not there, or a rate is not a finite number above zero.
        """
        if not self.slice_of or CORE in self.slice_of:
            raise UsageError(f"a cell needs terminals, none of them named {CORE}; given: {', '.join(self.slice_of) or 'none'}")
        self._known(self.slice_of.values())
        for name, _ in self.limits_bps:
            self.index(name)
        for rate_bps in (self.down_bps, self.up_bps, *self.limits_bps.values()):
            if not (rate_bps > 0 and math.isfinite(rate_bps)):
                raise UsageError(f"rates of an emulated cell are finite and above 0 bit/s; given: {rate_bps:g}")

    @cached_property
    def terminals(self) -> tuple[str, ...]:
        """Return the names of the terminals, in order."""
        return tuple(self.slice_of)

    def index(self, terminal: str) -> int:
        """Return the place of a terminal in the order of terminals.

        Raises:
            UsageError: There is no such terminal.
        """
        if terminal not in self.slice_of:
            raise UsageError(f"no terminal is called {terminal}; there are {', '.join(self.slice_of)}")
        return self.terminals.index(terminal)

    def home(self, terminal: str) -> SliceProfile:
        """Return the slice of a terminal."""
        return next(one for one in self.profile.slices if one.name == self.slice_of[terminal])

    def capacity_bps(self, way: Direction) -> float:
        """Return what the cell carries one way, in bit/s."""
        return self.down_bps if way == "down" else self.up_bps

    def most_bps(self, terminal: str, way: Direction) -> float:
        """Return the most a terminal may get one way in bit/s: by its slice's promises and its channel; inf is no limit."""
        side = self.home(terminal).side(way)
        return min(side.mfbr_bps, side.ue_ambr_bps, side.slice_mbr_bps, self.limits_bps.get((terminal, way), math.inf))

    def shares_bps(self, active: Sequence[str], way: Direction) -> dict[str, float]:
        """Return the rate in bit/s of each of the terminals that have something to carry: slices first, then terminals."""
        most = {name: min(self.most_bps(name, way), self.capacity_bps(way)) for name in active}
        users = [[name for name in active if self.slice_of[name] == one.name] for one in self.profile.slices]
        demand = [sum(most[name] for name in names) for names in users]
        shares = share_among_slices(self.capacity_bps(way), demand, self._policies[way])
        rates: dict[str, float] = {}
        for share, names in zip(shares.tolist(), users, strict=True):
            rates |= zip(names, max_min(share, [most[name] for name in names], np.ones(len(names))).tolist(), strict=True)
        return rates

    def resliced(self, ratios: Mapping[str, RrmRatio], ways: Sequence[Direction] = WAYS) -> "CellPlan":
        """Return the plan with other ratios for some slices, in one or both directions.

        Raises:
            UsageError: There is no such slice, or the ratios of all slices do not fit together.
        """
        self._known(ratios)
        tables = self.profile.model_dump(exclude_unset=True)
        for one in tables["slices"]:
            for way in ways:
                if one["name"] in ratios:
                    one[way]["rrm"] = ratios[one["name"]].model_dump()
        return replace(self, profile=validate(Profile, tables, "new ratios"))

    def limited(self, rates_bps: Mapping[str, float], way: Direction) -> "CellPlan":
        """Return the plan with other limits in bit/s for some terminals, one way; inf takes a limit away.

        Raises:
            UsageError: There is no such terminal, or a rate is not above zero.
        """
        limits = {**self.limits_bps, **{(name, way): rate_bps for name, rate_bps in rates_bps.items()}}
        return replace(self, limits_bps={key: rate_bps for key, rate_bps in limits.items() if rate_bps != math.inf})

    @cached_property
    def _policies(self) -> dict[Direction, Policy]:
        return {way: self._policy(way) for way in WAYS}

    def _policy(self, way: Direction) -> Policy:
        ratios = [one.side(way).rrm for one in self.profile.slices]

        def rates_bps(percent: Sequence[int]) -> Floats:
            return np.asarray(percent, np.float64) * self.capacity_bps(way) / 100

        return Policy(
            dedicated=rates_bps([r.dedicated for r in ratios]),
            minimum=rates_bps([r.min for r in ratios]),
            maximum=rates_bps([r.max for r in ratios]),
            weight=np.array([one.weight for one in self.profile.slices]),
        )

    def _known(self, slices: Iterable[str]) -> None:
        names = [one.name for one in self.profile.slices]
        if unknown := sorted(set(slices) - set(names)):
            raise UsageError(f"no slice is called {unknown[0]}; there are {', '.join(names)}")
