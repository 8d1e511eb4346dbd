"""Server optimizers: torch.optim on the pseudo-gradient, the negative mean change (Reddi et al., ICLR 2021)."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.params import Array, Params

_PART = 1 << 18  # elements stepped at once

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class SgdConfig(Table):
    """With a rate of 1 and no momentum, FedAvg; with momentum, FedAvgM."""

    name: Literal["sgd"] = "sgd"
    lr: Rate = 1.0
    momentum: Decay = 0.0

    def build(self) -> "ServerOptimizer":
        """Return the optimizer."""
        return ServerOptimizer(lambda p: torch.optim.SGD([p], lr=self.lr, momentum=self.momentum))


class AdamConfig(Table):
    """FedAdam, with Adam's bias correction."""

    name: Literal["adam"] = "adam"
    lr: Rate = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    eps: Rate = 1e-3

    def build(self) -> "ServerOptimizer":
        """Return the optimizer."""
        return ServerOptimizer(lambda p: torch.optim.Adam([p], lr=self.lr, betas=(self.beta1, self.beta2), eps=self.eps))


OptimizerConfig = Annotated[SgdConfig | AdamConfig, Field(discriminator="name")]


class ServerOptimizer:
    """Steps each entry in double precision and rounds once, to the entry's dtype; a part of it at a time, to spare memory."""

    def __init__(self, make: Callable[[torch.nn.Parameter], torch.optim.Optimizer]) -> None:
        """Keep how an optimizer is made; each part of an entry has its own."""
        self._make = make
        self._optimizers: dict[tuple[str, int], tuple[torch.nn.Parameter, torch.optim.Optimizer]] = {}

    def step(self, arrays: Params, changes: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]) -> dict[str, Array]:
        """Return the entries after the step. `changes` is used up as they are made."""
        stepped = {}
        for name in list(changes):
            old, change = arrays[name].reshape(-1), changes.pop(name).reshape(-1)
            new = np.empty(old.shape, old.dtype)
            for start in range(0, len(old), _PART):
                part = slice(start, start + _PART)
                parameter, optimizer = self._for(name, start)
                parameter.data = torch.from_numpy(old[part].astype(np.float64))
                parameter.grad = torch.from_numpy(change[part]).neg_()
                optimizer.step()
                with np.errstate(over="ignore"):  # what has become infinite is refused by the round
                    new[part] = parameter.detach().numpy().astype(old.dtype)
                parameter.data, parameter.grad = torch.empty(0, dtype=torch.float64), None
            stepped[name] = new.reshape(arrays[name].shape)
        return stepped

    def tensors(self) -> dict[str, Array]:
        """Return the state, by `entry/start of the part/what`."""
        return {
            f"{name}/{start}/{key}": torch.as_tensor(value).numpy()
            for (name, start), (parameter, optimizer) in self._optimizers.items()
            for key, value in optimizer.state[parameter].items()
            if value is not None
        }

    def restore(self, tensors: Mapping[str, Array]) -> None:
        """Go on from a saved state."""
        for place, value in tensors.items():
            name, start, key = place.rsplit("/", 2)
            parameter, optimizer = self._for(name, int(start))
            optimizer.state[parameter][key] = torch.from_numpy(value.copy())

    def _for(self, name: str, start: int) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        if (name, start) not in self._optimizers:
            parameter = torch.nn.Parameter(torch.empty(0, dtype=torch.float64))
            self._optimizers[name, start] = (parameter, self._make(parameter))
        return self._optimizers[name, start]
