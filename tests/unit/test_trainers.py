"""The torch trainer against a plain loop, and what it must leave alone."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

from client.trainers import Job, LocalTrainer, TrainingConfig, examples_processed
from client.trainers.memory import isolated, numpy_views, to_numpy
from fedslice.core.params import Array
from tests.support import BFLOAT16, BatchNormNet, bits

X = np.random.default_rng(0).normal(0, 1, (50, 4)).astype(np.float32)
Y = (X.sum(axis=1, keepdims=True) + 0.5).astype(np.float32)


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


class HalfNet(torch.nn.Module):
    """Computes in bfloat16, but for one layer: two dtypes under one trainer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8).to(torch.bfloat16), torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.tanh(self.first(x.to(torch.bfloat16))).float())
        return result


def fresh(make: Callable[[], torch.nn.Module] = mlp) -> tuple[torch.nn.Module, dict[str, Array]]:
    with isolated(1):
        module = make()
    return module, {name: view.copy() for name, view in numpy_views(module).items()}


def trained(config: TrainingConfig, seed: int = 3, make: Callable[[], torch.nn.Module] = mlp, num: int = 50) -> Any:
    module, arrays = fresh(make)
    return next(LocalTrainer(module, mse_loss, config).train([Job(arrays, X[:num], Y[:num], seed)]))


def plain_loop(config: TrainingConfig, seed: int, make: Callable[[], torch.nn.Module]) -> tuple[dict[str, Array], float, int]:
    """The same as anybody would write it, on the same batches."""
    module, _ = fresh(make)
    optimizer = torch.optim.SGD(module.parameters(), lr=config.lr, momentum=config.momentum)
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    steps, count, loss_sum = 0, 0, 0.0
    module.train()
    with isolated(seed):
        for _ in range(config.epochs):
            if config.max_steps and steps >= config.max_steps:
                break
            loss_sum, in_epoch = 0.0, 0
            for batch in torch.randperm(50).split(config.batch_size):  # type: ignore[no-untyped-call]
                if config.max_steps and steps >= config.max_steps:
                    break
                optimizer.zero_grad()
                loss = mse_loss(module(x[batch]), y[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                steps, count, in_epoch = steps + 1, count + len(batch), in_epoch + len(batch)
                loss_sum += loss.item() * len(batch)
            mean_loss = loss_sum / in_epoch
    return {n: to_numpy(t).copy() for n, t in module.state_dict().items()}, mean_loss, count


@pytest.mark.parametrize("make", [mlp, BatchNormNet, HalfNet], ids=["mlp", "batch norm", "bfloat16"])
@pytest.mark.parametrize(
    "config",
    [
        TrainingConfig(),
        TrainingConfig(epochs=4, batch_size=16, lr=0.01, momentum=0.0),
        TrainingConfig(epochs=3, batch_size=8, max_steps=10),
        TrainingConfig(epochs=3, batch_size=100, max_steps=2),
    ],
    ids=range(4),
)
def test_training_is_a_plain_loop_of_sgd(config: TrainingConfig, make: Callable[[], torch.nn.Module]) -> None:
    result = trained(config, make=make)
    arrays, loss, count = plain_loop(config, 3, make)
    for name, array in arrays.items():
        assert result.arrays[name].dtype == array.dtype
        tolerance = 1e-2 if array.dtype == BFLOAT16 else 2e-3 if make is HalfNet else 1e-6
        np.testing.assert_allclose(
            result.arrays[name].astype(np.float64), array.astype(np.float64), rtol=tolerance, atol=tolerance
        )
    assert result.loss == pytest.approx(loss, rel=2e-3 if make is HalfNet else 1e-5)
    assert result.num_processed == count == examples_processed(config, 50)
    _, start = fresh(make)
    assert all(not np.array_equal(result.arrays[n], start[n]) for n in start)


@pytest.mark.parametrize("max_steps", [0, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("batch_size", [1, 7, 50, 64])
@pytest.mark.parametrize("num", [1, 14, 50])
def test_work_is_foretold_exactly(num: int, batch_size: int, max_steps: int) -> None:
    config = TrainingConfig(epochs=2, batch_size=batch_size, max_steps=max_steps)
    assert trained(config, num=num).num_processed == examples_processed(config, num)
    steps = min(max_steps or math.inf, 2 * math.ceil(num / batch_size))
    assert examples_processed(config, num) <= steps * batch_size


def test_the_seed_alone_decides() -> None:
    config = TrainingConfig(epochs=2)
    first = trained(config)
    torch.manual_seed(99)
    torch.rand(10)
    assert bits(trained(config).arrays) == bits(first.arrays)
    assert trained(config).loss == first.loss
    assert bits(trained(config, seed=4).arrays) != bits(first.arrays)


def test_a_node_inherits_nothing_from_the_one_before() -> None:
    config = TrainingConfig(epochs=2, momentum=0.9)
    module, arrays = fresh(BatchNormNet)
    jobs = [Job(arrays, X[:20], Y[:20], 1), Job(arrays, X[20:], Y[20:], 2)]
    trainer = LocalTrainer(module, mse_loss, config)
    together = list(trainer.train(jobs))
    alone = next(trainer.train([jobs[1]]))
    kept = bits(together[0].arrays)
    assert bits(together[1].arrays) == bits(alone.arrays)
    assert together[1].loss == alone.loss
    assert bits(together[0].arrays) == kept  # a result is a copy: training on does not reach it
    assert bits(arrays) == bits(fresh(BatchNormNet)[1])


def test_nothing_global_is_changed() -> None:
    def state() -> tuple[Any, ...]:
        numpys: Any = np.random.get_state(legacy=False)
        switches = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()
        return torch.get_rng_state().tolist(), random.getstate(), numpys["state"]["key"].tolist(), switches

    before = state()
    trained(TrainingConfig(epochs=2))
    assert state() == before


def test_an_error_in_the_loss_leaves_nothing_changed_either() -> None:
    module, arrays = fresh()

    def broken(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no loss today")

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    with pytest.raises(RuntimeError, match="no loss today"):
        next(LocalTrainer(module, broken, TrainingConfig()).train([Job(arrays, X, Y, 0)]))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_training_lowers_the_loss() -> None:
    losses = [trained(TrainingConfig(epochs=epochs, lr=0.05)).loss for epochs in (1, 5, 25)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.1
