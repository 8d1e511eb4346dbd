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
        optimizer = torch.optim.SGD(self._flat.parameters, lr=self._config.lr, momentum=self._config.momentum)
        num_processed, mean_loss = 0, 0.0
        self._module.train()
        for batches in self._epochs(len(x)):
            losses = []
            for batch in batches:
                self._flat.zero_grad()
                loss = self._loss(self._module(x[batch]), y[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(loss.detach() * len(batch))
            examples = sum(map(len, batches))
            num_processed += examples
            mean_loss = torch.stack(losses).double().sum().item() / examples
        return Result({name: view.copy() for name, view in self._views.items()}, mean_loss, num_processed)

    def _epochs(self, num_examples: int) -> Iterator[list[torch.Tensor]]:
        """Yield the batches of each epoch, freshly shuffled, within the limit of steps."""
        left = self._config.max_steps or -1
        for _ in range(self._config.epochs):
            batches = list(torch.split(torch.randperm(num_examples), self._config.batch_size))
            batches = batches if left < 0 else batches[:left]
            if not batches:
                return
            left = left if left < 0 else left - len(batches)
            yield batches
