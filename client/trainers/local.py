"""A torch loop in this process."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from client.trainers.memory import Flat, isolated, numpy_views
from client.trainers.trainer import Job, Result
from fedslice.core.config import Table

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class TrainingConfig(Table):
    """How each node trains in a round."""

    trainer: Literal["local"] = "local"
    epochs: Annotated[int, Field(ge=1)] = 1
    max_steps: Annotated[int, Field(ge=0)] = 0  # stop a round's training after so many batches; 0: never
    batch_size: Annotated[int, Field(ge=1)] = 32
    lr: Annotated[float, Field(gt=0)] = 0.05
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9


def examples_processed(config: TrainingConfig, num_examples: int) -> int:
    """Return how many examples a round of training computes on, repeats counted."""
    steps = math.ceil(num_examples / config.batch_size) * config.epochs
    if not config.max_steps or steps <= config.max_steps:
        return num_examples * config.epochs
    epochs, rest = divmod(config.max_steps, math.ceil(num_examples / config.batch_size))
    return num_examples * epochs + min(rest * config.batch_size, num_examples)


class LocalTrainer:
    """Minibatch SGD, one node after the other. One module serves all nodes of a process."""

    def __init__(self, module: torch.nn.Module, loss: Loss, config: TrainingConfig) -> None:
        """Keep the module and loss of the task."""
        self._module, self._loss, self._config = module, loss, config
        self._flat = Flat(module)
        self._views = numpy_views(module)
        # One tensor: nothing to group or fuse, and looking for it would take as long as the step.
        self._optimizer = torch.optim.SGD(
            self._flat.parameters, lr=config.lr, momentum=config.momentum, foreach=False, fused=False
        )

    def train(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Yield each node's result; nothing global is changed when it is done."""
        for job in jobs:
            with isolated(job.seed):
                result = self._train(job)
            yield result

    def _train(self, job: Job) -> Result:
        for name, view in self._views.items():
            np.copyto(view, job.arrays[name])
        x, y = torch.from_numpy(job.x), torch.from_numpy(job.y)
        self._optimizer.state.clear()  # a node starts without another's momentum
        num_processed, mean_loss = 0, 0.0
        self._module.train()
        for order in self._epochs(len(x)):
            losses, sizes = [], []
            # Shuffled once an epoch: a batch is then a view.
            batches = zip(_split(x[order], self._config.batch_size), _split(y[order], self._config.batch_size), strict=True)
            for inputs, targets in batches:
                self._flat.zero_grad()
                loss = self._loss(self._module(inputs), targets)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                losses.append(loss.detach())
                sizes.append(len(inputs))
            num_processed += len(order)
            mean_loss = float(torch.dot(torch.stack(losses).double(), torch.tensor(sizes, dtype=torch.float64))) / len(order)
        return Result({name: view.copy() for name, view in self._views.items()}, mean_loss, num_processed)

    def _epochs(self, num_examples: int) -> Iterator[torch.Tensor]:
        """Yield the order of each epoch's examples, freshly shuffled, as far as the limit of steps allows."""
        left = examples_processed(self._config, num_examples)
        while left > 0:
            order = torch.randperm(num_examples)[:left]
            left -= len(order)
            yield order


def _split(tensor: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    return torch.split(tensor, size)
