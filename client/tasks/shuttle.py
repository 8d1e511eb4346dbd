"""NASA Shuttle: nine radiator sensors, 49,097 readings, 7.15 % of them anomalies (ships with `river`)."""

import csv
import gzip
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from client import metrics
from client.models import SCALE_KINDS, mlp
from client.tasks.task import Dataset, Hidden
from fedslice.core.config import Table
from fedslice.core.errors import DataError
from fedslice.core.seeds import rng

NUM_ROWS, NUM_SENSORS = 49_097, 9


class ShuttleConfig(Table):
    """Detection of anomalies in Shuttle readings."""

    name: Literal["shuttle"] = "shuttle"
    hidden: Hidden = [32, 16]

    def build(self) -> "Shuttle":
        """Return the task."""
        return Shuttle(self)


class Shuttle:
    """Anomaly or not, from one reading of nine sensors."""

    better: Mapping[str, str] = metrics.DETECTION

    def __init__(self, config: ShuttleConfig) -> None:
        """Keep the config."""
        self._config = config

    def load(self, data: Path | None) -> Dataset:
        """Return 70 % of the readings to train on and the others to test on; the same split always.

        There is no machine or time in the file, so groups are ten equal stretches of the training part.
        """
        try:
            # The package is only where the file lies: it is not imported.
            path = Path(str(distribution("river").locate_file("river/datasets/shuttle.csv.gz")))
            with gzip.open(path, "rt") as lines:
                rows = np.array(list(csv.reader(lines))[1:], dtype=np.float32)
        except (PackageNotFoundError, FileNotFoundError) as error:
            raise DataError("shuttle: the file ships with the package river; install river>=0.26.1") from error
        if rows.shape != (NUM_ROWS, NUM_SENSORS + 1):
            raise DataError(f"shuttle: {NUM_ROWS} rows of {NUM_SENSORS + 1} columns expected in {path}, found {rows.shape}")
        rows = rows[rng(0, "shuttle", "split").permutation(NUM_ROWS)]
        x, y = rows[:, :-1], rows[:, -1].astype(np.int64)
        cut = int(0.7 * NUM_ROWS)
        groups = np.arange(cut) * 10 // cut
        return Dataset(x[:cut], y[:cut], y[:cut], groups, x[cut:], y[cut:])

    def model(self) -> torch.nn.Module:
        """Return a network with one logit: above zero is an anomaly."""
        return mlp(NUM_SENSORS, self._config.hidden, 1)

    def kinds(self) -> Mapping[str, str]:
        """Return the kinds of the scaling entries."""
        return SCALE_KINDS

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean binary cross-entropy."""
        return binary_cross_entropy_with_logits(outputs.squeeze(1), targets.to(outputs.dtype))

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return F1, AUC-ROC, AUC-PR and accuracy."""
        return metrics.detection(outputs[:, 0], targets)
