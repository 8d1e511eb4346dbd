"""NASA IMS bearings, test 2: four bearings on one shaft run until the first fails; vibration at 20 kHz, no labels."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from sklearn.metrics import roc_auc_score

from client.models import SCALE_KINDS, mlp
from client.tasks.files import Known, Matrix, Originals, originals
from client.tasks.task import Dataset, Floats, Hidden
from fedslice.core.config import Table
from fedslice.core.errors import DataError

WEB = "https://www.nasa.gov/intelligent-systems-division/discovery-and-systems-health/pcoe/pcoe-data-set-repository/"
FOLDER, NUM_POINTS, NUM_BEARINGS = "2nd_test", 20_480, 4
NAME = re.compile(r"\d{4}(\.\d\d){5}")  # a snapshot is named by its time
FAILED = 0  # bearing 1, the first column: its outer race failed
BANDS = (0.0, 0.1, 0.3, 0.6, 1.0)  # edges as shares of the spectrum, about 0, 1, 3, 6 and 10 kHz
NUM_FEATURES = 11
RUNNING_SHARE = 0.2  # below this share of the median rms the rig stands still
RMS_SIGMAS = 3.0  # see _anomalous

# Of the 984 originals these 24 are known by their SHA-256, the others by their size alone.
_SHA256 = {
    "2004.02.12.10.32.39": "bbbe024d55d76554",
    "2004.02.13.03.12.39": "2c1f0d14df6d2420",
    "2004.02.13.19.52.39": "b247dc7b504568d2",
    "2004.02.14.12.32.39": "d768df32a3a2d4e1",
    "2004.02.15.05.12.39": "1caa1cc9b90d90cc",
    "2004.02.15.21.52.39": "80da3d5062a09396",
    "2004.02.16.02.52.39": "32eb543c763ae7a3",
    "2004.02.16.03.22.39": "90a0403a6491d667",
    "2004.02.16.04.32.39": "5986ad94cb71fac4",
    "2004.02.16.07.52.39": "5606bc6333fbcc0f",
    "2004.02.16.14.32.39": "020b32d356dcd87d",
    "2004.02.16.22.52.39": "64d66d1ded128e6c",
    "2004.02.17.07.12.39": "18dea2c11d330d83",
    "2004.02.17.15.32.39": "23b134b7be6de084",
    "2004.02.17.23.52.39": "315a9262db487cb4",
    "2004.02.18.08.12.39": "2e7de323427e4da8",
    "2004.02.18.16.32.39": "ca093d0ff2d34b77",
    "2004.02.18.21.32.39": "3d6b2b4c7be9289a",
    "2004.02.19.00.52.39": "44eeb4c204669428",
    "2004.02.19.02.32.39": "e0be61ebf10029ec",
    "2004.02.19.04.12.39": "f805c6e849f9068e",
    "2004.02.19.05.02.39": "8c509b90bc1d209a",
    "2004.02.19.06.02.39": "2d2d4c960926c24f",
    "2004.02.19.06.22.39": "b63bbae7f6e9e7a9",
}


class ImsConfig(Table):
    """Does a bearing still sound as it did when it was healthy?"""

    name: Literal["ims"] = "ims"
    healthy_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.3  # the first so many snapshots are trained on
    alarm_sigmas: Annotated[float, Field(gt=0)] = 4.0  # deviations of the healthy part, of the score's logarithm
    sustain: Annotated[int, Field(ge=1)] = 3  # snapshots in a row that make an alarm
    hidden: Hidden = [16, 4, 16]
    verify: bool = True  # refuse files that are not the originals

    def build(self) -> "Ims":
        """Return the task."""
        return Ims(self)


class Ims:
    """Anomalies in eleven features of a bearing's vibration, by what an autoencoder fails to reproduce."""

    better: Mapping[str, str] = {"auc_roc": "higher", "lead_time_h": "higher", "false_alarm_rate": "lower"}

    def __init__(self, config: ImsConfig) -> None:
        """Keep the config."""
        self._config = config

    def load(self, data: Path | None) -> Dataset:
        """Return the features of the healthy part to train on, and those of all snapshots to test on.

        An example is one bearing in one snapshot; `labels` and `groups` are the bearings. Features are relative
        to the bearing's own mean over the healthy part, as a node would calibrate itself. Snapshots of the
        stopped rig are dropped. A target is (bearing, hours since the first snapshot, 1 after the healthy part,
        1 if anomalous); training does not look at it. Nobody labelled the snapshots: see `_anomalous`.

        Raises:
            DataError: A file is missing or is not what it should be, or there are too few snapshots.
        """
        files, names = _snapshots(originals("ims", data, WEB, {}), self._config.verify)
        hours, rms, features = _describe(files, names)
        healthy = int(len(rms) * self._config.healthy_fraction)
        if healthy < 2:
            found = f"the healthy part of {len(rms)} snapshots of the running rig is {healthy}"
            raise DataError(f"ims: {files.folder}: {found}, at least 2 expected; see task.healthy_fraction")
        targets = np.zeros((*rms.shape, 4), np.float32)
        targets[..., 0] = np.arange(NUM_BEARINGS)
        targets[..., 1] = (hours - hours[0])[:, None]
        targets[healthy:, :, 2] = 1
        targets[..., 3] = _anomalous(rms, healthy, self._config.sustain)
        x = (features - features[:healthy].mean(axis=0)).astype(np.float32).reshape(-1, NUM_FEATURES)
        y = targets.reshape(-1, 4)
        bearing = np.tile(np.arange(NUM_BEARINGS), healthy)
        return Dataset(x[: len(bearing)], y[: len(bearing)], bearing, bearing, x, y)

    def model(self) -> torch.nn.Module:
        """Return an autoencoder whose output is what it fails to reproduce."""
        return Residual(self._config.hidden)

    def kinds(self) -> Mapping[str, str]:
        """Return the kinds of the scaling entries."""
        return SCALE_KINDS

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean squared residual; the target of an autoencoder is in its output already."""
        return outputs.square().mean()

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return how well residuals (examples, 11) tell what is anomalous in targets (examples, 4).

        The score of a bearing is the logarithm of its mean squared residual, in deviations from its mean over
        the bearing's own healthy part; above `alarm_sigmas` it alarms. `auc_roc` and `false_alarm_rate` (the
        share of healthy examples that alarm) are over all bearings after the healthy part. `lead_time_h` is
        from the snapshot that makes bearing 1's first alarm sustained to the last one, 0 without an alarm.
        """
        if not np.isfinite(outputs).all():
            return dict.fromkeys(self.better, math.nan)
        bearing, hour, later, anomalous = targets.T
        scores = np.log(np.square(outputs.astype(np.float64)).mean(axis=1) + 1e-12)
        for each in np.unique(bearing):
            own = bearing == each
            healthy = scores[own & (later == 0)]
            scores[own] = (scores[own] - healthy.mean()) / max(healthy.std(), 1e-6) if len(healthy) else math.nan
        tested = (later == 1) & np.isfinite(scores)
        quiet = tested & (anomalous == 0)
        failed = np.flatnonzero(tested & (bearing == FAILED))
        failed = failed[np.argsort(hour[failed], kind="stable")]
        first = _sustained(scores[failed] > self._config.alarm_sigmas, self._config.sustain)
        both = len(np.unique(anomalous[tested])) == 2
        lead = float(hour[failed[-1]] - hour[failed[first]]) if first is not None else 0.0
        return {
            "auc_roc": float(roc_auc_score(anomalous[tested], scores[tested])) if both else math.nan,
            "lead_time_h": lead if len(failed) else math.nan,
            "false_alarm_rate": float((scores[quiet] > self._config.alarm_sigmas).mean()) if quiet.any() else math.nan,
        }


class Residual(torch.nn.Module):
    """An autoencoder's input less its output, both standardised: (batch, 11) to (batch, 11)."""

    def __init__(self, hidden: Hidden) -> None:
        """Make the network."""
        super().__init__()
        network = mlp(NUM_FEATURES, hidden, NUM_FEATURES)
        self.scale, self.net = network.get_submodule("scale"), network.get_submodule("net")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what is not reproduced, in deviations."""
        scaled: torch.Tensor = self.scale(x)
        residual: torch.Tensor = scaled - self.net(scaled)
        return residual


def _snapshots(files: Originals, verify: bool) -> tuple[Originals, list[str]]:
    """Return the folder of snapshots and their names in order of time."""
    folder = files.folder / FOLDER
    if not folder.is_dir():
        raise DataError(f"ims: the folder {FOLDER} is missing in {files.folder}; the original is at {WEB}")
    names = sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name))
    if not names:
        raise DataError(f"ims: no snapshot named like 2004.02.12.10.32.39 in {folder}; the original is at {WEB}")
    known = {name: Known(NUM_POINTS, _SHA256.get(name, "")) for name in names} if verify else {}
    return replace(files, folder=folder, known=known), names


def _describe(files: Originals, names: list[str]) -> tuple[Matrix, Matrix, Matrix]:
    """Return hours (snapshots,), rms (snapshots, 4) and features (snapshots, 4, 11) of the running rig."""
    hours = np.array([_hours(name) for name in names])
    described = [_features(files.matrix(name, NUM_BEARINGS)) for name in names]
    rms, features = np.stack([one[0] for one in described]), np.stack([one[1] for one in described])
    # Of the stopped rig there is but noise (the last two of the original): a model would learn that silence is failure.
    loudest = rms.max(axis=1)
    running = loudest > RUNNING_SHARE * np.median(loudest)
    return hours[running], rms[running], features[running]


def _hours(name: str) -> float:
    """Return the time in a snapshot's name, in hours."""
    try:
        moment = datetime.strptime(name, "%Y.%m.%d.%H.%M.%S")
    except ValueError as error:
        raise DataError(f"ims: {name} is not a time; a name like 2004.02.12.10.32.39 expected") from error
    return (moment - datetime(2004, 1, 1)).total_seconds() / 3600


def _features(signal: Matrix) -> tuple[Matrix, Matrix]:
    """Return rms (4,) and features (4, 11) of one snapshot (points, 4); features of scale are logarithms."""
    rms = np.sqrt(np.square(signal).mean(axis=0))
    std = signal.std(axis=0)
    centred = signal - signal.mean(axis=0)
    shape = centred / np.maximum(std, 1e-12)
    power = np.square(np.abs(np.fft.rfft(centred, axis=0)))
    edges = (np.array(BANDS) * len(power)).astype(int)
    bands = [power[low:high].sum(axis=0) / len(signal) ** 2 for low, high in pairwise(edges)]
    crest = np.abs(signal).max(axis=0) / np.maximum(rms, 1e-12)
    scales = [rms, np.abs(signal).mean(axis=0), std, np.ptp(signal, axis=0), crest, (shape**4).mean(axis=0), *bands]
    logs = np.log10(np.maximum(np.stack(scales), 1e-12))
    return rms, np.vstack([logs, (shape**3).mean(axis=0)]).T


def _anomalous(rms: Matrix, healthy: int, sustain: int) -> Floats:
    """Return 1 where a bearing (snapshots, 4) is held to be anomalous, by a rule: there are no true labels.

    The rule: from the first of `sustain` snapshots in a row, after the healthy part, whose rms is above mean plus
    three deviations of the bearing's own healthy part. As rms is among the features, an AUC against this label is
    partly circular: compare models by lead time and false alarms, and quote the AUC with the rule.
    """
    labels = np.zeros(rms.shape, np.float32)
    high = rms[healthy:] > rms[:healthy].mean(axis=0) + RMS_SIGMAS * rms[:healthy].std(axis=0)
    for bearing in range(NUM_BEARINGS):
        last = _sustained(high[:, bearing], sustain)
        if last is not None:
            labels[healthy + last - sustain + 1 :, bearing] = 1
    return labels


def _sustained(alarms: npt.NDArray[np.bool_], sustain: int) -> int | None:
    """Return the index at which alarms have first been on `sustain` times in a row, or None."""
    if len(alarms) < sustain:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(alarms, sustain)
    ends = np.flatnonzero(windows.all(axis=1))
    return int(ends[0]) + sustain - 1 if len(ends) else None
