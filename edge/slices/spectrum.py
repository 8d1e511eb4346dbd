"""What one resource element carries at a given SINR: the MCS and CQI tables of TS 38.214."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = tuple[tuple[int, float], ...]

# What link adaptation reaches of Shannon's bound: SE = 0.75 log2(1 + SINR), which puts CQI 1..15 at -8..22 dB.
SHANNON_SHARE = 0.75


def attainable(sinr_db: npt.ArrayLike) -> Floats:
    """Return the spectral efficiency in bits a symbol that a SINR in dB supports, before any table bounds it."""
    return SHANNON_SHARE * np.log2(1.0 + 10.0 ** (np.asarray(sinr_db, np.float64) / 10.0))


def required_sinr_db(efficiency: npt.ArrayLike) -> Floats:
    """Return the SINR in dB that a spectral efficiency in bits a symbol needs: the inverse of `attainable`."""
    return 10.0 * np.log10(np.exp2(np.asarray(efficiency, np.float64) / SHANNON_SHARE) - 1.0)


@dataclass(frozen=True, slots=True)
class McsTable:
    """One MCS table of TS 38.214 clause 5.1.3.1 with the CQI table of clause 5.2.2.1 that goes with it.

    Attributes:
        mcs_rows: Modulation order Qm and code rate R x 1024 by MCS index.
        cqi_rows: The same by CQI, beginning with CQI 1; CQI 0 is "out of range".
        bler_target: The block error rate at which a terminal reports its CQI.
        margin_db: What each row needs in dB above `required_sinr_db`, which is for a block error rate of 0.1.
        loss_db: What `efficiency` takes off the SINR in dB: the margin, and half a step to run amid the stairs.
    """

    mcs_rows: Rows
    cqi_rows: Rows
    bler_target: float
    margin_db: float = 0.0
    loss_db: float = field(init=False, repr=False, compare=False)
    efficiencies: Floats = field(init=False, repr=False, compare=False)
    _order: npt.NDArray[np.intp] = field(init=False, repr=False, compare=False)
    _mcs_sinr_db: Floats = field(init=False, repr=False, compare=False)
    _cqi_sinr_db: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out what the rows are worth, and which SINR each needs."""
        efficiencies = _efficiencies(self.mcs_rows)
        # Table 1 goes down from MCS 16 to 17, so a search must go by efficiency and not by index.
        order = np.argsort(efficiencies, kind="stable")
        needed_db = required_sinr_db(efficiencies[order]) + self.margin_db
        derived: dict[str, Any] = {
            "efficiencies": efficiencies,
            "_order": order,
            "_mcs_sinr_db": needed_db,
            "_cqi_sinr_db": required_sinr_db(_efficiencies(self.cqi_rows)) + self.margin_db,
        }
        object.__setattr__(self, "loss_db", self.margin_db + float(np.diff(needed_db).mean()) / 2.0)
        for name, value in derived.items():
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def modulation_order(self) -> int:
        """Return the highest Qm, in bits a symbol."""
        return max(order for order, _ in self.mcs_rows)

    @property
    def top_efficiency(self) -> float:
        """Return the efficiency of the best row, in bits a symbol."""
        return float(self.efficiencies.max())

    @property
    def lowest_sinr_db(self) -> float:
        """Return the SINR in dB below which not even the sturdiest row gets through."""
        return float(self._mcs_sinr_db[0])

    def mcs(self, sinr_db: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return the index of the most efficient MCS that a SINR in dB supports; -1 where there is none."""
        reached = np.searchsorted(self._mcs_sinr_db, np.asarray(sinr_db, np.float64), side="right")
        return np.where(reached > 0, self._order[np.maximum(reached - 1, 0)], -1)

    def cqi(self, sinr_db: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return the CQI 0..15 that a terminal reports at a SINR in dB."""
        return np.searchsorted(self._cqi_sinr_db, np.asarray(sinr_db, np.float64), side="right")

    def stepped_efficiency(self, sinr_db: npt.ArrayLike) -> Floats:
        """Return the efficiency in bits a symbol of the one MCS that a SINR in dB supports. It never falls as SINR grows."""
        mcs = self.mcs(sinr_db)
        return np.where(mcs >= 0, self.efficiencies[np.maximum(mcs, 0)], 0.0)

    def efficiency(self, sinr_db: npt.ArrayLike) -> Floats:
        """Return the efficiency in bits a symbol at a SINR in dB, as a curve through the middle of the table's steps.

        Within one transfer the channel moves over several steps, so what counts is their mean and not the step of one
        instant. It is zero below the first row and flat at the best.
        """
        decibels = np.asarray(sinr_db, np.float64)
        smooth = np.minimum(attainable(decibels - self.loss_db), self.top_efficiency)
        return np.where(decibels >= self.lowest_sinr_db, smooth, 0.0)


def _efficiencies(rows: Rows) -> Floats:
    return np.array([order * rate / 1024.0 for order, rate in rows])


def _rows(**rates: str) -> Rows:
    """Return rows from code rates x 1024, grouped by modulation."""
    orders = {"qpsk": 2, "qam16": 4, "qam64": 6, "qam256": 8}
    return tuple((orders[name], float(rate)) for name, text in rates.items() for rate in text.split())


# TS 38.214: MCS tables 5.1.3.1-1 to -3 with CQI tables 5.2.2.1-2 to -4.
TABLES = {
    1: McsTable(  # up to 64QAM
        _rows(
            qpsk="120 157 193 251 308 379 449 526 602 679",
            qam16="340 378 434 490 553 616 658",
            qam64="438 466 517 567 616 666 719 772 822 873 910 948",
        ),
        _rows(qpsk="78 120 193 308 449 602", qam16="378 490 616", qam64="466 567 666 772 873 948"),
        0.1,
    ),
    2: McsTable(  # up to 256QAM
        _rows(
            qpsk="120 193 308 449 602",
            qam16="378 434 490 553 616 658",
            qam64="466 517 567 616 666 719 772 822 873",
            qam256="682.5 711 754 797 841 885 916.5 948",
        ),
        _rows(qpsk="78 193 449", qam16="378 490 616", qam64="466 567 666 772 873", qam256="711 797 885 948"),
        0.1,
    ),
    3: McsTable(  # low spectral efficiency, for what must arrive at the first attempt
        _rows(
            qpsk="30 40 50 64 78 99 120 157 193 251 308 379 449 526 602",
            qam16="340 378 434 490 553 616",
            qam64="438 466 517 567 616 666 719 772",
        ),
        _rows(qpsk="30 50 78 120 193 308 449 602", qam16="378 490 616", qam64="466 567 666 772"),
        1e-5,
        margin_db=3.0,  # engineering default for 1e-5 instead of 0.1
    ),
}
