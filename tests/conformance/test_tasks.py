"""Every task of the union keeps the contract of a task; those that read original files do so on tiny ones."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from client import scaling
from client.tasks import Dataset, Task, TaskConfig
from fedslice.core.errors import DataError
from fedslice.core.params import Kind, describe
from tests.originals import WRITERS, write_all

CONFIGS: list[Any] = list(get_args(get_args(TaskConfig)[0]))


def name_of(config: Any) -> str:
    name: str = config.model_fields["name"].default
    return name


def reads_files(config: Any) -> bool:
    return "verify" in config.model_fields


def build(config: Any) -> Task:
    task: Task = config(**({"verify": False} if reads_files(config) else {})).build()
    return task


every_task = pytest.mark.parametrize("config", CONFIGS, ids=name_of)
every_reader = pytest.mark.parametrize("config", list(filter(reads_files, CONFIGS)), ids=name_of)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def loaded() -> dict[str, Dataset]:
    return {}


@pytest.fixture
def dataset(config: Any, data: Path, loaded: dict[str, Dataset]) -> Dataset:
    if name_of(config) not in loaded:
        loaded[name_of(config)] = build(config).load(data)
    return loaded[name_of(config)]


def scaled_model(task: Task, dataset: Dataset) -> torch.nn.Module:
    torch.manual_seed(0)
    model = task.model()
    scaling.fill(model, scaling.sums(dataset.x))
    return model


@every_task
def test_a_task_that_reads_files_has_a_writer(config: Any) -> None:
    assert reads_files(config) == (name_of(config) in WRITERS)


@every_task
def test_the_data_set_is_sound(config: Any, dataset: Dataset) -> None:
    count, test_count = len(dataset.x), len(dataset.test_x)
    assert count
    assert test_count
    assert len(dataset.y) == len(dataset.labels) == len(dataset.groups) == count
    assert len(dataset.test_y) == test_count
    assert dataset.x.dtype == dataset.test_x.dtype == np.float32
    assert dataset.x.shape[1:] == dataset.test_x.shape[1:]
    assert dataset.y.shape[1:] == dataset.test_y.shape[1:]
    assert dataset.labels.dtype == dataset.groups.dtype == np.int64
    assert dataset.labels.shape == dataset.groups.shape == (count,)
    assert dataset.labels.min() >= 0
    assert dataset.groups.min() >= 0
    assert len(np.unique(dataset.labels)) > 1
    assert len(np.unique(dataset.groups)) > 1
    assert all(np.isfinite(part).all() for part in (dataset.x, dataset.y, dataset.test_x, dataset.test_y))


@every_task
def test_every_node_would_load_the_same(config: Any, dataset: Dataset, data: Path) -> None:
    again = build(config).load(data)
    for name in ("x", "y", "labels", "groups", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(again, name), getattr(dataset, name))


@every_task
def test_the_model_answers_one_row_an_example(config: Any, dataset: Dataset) -> None:
    outputs = scaled_model(build(config), dataset)(torch.from_numpy(dataset.x[:7]))
    assert outputs.ndim == 2
    assert len(outputs) == 7
    assert outputs.dtype == torch.float32
    assert torch.isfinite(outputs).all()


@every_task
def test_one_step_lowers_the_loss(config: Any, dataset: Dataset) -> None:
    task = build(config)
    model = scaled_model(task, dataset)
    x, y = torch.from_numpy(dataset.x), torch.from_numpy(dataset.y)
    before = task.loss(model(x), y)
    assert before.ndim == 0
    assert torch.isfinite(before)
    torch.autograd.backward(before)
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    assert task.loss(model(x), y) < before


@every_task
def test_metrics_are_those_announced(config: Any, dataset: Dataset) -> None:
    task = build(config)
    with torch.no_grad():
        outputs = scaled_model(task, dataset)(torch.from_numpy(dataset.test_x)).numpy()
    found = task.metrics(outputs, dataset.test_y)
    assert set(found) == set(task.better)
    assert set(task.better.values()) <= {"higher", "lower"}
    assert all(type(value) is float and np.isfinite(value) for value in found.values())


@every_task
def test_outputs_of_a_diverged_model_keep_the_keys(config: Any, dataset: Dataset) -> None:
    task = build(config)
    with torch.no_grad():
        shape = task.model()(torch.from_numpy(dataset.test_x)).shape
    assert set(task.metrics(np.full(shape, np.nan, np.float32), dataset.test_y)) == set(task.better)


@every_task
def test_scaling_entries_are_statistics_and_the_rest_weights(config: Any) -> None:
    task = build(config)
    arrays = {name: value.numpy() for name, value in task.model().state_dict().items()}
    kinds = {name: entry.kind for name, entry in describe(arrays, task.kinds()).items()}
    assert {name for name, kind in kinds.items() if kind is Kind.STATISTIC} == {"scale.mean", "scale.std"}
    assert {kind for name, kind in kinds.items() if not name.startswith("scale.")} == {Kind.WEIGHT}


@every_task
def test_same_torch_seed_same_model(config: Any) -> None:
    def initial(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return list(build(config).model().parameters())

    assert all(torch.equal(a, b) for a, b in zip(initial(3), initial(3), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(initial(3), initial(4), strict=True))


@every_reader
def test_without_data_the_error_says_where_to_get_it(config: Any) -> None:
    with pytest.raises(DataError, match="https://"):
        build(config).load(None)
