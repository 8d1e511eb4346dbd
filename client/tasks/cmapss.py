"""NASA C-MAPSS: simulated turbofan engines run to failure; how many cycles are left?"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch.nn.functional import mse_loss

from client import metrics
from client.models import SCALE_KINDS, mlp
from client.tasks.files import Known, Matrix, Originals, originals
from client.tasks.task import Dataset, Floats, Hidden
from fedslice.core.config import Table
from fedslice.core.errors import DataError

WEB = "https://www.nasa.gov/intelligent-systems-division/discovery-and-systems-health/pcoe/pcoe-data-set-repository/"
NUM_COLUMNS = 26  # engine, cycle, three settings, sensors 1 to 21
FIRST_SENSOR = 5
# Those that move in FD001 and FD003, as most papers take them; the others are constant or nearly so.
SENSORS = (2, 3, 4, 7, 8, 9, 11, 12, 13, 14, 15, 17, 20, 21)
NUM_LABELS = 5

_ORIGINALS = {
    "train_FD001.txt": Known(20_631, "963b5e22825b34d8"),
    "test_FD001.txt": Known(13_096, "3cda7109ce17bafb"),
    "RUL_FD001.txt": Known(100, "a19c8ec94931949d"),
    "train_FD003.txt": Known(24_720, "2abbe9968cc5e8eb"),
    "test_FD003.txt": Known(16_596, "299babd63c8d987c"),
    "RUL_FD003.txt": Known(100, "df1e0566306b174a"),
}


class CmapssConfig(Table):
    """Remaining useful life (RUL) in cycles, from the last cycles of an engine."""

    name: Literal["cmapss"] = "cmapss"
    subset: Literal["FD001", "FD003"] = "FD001"
    window: Annotated[int, Field(ge=1, le=200)] = 30  # cycles that the model sees
    max_rul: Annotated[int, Field(ge=1, le=1000)] = 125  # cycles; above it an engine counts as new
    hidden: Hidden = [64, 32]
    verify: bool = True  # refuse files that are not the originals

    def build(self) -> "Cmapss":
        """Return the task."""
        return Cmapss(self)


class Cmapss:
    """Cycles to failure, from fourteen sensors over a window of cycles."""

    better: Mapping[str, str] = {**metrics.REGRESSION, "phm08_score": "lower"}

    def __init__(self, config: CmapssConfig) -> None:
        """Keep the config."""
        self._config = config

    def load(self, data: Path | None) -> Dataset:
        """Return every window of the training engines, and the last window of each test engine.

        Targets are min(max_rul, RUL) in cycles, in the test part too: papers that compare with the uncapped
        RUL report errors that are larger by a cycle or so. `labels` are fifths of the training windows by
        uncapped RUL, 0 the nearest to failure; `groups` are the engines, counted from 0.

        Raises:
            DataError: A file is missing or is not what it should be.
        """
        subset = self._config.subset
        files = originals("cmapss", data, WEB, _ORIGINALS if self._config.verify else {})
        train = _engines(files, f"train_{subset}.txt")
        test = _engines(files, f"test_{subset}.txt")
        left = files.matrix(f"RUL_{subset}.txt", 1)[:, 0]
        if len(left) != len(test):
            where = files.folder / f"RUL_{subset}.txt"
            raise DataError(f"cmapss: {where}: {len(test)} rows expected, one an engine of test_{subset}.txt, found {len(left)}")

        windows = [self._windows(engine) for engine in train]
        rul = np.concatenate([np.arange(len(part))[::-1] for part in windows])
        groups = np.repeat(np.arange(len(train)), [len(part) for part in windows])
        labels = np.searchsorted(np.quantile(rul, np.arange(1, NUM_LABELS) / NUM_LABELS), rul)
        test_x = np.concatenate([self._windows(engine)[-1:] for engine in test])
        return Dataset(np.concatenate(windows), self._cap(rul), labels, groups, test_x, self._cap(left))

    def model(self) -> torch.nn.Module:
        """Return a network with one output: the RUL as a share of `max_rul`."""
        return mlp(self._config.window * len(SENSORS), self._config.hidden, 1)

    def kinds(self) -> Mapping[str, str]:
        """Return the kinds of the scaling entries."""
        return SCALE_KINDS

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error in shares of `max_rul`, near 1 whatever the unit."""
        return mse_loss(outputs.squeeze(1), targets / self._config.max_rul)

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return the root mean squared error in cycles and the score of the PHM08 challenge (a sum over engines).

        Predictions are clipped to [0, max_rul]: no engine has less, and the targets know no more.
        """
        predicted = np.clip(outputs[:, 0].astype(np.float64) * self._config.max_rul, 0, self._config.max_rul)
        return {**metrics.regression(predicted, targets), "phm08_score": _phm08(predicted - targets)}

    def _cap(self, rul: npt.NDArray[Any]) -> Floats:
        capped: Floats = np.minimum(rul, self._config.max_rul).astype(np.float32)
        return capped

    def _windows(self, engine: Matrix) -> Floats:
        """Return one flat window for each cycle that ends one: (windows, window * 14), oldest cycle first.

        An engine shorter than the window gives one, its first cycle repeated in front.
        """
        missing = max(0, self._config.window - len(engine))
        padded = np.concatenate([np.repeat(engine[:1], missing, axis=0), engine]).astype(np.float32)
        views = np.lib.stride_tricks.sliding_window_view(padded, self._config.window, axis=0)
        windows: Floats = views.transpose(0, 2, 1).reshape(len(views), -1)
        return windows


def _engines(files: Originals, name: str) -> list[Matrix]:
    """Return the sensors of each engine in the file, (cycles, 14) each."""
    rows = files.matrix(name, NUM_COLUMNS)
    units, counts = np.unique(rows[:, 0], return_counts=True)
    ordered = np.repeat(np.arange(1, len(units) + 1), counts)
    cycles = np.concatenate([np.arange(1, count + 1) for count in counts])
    wrong = np.flatnonzero((rows[:, 0] != ordered) | (rows[:, 1] != cycles))
    if len(wrong):
        engine, cycle = rows[wrong[0], :2]
        expected = f"engine {ordered[wrong[0]]}, cycle {cycles[wrong[0]]} expected"
        raise DataError(f"cmapss: {files.folder / name}: row {wrong[0] + 1} is engine {engine:g}, cycle {cycle:g}; {expected}")
    sensors = rows[:, [FIRST_SENSOR + sensor - 1 for sensor in SENSORS]]
    return np.split(sensors, np.cumsum(counts)[:-1])


def _phm08(late: npt.NDArray[np.float64]) -> float:
    """Return the score of the PHM08 challenge from predicted minus true RUL: late alarms cost more than early ones."""
    if not np.isfinite(late).all():
        return math.nan
    return float(np.where(late < 0, np.expm1(-late / 13), np.expm1(late / 10)).sum())
