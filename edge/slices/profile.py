"""A cell and its slices as they are written down: what each is promised, and the rules that a promise must keep."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from edge.slices.channel import Dynamics
from edge.slices.fiveqi import FiveQi, fiveqi
from edge.slices.link import Link, num_prbs, peak_bps
from edge.slices.pathloss import Place, Positive
from edge.slices.spectrum import TABLES
from fedslice.core.config import Table, load, validate

Direction = Literal["down", "up"]
WAYS: tuple[Direction, Direction] = ("down", "up")
Percent = Annotated[int, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, lt=1)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # bit/s; inf is no limit
PowerDbm = Annotated[float, Field(ge=-200, le=80)]
GainDb = Annotated[float, Field(ge=-100, le=60)]
Count = Annotated[int, Field(ge=1)]
NO_SD = "FFFFFF"
_INFINITE = float("inf")


class Snssai(Table):
    """Which slice: S-NSSAI (TS 23.003 clause 28.4.2).

    SST 1 is eMBB, 2 URLLC, 3 massive IoT (TS 23.501 table 5.15.2.2-1); from 128 on they are the operator's. SD
    tells slices of one type apart; FFFFFF says that there is none.
    """

    sst: Annotated[int, Field(ge=0, le=255)]
    sd: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{6}$")] = NO_SD

    @field_validator("sd")
    @classmethod
    def _one_spelling(cls, sd: str) -> str:
        return sd.upper()

    def __str__(self) -> str:
        """Return `SST`, or `SST-SD` where there is an SD."""
        return str(self.sst) if self.sd == NO_SD else f"{self.sst}-{self.sd}"


class RrmRatio(Table):
    """RRMPolicyRatio in percent of the PRBs of one direction (TS 28.541 clause 4.3.36).

    `dedicated` is never another's; the rest of `min` is guaranteed, and lent while idle; up to `max` may be borrowed.
    """

    dedicated: Percent = 0
    min: Percent = 0
    max: Percent = 100

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.dedicated <= self.min <= self.max:
            raise ValueError(
                f"TS 28.541 clause 4.3.36: dedicated <= min <= max; given: {self.dedicated}, {self.min}, {self.max} percent"
            )
        return self


class SliceDirection(Table):
    """What a slice is given one way. Rates are in bit/s, and per flow or terminal rather than of the slice's sum.

    `gfbr_bps` and `mfbr_bps` bound a guaranteed flow; `ue_ambr_bps` bounds all other flows of a terminal together, and
    `slice_mbr_bps` all of its flows in the slice (TS 23.501 clauses 5.7.1.8 and 5.7.2.5 to 5.7.2.6). `delay_ms` is
    what an idle link takes from one end to the other.
    """

    rrm: RrmRatio = RrmRatio()
    mcs_table: Literal[1, 2, 3] = 1
    delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    gfbr_bps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    mfbr_bps: Limit = _INFINITE
    ue_ambr_bps: Limit = _INFINITE
    slice_mbr_bps: Limit = _INFINITE

    @model_validator(mode="after")
    def _rates_ordered(self) -> Self:
        if self.gfbr_bps > self.mfbr_bps:
            raise ValueError(f"TS 23.501 clause 5.7.2.5: GFBR <= MFBR; given: {self.gfbr_bps:g}, {self.mfbr_bps:g} bit/s")
        if self.gfbr_bps > self.slice_mbr_bps:
            raise ValueError(f"UE-Slice-MBR holds every GFBR; given: {self.slice_mbr_bps:g} below {self.gfbr_bps:g} bit/s")
        return self


class Priority(Table):
    """Who gives way to whom when a slice is full: ARP (TS 23.501 clause 5.7.2.2). Priority 1 is the highest."""

    priority: Annotated[int, Field(ge=1, le=15)] = 8
    preempts: bool = False
    preemptible: bool = True


class Admission(Table):
    """How many terminals and PDU sessions a slice takes in (NSACF, TS 23.501 clause 5.15.11)."""

    max_ues: Count = 100_000  # as many as a federation can have
    max_sessions: Count = 100_000


class Terminal(Table):
    """What kind of terminal uses a slice. The defaults are those of power class 3."""

    bandwidth_mhz: int = 100
    power_dbm: PowerDbm = 23.0
    noise_figure_db: Annotated[float, Field(ge=0, le=20)] = 9.0  # engineering default
    layers_down: Annotated[int, Field(ge=1, le=8)] = 2
    layers_up: Annotated[int, Field(ge=1, le=4)] = 1

    @field_validator("bandwidth_mhz")
    @classmethod
    def _known(cls, bandwidth_mhz: int) -> int:
        num_prbs(bandwidth_mhz)
        return bandwidth_mhz


class SliceProfile(Table):
    """One slice of a cell. `weight` is its pace in what is shared beyond the minima."""

    name: Annotated[str, Field(min_length=1)]
    snssai: Snssai
    fiveqi: int
    down: SliceDirection
    up: SliceDirection
    weight: Positive = 1.0
    arp: Priority = Priority()
    admission: Admission = Admission()
    terminal: Terminal = Terminal()

    @property
    def qos(self) -> FiveQi:
        """Return the row of the slice's 5QI."""
        return fiveqi(self.fiveqi)

    def side(self, direction: Direction) -> SliceDirection:
        """Return what the slice is given one way."""
        return self.down if direction == "down" else self.up

    @field_validator("fiveqi")
    @classmethod
    def _standardised(cls, number: int) -> int:
        fiveqi(number)
        return number

    @model_validator(mode="after")
    def _promises_fit_the_5qi(self) -> Self:
        qos = self.qos
        if not qos.guaranteed and self.down.gfbr_bps + self.up.gfbr_bps > 0:
            raise ValueError(f"TS 23.501 clause 5.7.2.5: only GBR flows have a GFBR, and 5QI {self.fiveqi} is not one")
        if qos.guaranteed and self.down.gfbr_bps + self.up.gfbr_bps == 0:
            raise ValueError(f"TS 23.501 clause 5.7.2.5: 5QI {self.fiveqi} is {qos.resource}, so it needs a gfbr_bps down or up")
        for way in (self.down, self.up):
            if qos.guaranteed and way.ue_ambr_bps < _INFINITE:
                raise ValueError(f"TS 23.501 clause 5.7.2.6: UE-AMBR bounds non-GBR flows; 5QI {self.fiveqi} has mfbr_bps")
            if not qos.guaranteed and way.mfbr_bps < _INFINITE:
                raise ValueError(f"TS 23.501 clause 5.7.2.5: MFBR bounds GBR flows; 5QI {self.fiveqi} has ue_ambr_bps")
            if way.delay_ms >= qos.delay_budget_ms:
                raise ValueError(
                    f"TS 23.501 table 5.7.4-1: 5QI {self.fiveqi} has {qos.delay_budget_ms} ms, "
                    f"and the idle link alone takes {way.delay_ms:g} ms"
                )
        return self


class Cell(Table):
    """The carrier and its antenna. Powers include the antenna's gain; overheads are those of TS 38.306 clause 4.1.2."""

    carrier_ghz: Annotated[float, Field(ge=0.5, le=7.125)]  # FR1, from where TR 38.901 holds
    bandwidth_mhz: int
    subcarrier_khz: Literal[30] = 30
    down_share: Annotated[float, Field(gt=0, lt=1)] = 0.74  # of time; DDDSU
    up_share: Annotated[float, Field(gt=0, lt=1)] = 0.23
    down_overhead: Share = 0.14  # engineering default, as is the next
    up_overhead: Share = 0.08
    power_dbm: PowerDbm = 44.0  # of the whole carrier; engineering default
    noise_figure_db: Annotated[float, Field(ge=0, le=20)] = 5.0
    receive_gain_db: GainDb = 0.0
    noise_rise_db: Annotated[float, Field(ge=0, le=40)] = 0.0  # by the interference of other cells, both ways
    scheduler: Literal["round_robin", "proportional_fair"] = "round_robin"
    place: Place
    dynamics: Dynamics = Dynamics()

    @property
    def prbs(self) -> int:
        """Return how many PRBs the carrier has."""
        return num_prbs(self.bandwidth_mhz)

    @field_validator("bandwidth_mhz")
    @classmethod
    def _known(cls, bandwidth_mhz: int) -> int:
        num_prbs(bandwidth_mhz)
        return bandwidth_mhz

    @model_validator(mode="after")
    def _time_is_split_once(self) -> Self:
        if self.down_share + self.up_share > 1:
            raise ValueError(f"TDD: down_share + up_share <= 1; given: {self.down_share:g} + {self.up_share:g}")
        return self


class Profile(Table):
    """A cell and its slices."""

    cell: Cell
    slices: Annotated[list[SliceProfile], Field(min_length=1)]

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        _once("name", [one.name for one in self.slices])
        _once("S-NSSAI", [str(one.snssai) for one in self.slices])
        return self

    @model_validator(mode="after")
    def _promises_fit_the_cell(self) -> Self:
        for way in WAYS:
            ratios = [one.side(way).rrm for one in self.slices]
            for part, total in (("dedicated", sum(r.dedicated for r in ratios)), ("min", sum(r.min for r in ratios))):
                if total > 100:
                    raise ValueError(f"TS 28.541 clause 4.3.36: the {part} of all slices sum to at most 100; {way}: {total}")
            for one in self.slices:
                if (gfbr_bps := one.side(way).gfbr_bps) > (most_bps := self.peak_bps(one, way)):
                    raise ValueError(
                        f"TS 38.306 clause 4.1.2: slice {one.name} peaks at {most_bps:.3g} bit/s {way}, "
                        f"below its GFBR of {gfbr_bps:.3g}"
                    )
        return self

    def link(self, one: SliceProfile, way: Direction) -> Link:
        """Return the radio link between the cell and a terminal of a slice, one way."""
        cell, terminal, table = self.cell, one.terminal, TABLES[one.side(way).mcs_table]
        if way == "down":
            return Link(table=table, slot_share=cell.down_share, overhead=cell.down_overhead, layers=terminal.layers_down)
        return Link(
            table=table,
            slot_share=cell.up_share,
            overhead=cell.up_overhead,
            layers=terminal.layers_up,
            power_limited=True,
        )

    def most_prbs(self, one: SliceProfile, way: Direction) -> float:
        """Return the PRBs that a single terminal of a slice can have: the slice's maximum, or the terminal's bandwidth."""
        return min(self.cell.prbs * one.side(way).rrm.max / 100, num_prbs(one.terminal.bandwidth_mhz))

    def peak_bps(self, one: SliceProfile, way: Direction) -> float:
        """Return the peak rate in bit/s of a single terminal of a slice (TS 38.306 clause 4.1.2)."""
        link = self.link(one, way)
        prbs = self.most_prbs(one, way)
        return peak_bps(prbs, link.layers, link.table.modulation_order, link.overhead, link.slot_share)


def load_profile(path: Path) -> Profile:
    """Read a profile from a TOML file.

    Raises:
        UsageError: The file cannot be read, or says which rule it breaks.
    """
    return validate(Profile, load(path), str(path))


def _once(what: str, values: Sequence[str]) -> None:
    if twice := sorted(value for value, count in Counter(values).items() if count > 1):
        raise ValueError(f"slices: the {what} {twice[0]} is used twice")
