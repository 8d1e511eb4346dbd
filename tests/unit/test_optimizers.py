"""Server optimizers: FedAvg exactly, torch.optim by hand, and a state that can be saved."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedslice.core.params import Array, dtype_of
from server.aggregation import AdamConfig, ServerOptimizer, SgdConfig
from server.aggregation import optimizers as module
from tests.support import bits

Floats = npt.NDArray[np.float64]
CONFIGS: list[SgdConfig | AdamConfig] = [SgdConfig(), SgdConfig(lr=0.3, momentum=0.9), AdamConfig(lr=0.05)]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=["sgd", "momentum", "adam"])


def some_arrays(rng: np.random.Generator) -> dict[str, Array]:
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "a/b.weight": ((3, 4), "float32"),
        "scalar": ((), "float64"),
        "empty": ((0, 2), "float32"),
        "half": ((5,), "float16"),
        "brain": ((2, 2), "bfloat16"),
    }
    return {n: np.asarray(rng.normal(0, 1, shape)).astype(dtype_of(dtype)) for n, (shape, dtype) in shapes.items()}


def some_changes(arrays: dict[str, Array], rng: np.random.Generator) -> dict[str, Floats]:
    return {name: np.asarray(rng.normal(0, 0.1, array.shape)) for name, array in arrays.items()}


def by_hand(config: SgdConfig | AdamConfig, start: Floats, changes: list[Floats]) -> list[Floats]:
    """The closed recursions of SGD with momentum and of Adam."""
    x, m, v, path = start.copy(), np.zeros_like(start), np.zeros_like(start), []
    for t, change in enumerate(changes, 1):
        g = -change
        if isinstance(config, SgdConfig):
            m = config.momentum * m + g
            x = x - config.lr * m
        else:
            m = config.beta1 * m + (1 - config.beta1) * g
            v = config.beta2 * v + (1 - config.beta2) * g * g
            step = (m / (1 - config.beta1**t)) / (np.sqrt(v / (1 - config.beta2**t)) + config.eps)
            x = x - config.lr * step
        path.append(x.copy())
    return path


def by_torch(config: SgdConfig | AdamConfig, start: Floats, changes: list[Floats]) -> list[Floats]:
    x = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer: torch.optim.Optimizer
    if isinstance(config, SgdConfig):
        optimizer = torch.optim.SGD([x], lr=config.lr, momentum=config.momentum)
    else:
        optimizer = torch.optim.Adam([x], lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)
    path = []
    for change in changes:
        x.grad = torch.from_numpy(-change)
        optimizer.step()
        path.append(x.detach().numpy().copy())
    return path


def test_sgd_of_rate_one_is_fedavg_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    arrays = some_arrays(rng)
    changes = some_changes(arrays, rng)
    expected = {n: np.asarray(a.astype(np.float64) + changes[n]).astype(a.dtype) for n, a in arrays.items()}
    assert bits(SgdConfig().build().step(arrays, dict(changes))) == bits(expected)


@every_config
@pytest.mark.parametrize("part", [7, 1 << 18], ids=["in parts", "at once"])
def test_steps_are_those_of_torch_and_of_the_formulas(
    config: SgdConfig | AdamConfig, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PART", part)
    rng = np.random.default_rng(1)
    start = rng.normal(0, 1, (4, 5))
    changes = [rng.normal(0, 0.1, (4, 5)) for _ in range(12)]
    optimizer, x, path = config.build(), start, []
    for change in changes:
        x = optimizer.step({"x": x}, {"x": change.copy()})["x"]
        path.append(x)
    np.testing.assert_array_equal(path, by_torch(config, start, changes))
    np.testing.assert_allclose(path, by_hand(config, start, changes), rtol=1e-12, atol=1e-14)


@every_config
def test_dtypes_and_shapes_stay_and_old_arrays_are_not_touched(config: SgdConfig | AdamConfig) -> None:
    rng = np.random.default_rng(2)
    arrays = some_arrays(rng)
    before = bits(arrays)
    changes = some_changes(arrays, rng)
    stepped = config.build().step(arrays, changes)
    assert bits(arrays) == before
    assert changes == {}
    assert {n: (a.dtype, a.shape) for n, a in stepped.items()} == {n: (a.dtype, a.shape) for n, a in arrays.items()}
    assert all(not np.array_equal(stepped[n], arrays[n]) for n in arrays if arrays[n].size)


def run(optimizer: ServerOptimizer, arrays: dict[str, Array], rounds: range) -> dict[str, Array]:
    for number in rounds:
        arrays = optimizer.step(arrays, some_changes(arrays, np.random.default_rng(number)))
    return arrays


@every_config
@pytest.mark.parametrize("part", [3, 1 << 18], ids=["in parts", "at once"])
def test_a_restored_state_gives_the_same_next_steps(
    config: SgdConfig | AdamConfig, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PART", part)
    arrays = some_arrays(np.random.default_rng(3))
    optimizer, resumed = config.build(), config.build()
    middle = run(optimizer, arrays, range(4))
    saved = {name: tensor.copy() for name, tensor in optimizer.tensors().items()}
    resumed.restore(saved)
    assert bits(resumed.tensors()) == bits(saved)
    assert bits(run(resumed, middle, range(4, 8))) == bits(run(optimizer, middle, range(4, 8)))
    assert bits(resumed.tensors()) == bits(optimizer.tensors())
    assert bool(saved) is not (isinstance(config, SgdConfig) and not config.momentum)


def test_adam_moves_by_its_rate_on_a_steady_change() -> None:
    optimizer, x = AdamConfig(lr=0.01, eps=1e-12).build(), np.zeros(2)
    for _ in range(50):
        x = optimizer.step({"x": x}, {"x": np.array([5.0, -0.2])})["x"]
    np.testing.assert_allclose(x, [0.5, -0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("config", "bad"),
    [(SgdConfig, {"lr": 0.0}), (SgdConfig, {"momentum": 1.0}), (AdamConfig, {"beta2": -0.1}), (AdamConfig, {"eps": 0.0})],
)
def test_settings_out_of_range_are_refused(config: Any, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        config(**bad)
