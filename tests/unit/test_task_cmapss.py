"""Turbofan engines: windows, padding, capped targets, and errors in cycles."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from client.tasks import CmapssConfig, Dataset
from client.tasks import cmapss as the_file
from fedslice.core.errors import DataError
from tests.originals import LEFT, LIVES, TEST_LIVES, edit_line, write_cmapss


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_cmapss(tmp_path)
    return tmp_path


def cmapss(data: Path, **settings: Any) -> Dataset:
    return CmapssConfig(verify=False, **settings).build().load(data)


def test_cmapss_windows_targets_and_engines(data: Path) -> None:
    dataset = cmapss(data, window=30, max_rul=8)
    windows = [max(1, life - 29) for life in LIVES]
    assert dataset.x.shape == (sum(windows), 30 * 14)
    np.testing.assert_array_equal(np.bincount(dataset.groups), windows)
    np.testing.assert_array_equal(dataset.y, np.concatenate([np.minimum(np.arange(n)[::-1], 8) for n in windows]))
    assert dataset.y.dtype == np.float32
    x = dataset.x.reshape(-1, 30, 14)
    np.testing.assert_allclose(x[0, :, 0], np.arange(1, 31) + 0.02)  # sensor 2 of cycles 1 to 30, oldest first
    np.testing.assert_allclose(x[0, 0], 1 + np.array(the_file.SENSORS) / 100)
    np.testing.assert_allclose(x[windows[0], :, 0], np.arange(1, 31) + 0.02)  # the next engine starts anew


def test_cmapss_pads_short_engines_with_their_first_cycle(data: Path) -> None:
    dataset = cmapss(data, window=30)
    short = dataset.x[dataset.groups == 2].reshape(30, 14)
    np.testing.assert_allclose(short[:, 0] - 0.02, [1] * 10 + list(range(1, 21)), rtol=1e-6)
    assert dataset.y[dataset.groups == 2] == [0]


def test_cmapss_tests_the_last_window_against_the_capped_rul(data: Path) -> None:
    dataset = cmapss(data, window=30)
    np.testing.assert_array_equal(dataset.test_y, np.minimum(LEFT, 125))
    last = dataset.test_x.reshape(2, 30, 14)[:, :, 0] - 0.02
    np.testing.assert_allclose(last[0], np.arange(TEST_LIVES[0] - 29, TEST_LIVES[0] + 1), rtol=1e-6)
    np.testing.assert_allclose(last[1], [1] * 18 + list(range(1, 13)), rtol=1e-6)


def test_cmapss_labels_are_fifths_by_life_left(data: Path) -> None:
    dataset = cmapss(data, window=1, max_rul=3)
    counts = np.bincount(dataset.labels, minlength=5)
    assert counts.max() - counts.min() <= 2 * len(LIVES)  # engines share each RUL
    # Within an engine the label falls as failure nears.
    assert all((np.diff(dataset.labels[dataset.groups == unit]) <= 0).all() for unit in range(len(LIVES)))


def shares(cycles: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return what the model would put out for so many cycles."""
    return (cycles / 125).astype(np.float32)[:, None]


def test_cmapss_measures_in_cycles() -> None:
    task = CmapssConfig().build()
    targets = np.array([60, 60], np.float32)
    perfect = task.metrics(shares(targets), targets)
    assert perfect == {"rmse": pytest.approx(0, abs=1e-4), "phm08_score": pytest.approx(0, abs=1e-4)}
    off = task.metrics(shares(targets + np.array([10, -13])), targets)
    assert off["rmse"] == pytest.approx(np.sqrt((10**2 + 13**2) / 2), rel=1e-5)
    assert off["phm08_score"] == pytest.approx(2 * (np.e - 1), rel=1e-5)
    wild = task.metrics(np.array([[1e6], [-1e6]], np.float32), targets)
    assert wild["rmse"] == pytest.approx(np.sqrt((65**2 + 60**2) / 2), rel=1e-5)


def test_cmapss_loss_does_not_depend_on_the_unit() -> None:
    outputs, targets = torch.tensor([[0.5], [1.0]]), torch.tensor([62.5, 0.0])
    assert CmapssConfig().build().loss(outputs, targets).item() == pytest.approx(0.5)


def test_cmapss_says_what_is_wrong(data: Path) -> None:
    (data / "RUL_FD001.txt").write_text("140 \n")
    with pytest.raises(DataError, match=r"RUL_FD001.txt: 2 rows expected, one an engine of test_FD001.txt, found 1"):
        cmapss(data)
    edit_line(data / "train_FD001.txt", 3, "^1 3 ", "1 4 ")
    with pytest.raises(DataError, match=r"train_FD001.txt: row 3 is engine 1, cycle 4; engine 1, cycle 3 expected"):
        cmapss(data)
    edit_line(data / "train_FD001.txt", 1, "^1 ", "unit ")
    with pytest.raises(DataError, match=r"train_FD001.txt: line 1, column 1 is 'unit'"):
        cmapss(data)
    with pytest.raises(DataError, match=r"train_FD003.txt is missing"):
        cmapss(data, subset="FD003")
    write_cmapss(data, "FD003")
    assert len(cmapss(data, subset="FD003").x) == sum(max(1, life - 29) for life in LIVES)
