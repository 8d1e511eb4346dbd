"""UCI hydraulic test rig: 2,205 load cycles of 60 s, eight sensors at 1 Hz, four parts in graded states of wear."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from client.models import mlp
from client.tasks.classification import Classification
from client.tasks.files import Known, Matrix, originals
from client.tasks.task import Dataset, Floats, Hidden, Ints
from fedslice.core.config import Table
from fedslice.core.errors import DataError
from fedslice.core.seeds import rng

WEB = "https://archive.ics.uci.edu/dataset/447/condition+monitoring+of+hydraulic+systems"
NUM_CYCLES, NUM_SECONDS = 2205, 60
SENSORS = ("TS1", "TS2", "TS3", "TS4", "VS1", "CE", "CP", "SE")
NUM_STRETCHES = 12  # of 5 s: the load steps within a cycle, and worn parts show in how the rig follows
NUM_STATISTICS = NUM_STRETCHES + 4

# The columns of profile.txt and the values each takes, in the order of the classes.
# `stable` is 0 when the rig had settled, 1 when it may not have.
LEVELS = {
    "cooler": (3, 20, 100),  # per cent of its capacity
    "valve": (73, 80, 90, 100),  # per cent of its switching
    "pump": (0, 1, 2),  # grade of leakage
    "accumulator": (90, 100, 115, 130),  # bar
    "stable": (0, 1),
}
Target = Literal["cooler", "valve", "pump", "accumulator", "stable"]

_SHA256 = {
    "TS1.txt": "49cae5e9013d8e23",
    "TS2.txt": "34115a5b86886d83",
    "TS3.txt": "cc271852b4caad39",
    "TS4.txt": "548b903f7cd4ea7f",
    "VS1.txt": "a6227d9bcb807ee9",
    "CE.txt": "2adc6e258be8e3b7",
    "CP.txt": "63f60132cb5a3087",
    "SE.txt": "4c04994cb28b82c0",
    "profile.txt": "867987ca884b2f0f",
}


class HydraulicConfig(Table):
    """In which state is a part of the rig?"""

    name: Literal["hydraulic"] = "hydraulic"
    target: Target = "valve"
    hidden: Hidden = [64]
    verify: bool = True  # refuse files that are not the originals

    def build(self) -> "Hydraulic":
        """Return the task."""
        return Hydraulic(self)


class Hydraulic(Classification):
    """The state of one part, from statistics of eight sensors over one load cycle."""

    def __init__(self, config: HydraulicConfig) -> None:
        """Keep the config."""
        self._config = config

    def load(self, data: Path | None) -> Dataset:
        """Return four fifths of the runs to train on and the others to test on; the same split always.

        A run is a stretch of cycles in one state. Its cycles are near copies, so it is never split. `labels`
        are the classes, `groups` the three levels of the cooler: rigs of different oil temperature.

        Raises:
            DataError: A file is missing or is not what it should be.
        """
        known = {name: Known(NUM_CYCLES, sha256) for name, sha256 in _SHA256.items()} if self._config.verify else {}
        files = originals("hydraulic", data, WEB, known)
        profile = files.matrix("profile.txt", len(LEVELS))
        sensors = [files.matrix(f"{sensor}.txt", NUM_SECONDS) for sensor in SENSORS]
        for sensor, cycles in zip(SENSORS, sensors, strict=True):
            if len(cycles) != len(profile):
                where = files.folder / f"{sensor}.txt"
                raise DataError(f"hydraulic: {where}: {len(profile)} rows expected, as in profile.txt, found {len(cycles)}")
        run = _runs(profile)
        if (num_runs := int(run[-1]) + 1) < 5:
            raise DataError(f"hydraulic: {files.folder / 'profile.txt'}: at least 5 runs of constant state expected")
        # Drawn, not every fifth in turn: the states come round every fifth run, so that would keep whole levels out.
        test = np.isin(run, rng(0, "hydraulic", "split").permutation(num_runs)[: num_runs // 5])
        x = np.concatenate([_statistics(cycles) for cycles in sensors], axis=1)
        y, cooler = _classes(profile, self._config.target), _classes(profile, "cooler")
        return Dataset(x[~test], y[~test], y[~test], cooler[~test], x[test], y[test])

    def model(self) -> torch.nn.Module:
        """Return a network with one logit a level."""
        return mlp(len(SENSORS) * NUM_STATISTICS, self._config.hidden, len(LEVELS[self._config.target]))


def _runs(profile: Matrix) -> Ints:
    """Return the run of each cycle, counted from 0; the flag of stability does not make a new run."""
    changed = (np.diff(profile[:, :4], axis=0) != 0).any(axis=1)
    return np.concatenate([[0], np.cumsum(changed)])


def _classes(profile: Matrix, target: Target) -> Ints:
    """Return the class of each cycle: the place of its level among the known ones."""
    levels = LEVELS[target]
    values = profile[:, list(LEVELS).index(target)]
    unknown = np.flatnonzero(~np.isin(values, levels))
    if len(unknown):
        found = f"found {values[unknown[0]]:g} in row {unknown[0] + 1}"
        raise DataError(f"hydraulic: profile.txt: {target} is one of {', '.join(map(str, levels))}; {found}")
    return np.searchsorted(np.array(levels), values)


def _statistics(cycles: Matrix) -> Floats:
    """Return the means of stretches, deviation, least, greatest and slope: (cycles, 60) to (cycles, 16)."""
    time = np.arange(NUM_SECONDS) - (NUM_SECONDS - 1) / 2
    slope = cycles @ time / (time @ time)  # a second
    stretches = cycles.reshape(len(cycles), NUM_STRETCHES, -1).mean(axis=2)
    return np.column_stack([stretches, cycles.std(axis=1), cycles.min(axis=1), cycles.max(axis=1), slope]).astype(np.float32)
