"""What a task is: its data, its model, its loss and its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

# The sizes of a network's hidden layers.
Hidden = Annotated[list[Annotated[int, Field(ge=1, le=8_192)]], Field(max_length=16)]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A whole data set, before it is dealt out to nodes.

    `x` is (examples, ...) and `y` (examples,), or (examples, ...) where the target is the input itself.
    `labels` are what a Dirichlet partition skews, `groups` (plant, engine, bearing) what `by_group` keeps
    together. The test part is held by the evaluator, a node that never trains.
    """

    x: Floats
    y: npt.NDArray[Any]
    labels: Ints
    groups: Ints
    test_x: Floats
    test_y: npt.NDArray[Any]


class Task(Protocol):
    """One learning problem. Everything but the data is the same on every node."""

    @property
    def better(self) -> Mapping[str, str]:
        """Return the metrics that `metrics` gives, the first the one to judge by, each `higher` or `lower`."""

    def load(self, data: Path | None) -> Dataset:
        """Return the data; `data` is the folder of original files. Raises `DataError`."""

    def model(self) -> torch.nn.Module:
        """Return a fresh module, initialised from torch's global generator, which the caller has seeded."""

    def kinds(self) -> Mapping[str, str]:
        """Return the kinds of those entries of the module whose default would be wrong."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch, a scalar."""

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return what is measured on held-out data; the same keys always, NaN where undefined."""
