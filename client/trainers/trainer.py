"""What a trainer is. It may be handed many nodes at once, so that one that can batches them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from fedslice.core.params import Params


@dataclass(frozen=True, slots=True)
class Job:
    """One node's training: the model it received, its data, and the seed of all its draws."""

    arrays: Params
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """The trained entries, the mean loss over the last epoch, and how many examples were computed on."""

    arrays: Params
    loss: float
    num_processed: int


class Trainer(Protocol):
    """Trains nodes."""

    def train(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Yield a result for each job, in order."""
