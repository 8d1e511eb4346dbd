"""What a node gets out of its resource blocks (PRBs): peak rates, rates at a SINR, and what HARQ costs."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import lambertw

from edge.slices.spectrum import SHANNON_SHARE, Floats, McsTable

# PRBs by bandwidth in MHz at 30 kHz sub-carrier spacing (TS 38.101-1, table 5.3.2-1).
PRBS = {5: 11, 10: 24, 15: 38, 20: 51, 25: 65, 30: 78, 40: 106, 50: 133, 60: 162, 70: 189, 80: 217, 90: 245, 100: 273}
PRB_HZ = 12 * 30e3
# Resource elements a second in one PRB: 14 symbols in a slot of 0.5 ms. They are fewer than its Hertz, because each
# symbol has a cyclic prefix; a table's efficiency is in bits per resource element.
PRB_ELEMENTS_A_S = 12 * 14 / 0.5e-3
MAX_CODE_RATE = 948 / 1024
THERMAL_DBM_A_HZ = -174.0
MAX_TRANSMISSIONS = 4  # of a block by HARQ, before RLC takes over; engineering default


def num_prbs(bandwidth_mhz: int) -> int:
    """Return how many PRBs a carrier has at 30 kHz.

    Raises:
        ValueError: No carrier has this bandwidth.
    """
    if bandwidth_mhz not in PRBS:
        known = ", ".join(map(str, PRBS))
        raise ValueError(f"a carrier of {bandwidth_mhz} MHz is not in TS 38.101-1 table 5.3.2-1 (30 kHz); there are {known}")
    return PRBS[bandwidth_mhz]


def noise_dbm(noise_figure_db: float) -> float:
    """Return the noise in one PRB in dBm."""
    return THERMAL_DBM_A_HZ + 10.0 * float(np.log10(PRB_HZ)) + noise_figure_db


def prb_sinr_db(power_dbm: float, path_loss_db: npt.ArrayLike, noise_figure_db: float) -> Floats:
    """Return the SINR in dB of one PRB that gets all of `power_dbm`, antenna gains included."""
    return power_dbm - np.asarray(path_loss_db, np.float64) - noise_dbm(noise_figure_db)


def peak_bps(prbs: float, layers: int, modulation_order: int, overhead: float, slot_share: float) -> float:
    """Return the peak rate in bit/s of one carrier (TS 38.306 clause 4.1.2, scaling factor 1).

    Args:
        prbs: How many PRBs.
        layers: How many spatial layers.
        modulation_order: Qm of the best MCS.
        overhead: The share of resource elements that carries no data.
        slot_share: The share of time that a TDD pattern gives this direction.
    """
    return layers * modulation_order * MAX_CODE_RATE * prbs * PRB_ELEMENTS_A_S * (1.0 - overhead) * slot_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What links make of the SINR of some users: arrays with an entry a user.

    Attributes:
        power_limited: Whether a sender's power is split over its PRBs, as on the uplink. A downlink has its power per
            PRB, whoever gets the PRB.
        power: The SINR, as a ratio, of one PRB that has all of a sender's power, or a downlink's own, less the table's loss.
        layers: The most spatial layers. They split the power, so only as many are used as the SINR bears.
        most_streams: Over how many streams, PRBs times layers, the power can be split until only the first MCS is left.
        top_efficiency: Of the best MCS, in bits a resource element.
        stream_bps: The rate in bit/s of one layer of one PRB at one bit a resource element.
    """

    power_limited: bool
    power: Floats
    layers: Floats
    most_streams: Floats
    top_efficiency: Floats
    stream_bps: Floats

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """Return the arrays, in a fixed order."""
        return self.power, self.layers, self.most_streams, self.top_efficiency, self.stream_bps

    def of(self, users: npt.NDArray[np.intp]) -> "Channel":
        """Return the channel of some users."""
        power, layers, streams, top, bps = (array[users] for array in self.arrays)
        return Channel(
            power_limited=self.power_limited,
            power=power,
            layers=layers,
            most_streams=streams,
            top_efficiency=top,
            stream_bps=bps,
        )

    def rate_bps(self, prbs: Floats | float, gain: Floats | float = 1.0) -> Floats:
        """Return the rate in bit/s in a number of PRBs, of which a fraction is a share of the slots.

        It is never less in more of them, and concave. A `gain` multiplies what the channel bears, up to the best MCS.
        """
        sharing, streams = self._streams(prbs)
        attained = SHANNON_SHARE * np.log2(1.0 + self.power / np.maximum(streams, 1.0)) * gain
        rate: Floats = prbs / sharing * streams * np.minimum(attained, self.top_efficiency) * self.stream_bps
        return rate

    def stream_db(self, prbs: Floats | float) -> Floats:
        """Return the SINR in dB of one stream in a number of PRBs: what is left of the power when it is split."""
        with np.errstate(divide="ignore"):
            left: Floats = 10.0 * np.log10(self.power / np.maximum(self._streams(prbs)[1], 1.0))
        return left

    def _streams(self, prbs: Floats | float) -> tuple[Floats | float, Floats]:
        """Return over how many PRBs and streams the power is split."""
        # Below one PRB an uplink still fills a whole one, only in fewer slots.
        sharing = np.maximum(prbs, 1.0) if self.power_limited else 1.0
        return sharing, np.minimum(sharing * self.layers, self.most_streams)

    def useful_prbs(self) -> Floats:
        """Return the PRBs over which the power still reaches the first MCS: more are left unused, as a scheduler would."""
        if not self.power_limited:
            return np.where(self.most_streams > 0.0, np.inf, 0.0)
        return np.where(self.most_streams > 0.0, np.maximum(self.most_streams / self.layers, 1.0), 0.0)

    def prbs_for(self, rate_bps: Floats) -> Floats:
        """Return the fewest PRBs that give a rate in bit/s; inf where no number does."""
        with np.errstate(divide="ignore", invalid="ignore"):
            # A share of one PRB, or a downlink's, is linear.
            needed = np.where(rate_bps > 0.0, rate_bps / self.rate_bps(1.0), 0.0)
        if not self.power_limited:
            return needed
        needed = np.where(needed > 1.0, self._split(rate_bps / self.stream_bps) / self.layers, needed)
        # Without the slack the highest rate would be out of reach by a rounding.
        within = rate_bps * (1.0 - 1e-12) <= self.rate_bps(self.useful_prbs())
        return np.where(within, needed, np.inf)

    def _split(self, bits_a_element: Floats) -> Floats:
        """Return over how many streams a power is split to carry so many bits in a resource element of all together.

        With n streams these are n SHANNON_SHARE log2(1 + S / n). For u = S / n it means ln(1 + u) = y u, so that
        u = -W(-y exp(-y)) / y - 1 by the lower branch of Lambert's W. Where the best MCS bounds a stream, it is linear.
        """
        bounded = bits_a_element / self.top_efficiency
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            y = bits_a_element * math.log(2.0) / (SHANNON_SHARE * self.power)
            shared = self.power / (-lambertw(-y * np.exp(-y), -1).real / y - 1.0)
        return np.where(np.isnan(shared), np.inf, np.maximum(bounded, shared))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction between a cell and a kind of terminal.

    Attributes:
        table: The MCS table in use; link adaptation keeps to its block error rate.
        slot_share: The share of time that the TDD pattern gives this direction.
        overhead: The share of resource elements that carries no data.
        layers: The most spatial layers.
        power_limited: See `Channel`.
    """

    table: McsTable
    slot_share: float
    overhead: float
    layers: int = 1
    power_limited: bool = False

    def channel(self, sinr_db: npt.ArrayLike) -> Channel:
        """Return the channel of users by their SINR in dB of one PRB that has all the sender's power, or a downlink's own."""
        sinr, lowest_db = np.asarray(sinr_db, np.float64), self.table.lowest_sinr_db
        ones = np.ones_like(sinr)
        stream_bps = PRB_ELEMENTS_A_S * self.slot_share * (1.0 - self.overhead) * goodput_share(self.table.bler_target)
        return Channel(
            power_limited=self.power_limited,
            power=10.0 ** ((sinr - self.table.loss_db) / 10.0),
            layers=self.layers * ones,
            most_streams=np.where(sinr >= lowest_db, 10.0 ** ((sinr - lowest_db) / 10.0), 0.0),
            top_efficiency=self.table.top_efficiency * ones,
            stream_bps=stream_bps * ones,
        )

    def rate_bps(self, prbs: npt.ArrayLike, sinr_db: npt.ArrayLike) -> Floats:
        """Return the rate in bit/s of users in a number of PRBs at a SINR in dB: see `Channel.rate_bps`."""
        return self.channel(sinr_db).rate_bps(np.asarray(prbs, np.float64))

    def useful_prbs(self, sinr_db: npt.ArrayLike) -> Floats:
        """Return the PRBs that users have use for at a SINR in dB: see `Channel.useful_prbs`."""
        return self.channel(sinr_db).useful_prbs()

    def prbs_for(self, rate_bps: npt.ArrayLike, sinr_db: npt.ArrayLike) -> Floats:
        """Return the fewest PRBs in which users have a rate in bit/s at a SINR in dB: see `Channel.prbs_for`."""
        return self.channel(sinr_db).prbs_for(np.asarray(rate_bps, np.float64))


def goodput_share(bler: float) -> float:
    """Return the share of transmissions that bring new data.

    A block is sent until it arrives, at most four times: (1 - p^4) blocks come over in 1 + p + p^2 + p^3 transmissions,
    which is exactly 1 - p.
    """
    return 1.0 - bler


def residual_bler(bler: float) -> float:
    """Return the share of blocks that HARQ gives up on; RLC acknowledged mode sends them anew, so they are late, not lost."""
    return float(bler**MAX_TRANSMISSIONS)


def harq_delay_s(bler: float, round_trip_s: float) -> float:
    """Return the mean seconds that retransmissions add, each of them one HARQ round trip."""
    return round_trip_s * sum(bler**attempt for attempt in range(1, MAX_TRANSMISSIONS))
