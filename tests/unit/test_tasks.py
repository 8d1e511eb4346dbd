"""Every task that reads original files says what it misses, and refuses files that are not the originals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.tasks import CmapssConfig, HydraulicConfig, ImsConfig, TaskConfig, TepConfig, cmapss, hydraulic, tep
from fedslice.core.errors import DataError
from tests.originals import BOM, NORMAL_ROWS, SNAPSHOTS, write_all

UNVERIFIED: list[tuple[TaskConfig, str, str]] = [
    (TepConfig(verify=False), "d07.dat", tep.WEB),
    (HydraulicConfig(verify=False), "CE.txt", hydraulic.WEB),
    (CmapssConfig(verify=False), "RUL_FD001.txt", cmapss.WEB),
]
by_task = pytest.mark.parametrize(("config", "name", "web"), UNVERIFIED, ids=[config.name for config, _, _ in UNVERIFIED])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_all(tmp_path)


@pytest.mark.parametrize("config", [TepConfig(), HydraulicConfig(), CmapssConfig(), ImsConfig()], ids=lambda config: config.name)
def test_without_a_folder_the_source_is_named(config: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{config.name}: .*--data DIR.*https://"):
        config.build().load(None)
    with pytest.raises(DataError, match=rf"{config.name}: --data .*nowhere is not a folder; .*https://"):
        config.build().load(tmp_path / "nowhere")


@by_task
def test_a_missing_file_is_named_with_folder_and_source(config: Any, name: str, web: str, data: Path) -> None:
    (data / config.name / name).unlink()
    with pytest.raises(DataError) as caught:
        config.build().load(data)
    assert f"{config.name}: {name} is missing in {data / config.name}" in str(caught.value)
    assert web in str(caught.value)


def test_missing_snapshots_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ims: the folder 2nd_test is missing in .*https://"):
        ImsConfig().build().load(tmp_path)
    (tmp_path / "2nd_test").mkdir()
    with pytest.raises(DataError, match=r"ims: no snapshot named like .*https://"):
        ImsConfig().build().load(tmp_path)


@by_task
def test_files_may_lie_in_the_folder_itself(config: Any, name: str, web: str, data: Path) -> None:
    in_own = config.build().load(data)
    direct = config.build().load(data / config.name)
    np.testing.assert_array_equal(in_own.x, direct.x)


@pytest.mark.parametrize("config", [TepConfig(), HydraulicConfig(), CmapssConfig(), ImsConfig()], ids=lambda config: config.name)
def test_files_that_are_not_the_originals_are_refused_unless_allowed(config: Any, data: Path) -> None:
    with pytest.raises(DataError, match=r"expected, found .*task.verify = false"):
        config.build().load(data)
    assert len(config.model_copy(update={"verify": False}).build().load(data).x)


def test_writers_write_what_the_formats_hold(data: Path) -> None:
    assert (data / "tep" / "d00.dat").read_bytes().startswith(BOM)
    assert np.loadtxt(data / "tep" / "d00.dat", encoding="utf-8-sig").shape == (52, NORMAL_ROWS)
    assert (data / "cmapss" / "train_FD001.txt").read_bytes().split(b"\n")[0].endswith(b"  ")
    assert b"\r\n" in (data / "ims" / "2nd_test" / SNAPSHOTS[0]).read_bytes()
