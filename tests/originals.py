"""Tiny files in the original formats, with the traps of the real ones; folder names are those of the tasks."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from client.tasks.cmapss import NUM_COLUMNS
from client.tasks.hydraulic import LEVELS, SENSORS
from client.tasks.ims import FOLDER
from fedslice.core.seeds import rng

BOM = b"\xef\xbb\xbf"
NORMAL_ROWS, TRAIN_ROWS, TEST_ROWS = 60, 20, 170
BEFORE_ONSET = 999.0  # what every sensor reads in a test file before its fault sets in
LIVES = (45, 40, 20, 38)  # cycles of the training engines; the third is shorter than the usual window
TEST_LIVES, LEFT = (33, 12), (140, 7)
CYCLES_A_RUN, NUM_RUNS = 4, 15
SNAPSHOTS = [f"2004.02.{12 + i // 4:02}.{6 * (i % 4):02}.32.39" for i in range(20)]  # 6 hours apart
POINTS = 64


def write_tep(folder: Path) -> None:
    """Write d00 to d21: fault k moves sensor k by six; leading blanks, d00.dat transposed, with a BOM and CRLF."""
    for name, content in _tep().items():
        (folder / name).write_bytes(content)


@cache
def _tep() -> dict[str, bytes]:
    contents = {}
    for fault in range(22):
        noise = rng(0, "tiny tep", fault).normal(size=(TRAIN_ROWS + TEST_ROWS + NORMAL_ROWS, 52))
        noise[:, fault] += 6.0 * (fault > 0)
        train, test, normal = np.split(noise, [TRAIN_ROWS, TRAIN_ROWS + TEST_ROWS])
        if fault:
            test[:160] = BEFORE_ONSET
            contents[f"d{fault:02}.dat"] = _text(train, "{: 16.7E}", "")
        else:
            contents["d00.dat"] = BOM + _text(normal.T, "{:.7e}", "   ", "\r\n")
        contents[f"d{fault:02}_te.dat"] = _text(test, "{: 16.7E}", "")
    return contents


def write_hydraulic(folder: Path) -> None:
    """Write fifteen runs of four cycles: TS1 reads the number of its run, the others follow the valve."""
    runs = np.array([[values[run % len(values)] for values in LEVELS.values()] for run in range(NUM_RUNS)])
    profile = np.repeat(runs, CYCLES_A_RUN, axis=0)
    (folder / "profile.txt").write_bytes(_text(profile, "{:.0f}", "\t"))
    for i, sensor in enumerate(SENSORS):
        cycles = rng(0, "tiny hydraulic", i).normal(size=(len(profile), 60)) + profile[:, 1:2]
        if sensor == "TS1":
            cycles[:] = np.repeat(np.arange(NUM_RUNS), CYCLES_A_RUN)[:, None]
        (folder / f"{sensor}.txt").write_bytes(_text(cycles, "{:.3f}", "\t"))
    (folder / "description.txt").write_bytes("Temperatur in °C\r\n".encode("latin-1"))


def write_cmapss(folder: Path, subset: str = "FD001") -> None:
    """Write four engines and two to test: two blanks at the end of each line; sensors are cycle + sensor / 100."""
    for name, lives in (("train", LIVES), ("test", TEST_LIVES)):
        engines = []
        for unit, life in enumerate(lives, 1):
            rows = np.zeros((life, NUM_COLUMNS))
            rows[:, 0], rows[:, 1] = unit, np.arange(1, life + 1)
            rows[:, 5:] = rows[:, 1:2] + np.arange(1, 22) / 100
            engines.append(rows)
        (folder / f"{name}_{subset}.txt").write_bytes(_text(np.concatenate(engines), "{:g}", " ", "  \n"))
    (folder / f"RUL_{subset}.txt").write_text("".join(f"{left} \n" for left in LEFT))


def write_ims(folder: Path) -> None:
    """Write twenty snapshots, the newest file first: bearing 1 grows loud from the twelfth, the last two are silent."""
    (folder / FOLDER).mkdir()
    for i, name in reversed(list(enumerate(SNAPSHOTS))):
        signal = rng(0, "tiny ims", i).normal(size=(POINTS, 4)) * 0.1
        signal[:, 0] *= 5.0 if i >= 11 else 1.0
        signal *= 0.01 if i >= 18 else 1.0
        (folder / FOLDER / name).write_bytes(_text(signal, "{:.3f}" if i < 18 else "{:.4f}", "\t", "\r\n"))
    (folder / FOLDER / "SHA256SUMS").write_text("not a snapshot\n")


WRITERS: dict[str, Callable[[Path], None]] = {
    "tep": write_tep,
    "hydraulic": write_hydraulic,
    "cmapss": write_cmapss,
    "ims": write_ims,
}


def write_all(data: Path) -> Path:
    """Write every set into its own folder of `data`, and return `data`."""
    for name, write in WRITERS.items():
        (data / name).mkdir()
        write(data / name)
    return data


def _text(rows: npt.NDArray[np.float64], form: str, between: str, end: str = "\n") -> bytes:
    return "".join(between.join(form.format(value) for value in row) + end for row in rows).encode("ascii")


def edit_line(path: Path, line: int, old: str, new: str) -> None:
    """Replace the first match of a pattern in one line, counted from 1."""
    lines = path.read_bytes().decode("ascii").split("\n")
    lines[line - 1], found = re.subn(old, new, lines[line - 1], count=1)
    assert found
    path.write_bytes("\n".join(lines).encode("ascii"))
