"""The hydraulic rig: runs stay whole, levels become classes, cycles become statistics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.tasks import Dataset, HydraulicConfig
from client.tasks import hydraulic as the_file
from fedslice.core.errors import DataError
from tests.originals import CYCLES_A_RUN, NUM_RUNS, write_hydraulic


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_hydraulic(tmp_path)
    return tmp_path


def hydraulic(data: Path, **settings: Any) -> Dataset:
    return HydraulicConfig(verify=False, **settings).build().load(data)


def test_hydraulic_never_splits_a_run(data: Path) -> None:
    dataset = hydraulic(data)
    run, test_run = dataset.x[:, 0], dataset.test_x[:, 0]  # what TS1 reads in the tiny files
    assert not set(run) & set(test_run)
    assert len(set(test_run)) == NUM_RUNS // 5
    assert len(run) + len(test_run) == NUM_RUNS * CYCLES_A_RUN


def test_hydraulic_runs_change_with_any_part_but_not_with_the_flag() -> None:
    state = [3.0, 100.0, 0.0, 130.0, 0.0]
    profile = np.tile(state, (10, 1))
    for row, column in ((1, 4), (3, 0), (5, 1), (7, 2), (9, 3)):
        profile[row, column] += 1
    np.testing.assert_array_equal(the_file._runs(profile), [0, 0, 0, 1, 2, 3, 4, 5, 6, 7])


@pytest.mark.parametrize("target", list(the_file.LEVELS))
def test_hydraulic_classes_are_the_levels_in_order(target: Any, data: Path) -> None:
    levels = the_file.LEVELS[target]
    dataset = hydraulic(data, target=target)
    np.testing.assert_array_equal(dataset.y, dataset.x[:, 0].astype(int) % len(levels))
    np.testing.assert_array_equal(dataset.groups, dataset.x[:, 0].astype(int) % 3)


def test_hydraulic_statistics_of_a_ramp(data: Path) -> None:
    path = data / "TS2.txt"
    np.savetxt(path, np.tile(2.0 * np.arange(60), (NUM_RUNS * CYCLES_A_RUN, 1)), "%g", delimiter="\t")
    ramp = hydraulic(data).x[:, 16:32]
    expected = [*(4 + 10 * np.arange(12)), 2 * np.arange(60).std(), 0, 118, 2]
    np.testing.assert_allclose(ramp, np.tile(expected, (len(ramp), 1)), rtol=1e-6)


def test_hydraulic_says_what_is_wrong(data: Path) -> None:
    profile = data / "profile.txt"
    text = profile.read_text()
    profile.write_text(text.replace("73", "74", 1))
    with pytest.raises(DataError, match=r"valve is one of 73, 80, 90, 100; found 74 in row 1$"):
        hydraulic(data)
    profile.write_text("".join(text.splitlines(keepends=True)[: 4 * CYCLES_A_RUN]))
    with pytest.raises(DataError, match=r"TS1.txt: 16 rows expected, as in profile.txt, found 60"):
        hydraulic(data)
    for sensor in the_file.SENSORS:
        path = data / f"{sensor}.txt"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: 4 * CYCLES_A_RUN]))
    with pytest.raises(DataError, match=r"at least 5 runs of constant state"):
        hydraulic(data)
