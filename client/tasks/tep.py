"""Tennessee Eastman Process: 52 sensors of a simulated chemical plant, normal and with 21 faults (Braatz's files)."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from client.models import mlp
from client.tasks.classification import Classification
from client.tasks.files import Known, Matrix, Originals, originals
from client.tasks.task import Dataset, Floats, Hidden
from fedslice.core.config import Table
from fedslice.core.errors import DataError

WEB = "https://web.mit.edu/braatzgroup/links.html"
NUM_SENSORS, NUM_FAULTS, NUM_PLANTS = 52, 21, 5
ONSET = 160  # the first row of a test file, counted from 0, that shows the fault
HIDDEN_FAULTS = (3, 9, 15)  # these hardly show in any sensor; many papers leave them out

# SHA-256 of d00.dat, d00_te.dat, d01.dat, d01_te.dat, ... d21_te.dat, each as far as it is compared.
_SHA256 = """
    4c3c0b11eefacf93 57d56da4199e3d73 b0da22ac7561d82b e7e6992fb39664e7 af1a46ba3a5482be a34bd9c3693fa96b
    df39c57bdac7ea47 b7bf6f2ed7cff0a5 346702fce33d9707 1ccb488dd5feac11 3a47bfce4010ce0c 1def7258a2865aee
    ff0882a44bb74f5d 8a3adc7121eaa9b9 e3fd272ed53f899a e01b7c81daf9fccc 4817735e339449be c0637f02f23b7989
    cb9146da760cdd52 513df6c3a4fd48e0 e08697b5d074aea2 3a278be79d8d111f 8294734d6f6e8f6b 6d60a4c932d918e1
    62fcb3c71c0eda8e 2180fcecb01d1b11 f755d4ab6dc1d30e 2e34e0c427d6e41d 29fda7d5cae58cb7 e8976d056c0769ce
    4c82fe0864cce252 a7242b956837bec8 ca1dfc5e31292052 8381d7371aac49b4 596aad6421a64d25 27d2d72052064e3c
    b4d182c070036104 1db5b93a7daa58ed ee3d2a50285cb3ba c24dd77f787f8934 acdfe6c256fa6de7 e54035eda95311f1
    f34a9fefffef04ef b6823aa09638cd59
"""


class TepConfig(Table):
    """Which fault is it. 19 classes leave out faults 3, 9 and 15."""

    name: Literal["tep"] = "tep"
    classes: Literal[22, 19] = 22
    window: Annotated[int, Field(ge=1, le=100)] = 1  # rows of 3 minutes; above 1, statistics of so many rows
    hidden: Hidden = [128]
    verify: bool = True  # refuse files that are not the originals

    def build(self) -> "Tep":
        """Return the task."""
        return Tep(self)


class Tep(Classification):
    """Normal or which fault, from one reading of 52 sensors or from the last few."""

    def __init__(self, config: TepConfig) -> None:
        """Keep the config."""
        self._config = config
        self._kinds = [k for k in range(NUM_FAULTS + 1) if config.classes == 22 or k not in HIDDEN_FAULTS]

    def load(self, data: Path | None) -> Dataset:
        """Return the files d*.dat to train on, and of d*_te.dat all normal rows of d00_te and the faulty ones of the others.

        `labels` are the classes: 0 is normal, the others count the faults kept. `groups` are five plants: each
        has a fifth of the normal run and faults that no other plant has seen. The normal rows before the onset
        of a test file are left out (those of faults 4 and 5 are the same run).

        Raises:
            DataError: A file is missing or is not what it should be.
        """
        files = originals("tep", data, WEB, _known() if self._config.verify else {})
        normal = np.array_split(_read(files, "d00.dat"), NUM_PLANTS)
        train = [(rows, 0, plant) for plant, rows in enumerate(normal)]
        train += [(_read(files, f"d{k:02}.dat"), c, (c - 1) % NUM_PLANTS) for c, k in self._faults()]
        test = [(_read(files, "d00_te.dat"), 0)]
        test += [(_read(files, f"d{k:02}_te.dat", after=ONSET), c) for c, k in self._faults()]

        parts = [self._features(rows) for rows, _, _ in train]
        y = np.repeat([c for _, c, _ in train], [len(part) for part in parts])
        groups = np.repeat([plant for _, _, plant in train], [len(part) for part in parts])
        test_parts = [self._features(rows) for rows, _ in test]
        test_y = np.repeat([c for _, c in test], [len(part) for part in test_parts])
        return Dataset(np.concatenate(parts), y, y, groups, np.concatenate(test_parts), test_y)

    def model(self) -> torch.nn.Module:
        """Return a network with one logit a class."""
        return mlp(NUM_SENSORS * (1 if self._config.window == 1 else 4), self._config.hidden, len(self._kinds))

    def _faults(self) -> list[tuple[int, int]]:
        """Return class and number of every fault kept."""
        return [(c, k) for c, k in enumerate(self._kinds) if k]

    def _features(self, rows: Matrix) -> Floats:
        """Return what the model sees of one stretch of a run: (rows, 52), or (rows - window + 1, 208).

        A window gives its last reading, mean, deviation and change. It ends where the stretch ends, so none
        crosses files, plants or the onset of a fault.
        """
        if (window := self._config.window) == 1:
            return rows.astype(np.float32)
        if len(rows) < window:
            raise DataError(f"tep: a stretch of {len(rows)} rows is shorter than task.window = {window}")
        views = np.lib.stride_tricks.sliding_window_view(rows, window, axis=0)  # (windows, 52, window)
        last = views[..., -1]
        return np.concatenate([last, views.mean(-1), views.std(-1), last - views[..., 0]], axis=1).astype(np.float32)


def _known() -> dict[str, Known]:
    """Return what the 44 original files are."""
    names = [f"d{k:02}{part}.dat" for k in range(NUM_FAULTS + 1) for part in ("", "_te")]
    rows = {"d00.dat": NUM_SENSORS}  # see _read
    return {
        name: Known(rows.get(name, 960 if "_te" in name else 480), sha256)
        for name, sha256 in zip(names, _SHA256.split(), strict=True)
    }


def _read(files: Originals, name: str, after: int = 0) -> Matrix:
    """Return the rows of one run from row `after` on, (rows, 52)."""
    rows = files.matrix(name, None)
    if len(rows) == NUM_SENSORS and rows.shape[1] != NUM_SENSORS:
        rows = rows.T  # d00.dat alone has its sensors as rows
    if rows.shape[1] != NUM_SENSORS:
        raise DataError(f"tep: {files.folder / name}: {NUM_SENSORS} columns expected, found {rows.shape[1]}")
    if len(rows) <= after:
        raise DataError(f"tep: {files.folder / name}: more than {after} rows expected, found {len(rows)}")
    return rows[after:]
