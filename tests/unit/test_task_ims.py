"""Bearings: order, the stopped rig, labels by rule, lead time from the first sustained alarm."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.tasks import Dataset, ImsConfig
from client.tasks import ims as the_file
from fedslice.core.errors import DataError
from tests.originals import SNAPSHOTS, edit_line, write_ims


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_ims(tmp_path)
    return tmp_path


def ims(data: Path, **settings: Any) -> Dataset:
    return ImsConfig(verify=False, **settings).build().load(data)


def test_ims_drops_the_stopped_rig_and_sorts_by_name(data: Path) -> None:
    for i, name in enumerate(reversed(SNAPSHOTS)):
        os.utime(data / "2nd_test" / name, (1000 + i, 1000 + i))
    dataset = ims(data, healthy_fraction=0.4)
    targets = dataset.test_y.reshape(-1, 4, 4)
    assert targets.shape[0] == 18  # twenty less two silent ones
    np.testing.assert_array_equal(targets[:, 0, 1], 6 * np.arange(18))
    np.testing.assert_array_equal(targets[0, :, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(targets[:, 0, 2], np.arange(18) >= 7)
    assert dataset.x.shape == (7 * 4, 11)
    np.testing.assert_array_equal(dataset.groups, list(range(4)) * 7)
    np.testing.assert_array_equal(dataset.x, dataset.test_x[:28])


def test_ims_labels_by_the_rule(data: Path) -> None:
    anomalous = ims(data).test_y.reshape(-1, 4, 4)[:, :, 3]
    np.testing.assert_array_equal(anomalous[:, 0], np.arange(18) >= 11)
    assert not anomalous[:, 1:].any()


def test_ims_features_of_a_sine() -> None:
    time = np.arange(2048)
    signal = np.stack([2 * np.sin(2 * np.pi * time * cycles / 2048) for cycles in (33, 257, 513, 999)], axis=1)
    rms, features = the_file._features(signal)
    np.testing.assert_allclose(rms, np.sqrt(2))
    log_rms, mean_abs, std, ptp, crest, kurtosis, *bands, skew = features.T
    np.testing.assert_allclose(10 ** np.stack([log_rms, std, crest]), np.sqrt(2), rtol=1e-3)
    np.testing.assert_allclose(10**mean_abs, 4 / np.pi, rtol=1e-2)
    np.testing.assert_allclose(10**ptp, 4, rtol=1e-3)
    np.testing.assert_allclose(10**kurtosis, 1.5, rtol=1e-6)
    np.testing.assert_allclose(skew, 0, atol=1e-6)
    # 1/32, 1/4, 1/2 and 0.98 of the spectrum: one sine in each band.
    np.testing.assert_array_equal(np.argmax(bands, axis=0), [0, 1, 2, 3])


def test_ims_features_are_relative_to_the_bearings_own_healthy_part(data: Path) -> None:
    before = ims(data)
    for name in SNAPSHOTS:
        path = data / "2nd_test" / name
        signal = np.loadtxt(path)
        signal[:, 2] *= 7  # another gain of one sensor
        np.savetxt(path, signal, "%.6f", delimiter="\t", newline="\r\n")
    np.testing.assert_allclose(ims(data).x, before.x, atol=1e-4)


def targets_of(alarms: str, healthy: int = 4) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return residuals and targets of bearing 1, an hour a snapshot: `x` is a large residual, `.` a usual one."""
    usual = np.tile([1.0, 1.1], healthy)[:healthy]
    sizes = np.concatenate([usual, [50.0 if mark == "x" else 1.0 for mark in alarms]])
    targets = np.zeros((len(sizes), 4), np.float32)
    targets[:, 1] = np.arange(len(sizes))
    targets[healthy:, 2] = 1
    targets[-2:, 3] = 1
    return np.repeat(sizes[:, None], 11, axis=1).astype(np.float32), targets


@pytest.mark.parametrize(
    ("alarms", "lead"),
    [("..xxx.", 1), ("xxxxxx", 3), ("xx.xx.", 0), ("......", 0), ("x.xxxx", 1), ("xx", 0)],
)
def test_ims_lead_time_is_from_the_first_sustained_alarm(alarms: str, lead: float) -> None:
    outputs, targets = targets_of(alarms)
    assert ImsConfig().build().metrics(outputs, targets)["lead_time_h"] == lead
    shuffled = np.random.default_rng(0).permutation(len(targets))
    assert ImsConfig().build().metrics(outputs[shuffled], targets[shuffled])["lead_time_h"] == lead


def test_ims_other_metrics() -> None:
    found = ImsConfig().build().metrics(*targets_of("x...xx"))
    assert found["false_alarm_rate"] == 0.25
    assert found["auc_roc"] == pytest.approx(7 / 8)
    outputs, targets = targets_of("..xxx.")
    outputs[3, 3] = np.nan
    assert all(np.isnan(value) for value in ImsConfig().build().metrics(outputs, targets).values())
    healthy_only = targets[:, 2] == 0
    assert all(np.isnan(v) for v in ImsConfig().build().metrics(outputs[:3], targets[healthy_only][:3]).values())


def test_ims_says_what_is_wrong(data: Path) -> None:
    folder = data / "2nd_test"
    with pytest.raises(DataError, match=r"the healthy part of 18 snapshots of the running rig is 1, at least 2"):
        ims(data, healthy_fraction=0.1)
    edit_line(folder / SNAPSHOTS[3], 5, r"\t", " , ")
    with pytest.raises(DataError, match=rf"{SNAPSHOTS[3]}: line 5 holds 5 numbers, 4 expected"):
        ims(data)
    (folder / "2004.13.01.00.00.00").write_text("1 2 3 4\n")
    with pytest.raises(DataError, match=r"2004.13.01.00.00.00 is not a time"):
        ims(data)


def test_ims_knows_most_snapshots_by_their_size_alone(data: Path) -> None:
    for name in SNAPSHOTS:
        (data / "2nd_test" / name).write_text("1\t2\t3\t4\r\n" * 20_479)
    with pytest.raises(DataError, match=r"20480 rows expected, found 20479"):
        ImsConfig().build().load(data)
