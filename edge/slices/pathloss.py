"""How much of the power arrives: path loss and line of sight of TR 38.901, by kind of place."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedslice.core.config import Table

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Kind = Literal["InF-SL", "InF-DL", "InF-SH", "InF-DH", "InH-open", "InH-mixed", "UMi", "UMa"]

LIGHT_M_A_S = 3.0e8  # TR 38.901 table 7.4.1-1, note 1, rounds it so
_GROUND_M = 1.0  # effective environment height h_E of the same note, for terminals below 13 m


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """One scenario of TR 38.901 table 7.4.1-1: where it holds, and how it scatters."""

    nearest_m: float
    farthest_m: float
    los_sigma_db: float
    nlos_sigma_db: float
    nlos: Callable[[Floats, float, float], Floats]  # 3D distance in m, carrier in GHz, terminal height in m


def _inf(sigma_db: float, *lines: tuple[float, float]) -> _Model:
    """Return a factory whose NLOS loss is the highest of lines, each an offset and a slope a decade of distance, in dB."""
    return _Model(
        nearest_m=1.0,
        farthest_m=600.0,
        los_sigma_db=4.3,  # engineering default: public copies of the table say 4.0 to 4.32
        nlos_sigma_db=sigma_db,
        nlos=lambda d, ghz, _: np.max([offset + slope * np.log10(d) for offset, slope in lines], axis=0) + 20.0 * np.log10(ghz),
    )


_SPARSE_LOW = (33.0, 25.5)
_INH = _Model(
    nearest_m=1.0,
    farthest_m=150.0,
    los_sigma_db=3.0,
    nlos_sigma_db=8.03,
    nlos=lambda d, ghz, _: 17.3 + 38.3 * np.log10(d) + 24.9 * np.log10(ghz),
)
MODELS: Mapping[Kind, _Model] = MappingProxyType(
    {
        "InF-SL": _inf(5.7, _SPARSE_LOW),
        "InF-DL": _inf(7.2, (18.6, 35.7), _SPARSE_LOW),  # near by, its own line would lose less than sparse clutter
        "InF-SH": _inf(5.9, (32.4, 23.0)),
        "InF-DH": _inf(4.0, (33.63, 21.9)),
        "InH-open": _INH,
        "InH-mixed": _INH,
        "UMi": _Model(
            nearest_m=10.0,
            farthest_m=5000.0,
            los_sigma_db=4.0,
            nlos_sigma_db=7.82,
            nlos=lambda d, ghz, ue_m: 22.4 + 35.3 * np.log10(d) + 21.3 * np.log10(ghz) - 0.3 * (ue_m - 1.5),
        ),
        "UMa": _Model(
            nearest_m=10.0,
            farthest_m=5000.0,
            los_sigma_db=4.0,
            nlos_sigma_db=6.0,
            nlos=lambda d, ghz, ue_m: 13.54 + 39.08 * np.log10(d) + 20.0 * np.log10(ghz) - 0.6 * (ue_m - 1.5),
        ),
    }
)


class Place(Table):
    """What surrounds the antenna, and how far from it nodes are.

    Distances are along the floor. Clutter (its density, size and height) is asked for in factories (InF) alone; without
    a size it has the kind's own (TR 38.901 table 7.2-4).
    """

    kind: Kind
    nearest_m: Positive = 10.0
    farthest_m: Positive
    gnb_height_m: Positive
    ue_height_m: Positive = 1.5
    clutter_density: Annotated[float, Field(gt=0, lt=1)] = 0.3
    clutter_size_m: Positive | None = None
    clutter_height_m: Positive = 3.0
    obstructed_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    obstruction_db: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _within_the_model(self) -> Self:
        model = MODELS[self.kind]
        if not model.nearest_m <= self.nearest_m <= self.farthest_m <= model.farthest_m:
            raise ValueError(
                f"TR 38.901 table 7.4.1-1: {self.kind} holds from {model.nearest_m:g} to {model.farthest_m:g} m; "
                f"given: {self.nearest_m:g} to {self.farthest_m:g} m"
            )
        # Above 13 m the table draws h_E at random and raises the LOS probability: neither is modelled.
        if self.kind in ("UMi", "UMa") and not _GROUND_M < self.ue_height_m <= 13.0:
            raise ValueError(f"TR 38.901 clause 7.4: {self.kind} is modelled for ue_height_m above 1 up to 13 m")
        if self.kind in ("UMi", "UMa") and self.gnb_height_m <= _GROUND_M:
            raise ValueError(f"TR 38.901 table 7.4.1-1: {self.kind} needs gnb_height_m above 1 m")
        return self

    @model_validator(mode="after")
    def _clutter_fits_the_factory(self) -> Self:
        if not self.kind.startswith("InF"):
            return self
        sparse = self.kind in ("InF-SL", "InF-SH")
        if sparse != (self.clutter_density < 0.4):
            rule = "sparse means below 0.4" if sparse else "dense means 0.4 or more"
            raise ValueError(f"TR 38.901 table 7.2-4: {self.kind} with clutter_density {self.clutter_density:g}; {rule}")
        high = self.kind in ("InF-SH", "InF-DH")
        if high and not self.ue_height_m < self.clutter_height_m < self.gnb_height_m:
            raise ValueError(
                f"TR 38.901 table 7.2-4: {self.kind} has the antenna above the clutter and nodes in it: "
                "ue_height_m < clutter_height_m < gnb_height_m"
            )
        if not high and self.gnb_height_m > self.clutter_height_m:
            raise ValueError(
                f"TR 38.901 table 7.2-4: {self.kind} has the antenna in the clutter: gnb_height_m <= clutter_height_m"
            )
        return self

    def distance_3d_m(self, distance_2d_m: npt.ArrayLike) -> Floats:
        """Return the distance in m from antenna to antenna. Nearer than the model holds counts as its nearest."""
        along = np.maximum(np.asarray(distance_2d_m, np.float64), MODELS[self.kind].nearest_m)
        return np.hypot(along, self.gnb_height_m - self.ue_height_m)

    @property
    def clutter_m(self) -> float:
        """Return the size in m of what stands around: as given, or the kind's own."""
        return self.clutter_size_m or (2.0 if self.kind in ("InF-DL", "InF-DH") else 10.0)

    @property
    def sight_correlation_m(self) -> float:
        """Return the way in m over which a line of sight stays or stays away (TR 38.901 table 7.6.3.1-2)."""
        if self.kind in ("UMi", "UMa"):
            return 50.0
        return 10.0 if self.kind.startswith("InH") else self.clutter_m / 2.0

    def breakpoint_m(self, carrier_ghz: float) -> float:
        """Return the distance along the floor in m beyond which a street's line of sight loses faster."""
        return 4.0 * (self.gnb_height_m - _GROUND_M) * (self.ue_height_m - _GROUND_M) * carrier_ghz * 1e9 / LIGHT_M_A_S

    def path_loss_db(self, distance_2d_m: npt.ArrayLike, los: npt.ArrayLike, carrier_ghz: float) -> Floats:
        """Return the median path loss in dB (TR 38.901 table 7.4.1-1).

        Args:
            distance_2d_m: Distance along the floor in m.
            los: Whether there is a line of sight.
            carrier_ghz: Carrier frequency in GHz.
        """
        distance_3d_m = self.distance_3d_m(distance_2d_m)
        seen_db = self._los_db(distance_3d_m, carrier_ghz)
        hidden_db = MODELS[self.kind].nlos(distance_3d_m, carrier_ghz, self.ue_height_m)
        # Every scenario's NLOS formula is bounded from below by its LOS one.
        return np.where(np.asarray(los, np.bool_), seen_db, np.maximum(seen_db, hidden_db))

    def shadow_sigma_db(self, los: npt.ArrayLike) -> Floats:
        """Return the standard deviation of shadowing in dB (TR 38.901 table 7.4.1-1)."""
        model = MODELS[self.kind]
        return np.where(np.asarray(los, np.bool_), model.los_sigma_db, model.nlos_sigma_db)

    def los_probability(self, distance_2d_m: npt.ArrayLike) -> Floats:
        """Return the probability of a line of sight (TR 38.901 table 7.4.2-1)."""
        along = np.asarray(distance_2d_m, np.float64)
        if self.kind in ("UMi", "UMa"):
            decay = np.exp(-along / (36.0 if self.kind == "UMi" else 63.0))
            near = 18.0 / np.maximum(along, 18.0)
            return np.asarray(near + decay * (1.0 - near))
        if self.kind == "InH-open":
            return _office(along, 5.0, 70.8, 49.0, 211.7, 0.54)
        if self.kind == "InH-mixed":
            return _office(along, 1.2, 4.7, 6.5, 32.6, 0.32)
        reach_m = -self.clutter_m / math.log(1.0 - self.clutter_density)
        if self.kind in ("InF-SH", "InF-DH"):
            reach_m *= (self.gnb_height_m - self.ue_height_m) / (self.clutter_height_m - self.ue_height_m)
        return np.asarray(np.exp(-along / reach_m))

    def _los_db(self, distance_3d_m: Floats, carrier_ghz: float) -> Floats:
        lg_d: Floats = np.log10(distance_3d_m)
        lg_f = math.log10(carrier_ghz)
        if self.kind.startswith("InF"):
            return 31.84 + 21.50 * lg_d + 19.00 * lg_f
        if self.kind.startswith("InH"):
            return 32.4 + 17.3 * lg_d + 20.0 * lg_f
        offset, slope, turn = (28.0, 22.0, 9.0) if self.kind == "UMa" else (32.4, 21.0, 9.5)
        at_breakpoint_m = float(np.hypot(self.breakpoint_m(carrier_ghz), self.gnb_height_m - self.ue_height_m))
        far_db = offset + 40.0 * lg_d + 20.0 * lg_f - turn * 2.0 * np.log10(at_breakpoint_m)
        return np.where(distance_3d_m < at_breakpoint_m, offset + slope * lg_d + 20.0 * lg_f, far_db)


def _office(along: Floats, clear_m: float, near_m: float, turn_m: float, far_m: float, far_share: float) -> Floats:
    near = np.exp(-np.maximum(along - clear_m, 0.0) / near_m)
    return np.where(along <= turn_m, near, far_share * np.exp(-np.maximum(along - turn_m, 0.0) / far_m))
