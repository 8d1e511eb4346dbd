"""The Tennessee Eastman files: transposed, with onset, five plants, windows that cross nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.tasks import Dataset, TepConfig
from fedslice.core.errors import DataError
from tests.originals import BEFORE_ONSET, NORMAL_ROWS, TEST_ROWS, TRAIN_ROWS, edit_line, write_tep


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tep(tmp_path)
    return tmp_path


def tep(data: Path, **settings: Any) -> Dataset:
    return TepConfig(verify=False, **settings).build().load(data)


def test_tep_reads_the_transposed_file_and_cuts_at_the_onset(data: Path) -> None:
    dataset = tep(data)
    assert dataset.x.shape == (NORMAL_ROWS + 21 * TRAIN_ROWS, 52)
    assert dataset.test_x.shape == (TEST_ROWS + 21 * (TEST_ROWS - 160), 52)
    assert dataset.test_x.max() < BEFORE_ONSET
    for fault in range(1, 22):
        assert dataset.x[dataset.y == fault, fault].mean() == pytest.approx(6, abs=1)
        assert dataset.test_x[dataset.test_y == fault, fault].mean() == pytest.approx(6, abs=1.5)
    assert abs(dataset.x[dataset.y == 0].mean()) < 0.2


def test_tep_plants_share_normal_data_and_no_fault(data: Path) -> None:
    for classes in (22, 19):
        dataset = tep(data, classes=classes)
        assert set(dataset.groups) == set(range(5))
        plants_of = [set(dataset.groups[dataset.y == c]) for c in range(classes)]
        assert plants_of[0] == set(range(5))
        assert all(len(plants) == 1 for plants in plants_of[1:])
        faults_of = np.bincount([plant for plants in plants_of[1:] for plant in plants], minlength=5)
        assert faults_of.max() - faults_of.min() <= 1


def test_tep_of_19_classes_needs_no_hidden_faults(data: Path) -> None:
    for fault in (3, 9, 15):
        (data / f"d{fault:02}.dat").unlink()
        (data / f"d{fault:02}_te.dat").unlink()
    dataset = tep(data, classes=19)
    assert set(dataset.y) == set(dataset.test_y) == set(range(19))
    assert dataset.x[dataset.y == 3, 4].mean() == pytest.approx(6, abs=1)  # the third class is fault 4 now


def test_tep_windows_cross_neither_files_nor_the_onset(data: Path) -> None:
    for path in (data).glob("d*.dat"):  # make each stretch constant: any window across two is not
        level = 1 + int(path.name[1:3])
        rows = np.full((TEST_ROWS if "_te" in path.name else TRAIN_ROWS, 52), level)
        if "_te" in path.name and level > 1:
            rows[:160] = 500
        np.savetxt(path, rows, "%d")
    dataset = tep(data, window=4)
    assert dataset.x.shape == (5 * (TRAIN_ROWS // 5 - 3) + 21 * (TRAIN_ROWS - 3), 208)
    assert dataset.test_x.shape == (TEST_ROWS - 3 + 21 * (TEST_ROWS - 160 - 3), 208)
    for x, y in ((dataset.x, dataset.y), (dataset.test_x, dataset.test_y)):
        last, mean, std, change = np.split(x, 4, axis=1)
        assert (last == y[:, None] + 1).all()
        assert (mean == last).all()
        assert not std.any()
        assert not change.any()


def test_tep_window_statistics(data: Path) -> None:
    row, window = tep(data), tep(data, window=3)
    first = row.x[:3]
    np.testing.assert_allclose(window.x[0, :52], first[2], rtol=1e-6)
    np.testing.assert_allclose(window.x[0, 52:104], first.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(window.x[0, 104:156], first.std(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(window.x[0, 156:], first[2] - first[0], rtol=1e-4, atol=1e-6)


def test_tep_says_which_file_has_another_shape(data: Path) -> None:
    path = data / "d05_te.dat"
    np.savetxt(path, np.ones((10, 51)))
    with pytest.raises(DataError, match=r"tep: .*d05_te.dat: 52 columns expected, found 51"):
        tep(data)
    np.savetxt(path, np.ones((160, 52)))
    with pytest.raises(DataError, match=r"tep: .*d05_te.dat: more than 160 rows expected, found 160"):
        tep(data)


def test_tep_refuses_a_window_longer_than_a_run(data: Path) -> None:
    with pytest.raises(DataError, match=r"tep: a stretch of 12 rows is shorter than task.window = 13"):
        tep(data, window=13)


def test_tep_names_a_nan_with_its_place(data: Path) -> None:
    edit_line(data / "d02.dat", 7, r"\S+", "NaN")
    with pytest.raises(DataError, match=r"tep: .*d02.dat: line 7, column 1 is 'NaN'"):
        tep(data)
