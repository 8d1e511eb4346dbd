"""Text files of numbers are read however they are separated; what is wrong with one is said with its place."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.tasks.files import Known, originals
from fedslice.core.errors import DataError
from tests.originals import BOM


def read(tmp_path: Path, content: bytes, columns: int | None = 3) -> Any:
    (tmp_path / "some.txt").write_bytes(content)
    return originals("some", tmp_path, "https://source", {}).matrix("some.txt", columns)


@pytest.mark.parametrize(
    "content",
    [b"1 2 3\n4 5 6\n", b"\t1\t2\t3 \r\n\r\n4\t5\t6\r\n", BOM + b"  1.0E+00   2 3\n4 5 6", b"1 2 3  \n4 5 6  \n\n"],
    ids=["plain", "crlf and blank lines", "bom and no last newline", "trailing blanks"],
)
@pytest.mark.parametrize("columns", [3, None])
def test_text_is_read_however_it_is_separated(content: bytes, columns: int | None, tmp_path: Path) -> None:
    np.testing.assert_array_equal(read(tmp_path, content, columns), [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\r\n", "the file is empty"),
        (b"1 2 3\n\n4 five 6\n", "line 3, column 2 is 'five', a finite number expected"),
        (b"1 2 3\n4 5 nan\n", "line 2, column 3 is 'nan'"),
        (b"1 2 3\n-inf 5 6\n", "line 2, column 1 is '-inf'"),
        (b"1 2 1_0\n", "line 1, column 3 is '1_0'"),
        (b"# 1 2\n1 2 3\n", "line 1, column 1 is '#'"),
        (b"1 2 3\n4 5\n", "line 2 holds 2 numbers, 3 expected"),
        (b"1 2 3 4\n4 5 6 7\n", "line 1 holds 4 numbers, 3 expected"),
        (b"1;2;3\n", "line 1 holds 1 numbers, 3 expected"),
        (b"1 2 3\n4 \xb0 6\n", "byte 8 is not text"),
        (b"\xff\xfe1\x00 \x002\x00", "byte 0 is not text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^some: .*some.txt: .*{re.escape(message)}"):
        read(tmp_path, content)


def test_a_ragged_file_of_any_width_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2 holds 1 numbers, 2 expected"):
        read(tmp_path, b"1 2\n3\n", None)


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.txt").mkdir()
    with pytest.raises(DataError, match=r"some: cannot read .*some.txt"):
        originals("some", tmp_path, "https://source", {}).matrix("some.txt", 3)


def test_the_checksum_decides(tmp_path: Path) -> None:
    content = b"1 2 3\n4 5 6\n"
    known = {"some.txt": Known(2, hashlib.sha256(content).hexdigest()[:16])}
    files = originals("some", tmp_path, "https://source", known)
    (tmp_path / "some.txt").write_bytes(content)
    assert files.matrix("some.txt", 3).shape == (2, 3)
    (tmp_path / "some.txt").write_bytes(BOM + content)
    assert files.matrix("some.txt", 3).shape == (2, 3)
    (tmp_path / "some.txt").write_bytes(b"1 2 3\n4 5 7\n")
    with pytest.raises(DataError, match=r"some.txt: .*was changed .*https://source.*task.verify = false"):
        files.matrix("some.txt", 3)
    (tmp_path / "some.txt").write_bytes(b"1 2 3\n")
    with pytest.raises(DataError, match=r"some.txt: 2 rows expected, found 1; .*task.verify = false"):
        files.matrix("some.txt", 3)
