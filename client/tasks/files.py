"""Reads the original files of published data sets, and says clearly what is wrong with them."""

import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedslice.core.errors import DataError

Matrix = npt.NDArray[np.float64]
_BOM = b"\xef\xbb\xbf"  # some copies of the files have gained one


@dataclass(frozen=True, slots=True)
class Known:
    """What an original file is: its rows, and how its SHA-256 starts ("" where nobody has published it).

    Sixteen hex digits tell a damaged or edited file; they are no guard against a forger.
    """

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Originals:
    """The original files of one data set, in one folder. Files not in `known` are read as they are."""

    task: str
    web: str
    folder: Path
    known: Mapping[str, Known]

    def matrix(self, name: str, columns: int | None) -> Matrix:
        """Return the numbers of one text file, (rows, columns); blanks, tabs and CRLF all separate.

        Args:
            name: The file, relative to the folder.
            columns: How many numbers a line holds, or None where any number will do, the same on every line.

        Raises:
            DataError: The file is missing, holds anything but finite numbers, has another shape, or is not
                the original; says which file, where in it, and what was expected.
        """
        path = self.folder / name
        try:
            raw = path.read_bytes().removeprefix(_BOM)
        except FileNotFoundError as error:
            raise DataError(f"{self.task}: {name} is missing in {self.folder}; {_source(self.web)}") from error
        except OSError as error:
            raise DataError(f"{self.task}: cannot read {path} ({error.strerror or error})") from error
        try:
            text = raw.decode("ascii")
        except UnicodeDecodeError as error:
            raise DataError(f"{self.task}: {path}: byte {error.start} is not text; numbers as text expected") from error
        numbers = self._parse(path, text, columns)
        self._verify(path, raw, numbers)
        return numbers

    def _parse(self, path: Path, text: str, columns: int | None) -> Matrix:
        lines = text.split("\n")
        if columns is None:
            columns = next((len(line.split()) for line in lines if line.strip()), 0)
        if not text.strip():
            raise DataError(f"{self.task}: {path}: the file is empty; lines of {columns or 'equally many'} numbers expected")
        try:
            numbers = np.loadtxt(io.StringIO(text), ndmin=2, comments=None)
        except ValueError:
            numbers = np.empty((0, 0))
        if numbers.shape[1] != columns or not np.isfinite(numbers).all():
            raise DataError(f"{self.task}: {path}: {_first_fault(lines, columns)}")
        return numbers

    def _verify(self, path: Path, raw: bytes, numbers: Matrix) -> None:
        """Raise unless the file is the original, where that is known."""
        known = self.known.get(path.name)
        if known is None:
            return
        advice = f"{_source(self.web)}; task.verify = false takes the file as it is"
        if len(numbers) != known.rows:
            raise DataError(f"{self.task}: {path}: {known.rows} rows expected, found {len(numbers)}; {advice}")
        digest = hashlib.sha256(raw).hexdigest()
        if not digest.startswith(known.sha256):
            found = f"SHA-256 {known.sha256}... expected, found {digest[:16]}..."
            raise DataError(f"{self.task}: {path}: the file has the right shape but was changed ({found}); {advice}")


def originals(task: str, data: Path | None, web: str, known: Mapping[str, Known]) -> Originals:
    """Return the files of a data set: in the folder named after the task, or else in the given one.

    Args:
        task: The name of the task and of the folder.
        data: The folder that the user gave.
        web: The address of the official source.
        known: What the original files are, by name; empty to take any.

    Raises:
        DataError: No folder was given, or it does not exist; says where to get the files.
    """
    if data is None:
        raise DataError(f"{task}: give the folder of the original files with --data DIR, or DIR/{task}; {_source(web)}")
    if not data.is_dir():
        raise DataError(f"{task}: --data {data} is not a folder; {_source(web)}")
    own = data / task
    return Originals(task, web, own if own.is_dir() else data, known)


def _source(web: str) -> str:
    return f"the original is at {web}"


def _first_fault(lines: list[str], columns: int) -> str:
    """Return the first thing that is wrong with lines of numbers, counted from 1 as editors do."""
    for row, line in enumerate(lines, 1):
        fields = line.split()
        if fields and len(fields) != columns:
            return f"line {row} holds {len(fields)} numbers, {columns} expected"
        for column, field in enumerate(fields, 1):
            if not _is_finite(field):
                return f"line {row}, column {column} is {field!r}, a finite number expected"
    return f"not a table of {columns} columns of numbers"


def _is_finite(field: str) -> bool:
    try:
        return math.isfinite(float(field)) and "_" not in field  # Python reads 1_0 as a number; nothing else does
    except ValueError:
        return False
