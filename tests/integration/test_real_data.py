"""The original files, where they are: shapes, counts, and that a short central training reaches what is known of them.

Floors are a little under what logistic regressions and small networks reach on the same splits.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client import scaling
from client.tasks import CmapssConfig, Dataset, HydraulicConfig, ImsConfig, Task, TaskConfig, TepConfig

DATA = Path(os.environ.get("FEDSLICE_DATA") or Path(__file__).parents[3] / "shared" / "data")
pytestmark = pytest.mark.data

SIZES = {
    "tep/d00.dat": 416_049,
    **{f"tep/d{k:02}.dat": 399_840 for k in range(1, 22)},
    **{f"tep/d{k:02}_te.dat": 799_680 for k in range(22)},
    "cmapss/train_FD001.txt": 3_515_356,
    "cmapss/test_FD001.txt": 2_228_855,
    "cmapss/train_FD003.txt": 4_213_862,
    "cmapss/test_FD003.txt": 2_826_651,
    "hydraulic/profile.txt": 31_196,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small only wait for more
    yield
    torch.set_num_threads(before)


def folder(name: str) -> Path:
    """Return the folder of a data set, or skip the test."""
    if not (DATA / name).is_dir():
        pytest.skip(f"no original files in {DATA / name}; set FEDSLICE_DATA to the folder that holds {name}")
    return DATA / name


def load(config: TaskConfig) -> tuple[Task, Dataset]:
    folder(config.name)
    task = config.build()
    return task, task.load(DATA)


def train(task: Task, dataset: Dataset, epochs: int, lr: float = 1e-3, batch: int = 64) -> dict[str, float]:
    """Return what a model measures that was trained on all the data, the same each time on one machine."""
    torch.manual_seed(0)
    model = task.model()
    scaling.fill(model, scaling.sums(dataset.x))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    x, y = torch.from_numpy(dataset.x), torch.from_numpy(dataset.y)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x)), batch):
            optimizer.zero_grad()
            torch.autograd.backward(task.loss(model(x[rows]), y[rows]))
            optimizer.step()
    with torch.no_grad():
        return task.metrics(model(torch.from_numpy(dataset.test_x)).numpy(), dataset.test_y)


@pytest.mark.parametrize("name", ["tep", "cmapss", "hydraulic"])
def test_files_have_the_canonical_sizes(name: str) -> None:
    folder(name)
    sizes = {path: size for path, size in SIZES.items() if path.startswith(f"{name}/")}
    assert {path: (DATA / path).stat().st_size for path in sizes} == sizes


@pytest.mark.parametrize(
    ("classes", "window", "floor"),
    [(22, 1, 0.47), (19, 1, 0.55), (22, 20, 0.60), (19, 20, 0.70)],
)
def test_tep(classes: Any, window: int, floor: float) -> None:
    task, dataset = load(TepConfig(classes=classes, window=window))
    lost = window - 1  # rows of each stretch that end no window
    assert dataset.x.shape == (500 - 5 * lost + (classes - 1) * (480 - lost), 52 if window == 1 else 208)
    assert dataset.test_x.shape == (960 - lost + (classes - 1) * (800 - lost), dataset.x.shape[1])
    np.testing.assert_array_equal(np.bincount(dataset.test_y), [960 - lost] + [800 - lost] * (classes - 1))
    assert len(np.unique(dataset.groups)) == 5
    assert train(task, dataset, epochs=10)["macro_f1"] > floor


def test_tep_faults_4_and_5_share_their_rows_before_the_onset() -> None:
    one, two = (np.loadtxt(folder("tep") / f"d0{k}_te.dat") for k in (4, 5))
    np.testing.assert_array_equal(one[:160], two[:160])
    assert (one[160:] != two[160:]).any(axis=1).all()


@pytest.mark.parametrize(
    ("target", "counts", "floor"),
    [
        ("cooler", [732, 732, 741], 0.85),
        ("valve", [360, 360, 360, 1125], 0.55),
        ("pump", [1221, 492, 492], 0.88),
        ("accumulator", [808, 399, 399, 599], 0.70),
        ("stable", [1449, 756], 0.35),
    ],
)
def test_hydraulic(target: Any, counts: list[int], floor: float) -> None:
    task, dataset = load(HydraulicConfig(target=target))
    assert dataset.x.shape[1] == 128
    np.testing.assert_array_equal(np.bincount(np.concatenate([dataset.y, dataset.test_y])), counts)
    assert np.bincount(dataset.test_y, minlength=len(counts)).min() > 0
    assert set(dataset.groups) == {0, 1, 2}
    assert train(task, dataset, epochs=60, lr=3e-3)["macro_f1"] > floor


@pytest.mark.parametrize(("subset", "num_rows", "mean_life"), [("FD001", 20_631, 206.31), ("FD003", 24_720, 247.2)])
def test_cmapss(subset: Any, num_rows: int, mean_life: float) -> None:
    task, dataset = load(CmapssConfig(subset=subset))
    assert dataset.x.shape == (num_rows - 29 * 100, 30 * 14)
    assert len(dataset.test_x) == 100
    windows = np.bincount(dataset.groups)
    assert windows.mean() + 29 == pytest.approx(mean_life)
    assert dataset.y.max() == dataset.test_y.max() == 125
    assert dataset.test_y.min() == {"FD001": 7, "FD003": 6}[subset]
    assert np.bincount(dataset.labels).min() > 0.18 * len(dataset.x)
    assert (dataset.x.std(axis=0) > 0).all()
    found = train(task, dataset, epochs=4, batch=128)
    assert found["rmse"] < 16.0
    assert found["phm08_score"] < 700


def test_ims() -> None:
    task, dataset = load(ImsConfig())
    targets = dataset.test_y.reshape(-1, 4, 4)
    assert targets[-1, 0, 1] == pytest.approx(163.5)  # the last of the running rig; the two after it stand still
    assert (targets[1:, 0, 1] > targets[:-1, 0, 1]).all()
    onset = targets[targets[:, 0, 3] == 1][0, 0, 1]
    assert onset == pytest.approx(88.8, abs=0.4)  # snapshots 532 or 533: rms of bearing 1 leaves its band
    epochs = max(10, 1500 // len(dataset.x))
    found = train(task, dataset, epochs, lr=3e-3, batch=16)
    assert found["auc_roc"] > 0.93
    assert 40 < found["lead_time_h"] < 80
    assert found["false_alarm_rate"] < 0.3
