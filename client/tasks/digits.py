"""Handwritten digits, 1,797 images of 8 x 8 (ships with scikit-learn)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from client import metrics
from client.models import SCALE_KINDS, mlp
from client.tasks.task import Dataset
from fedslice.core.config import Table
from fedslice.core.seeds import rng


class DigitsConfig(Table):
    """Classification of digits."""

    name: Literal["digits"] = "digits"
    hidden: list[int] = [64]

    def build(self) -> "Digits":
        """Return the task."""
        return Digits(self)


class Digits:
    """Ten classes from 64 pixels."""

    better: Mapping[str, str] = {"accuracy": "higher", "macro_f1": "higher"}

    def __init__(self, config: DigitsConfig) -> None:
        """Keep the config."""
        self._config = config

    def load(self, data: Path | None) -> Dataset:
        """Return 80 % of the images to train on and the others to test on; groups are the digits."""
        x, y = load_digits(return_X_y=True)
        order = rng(0, "digits", "split").permutation(len(y))
        x, y = x[order].astype(np.float32), y[order].astype(np.int64)
        cut = int(0.8 * len(y))
        return Dataset(x[:cut], y[:cut], y[:cut], y[:cut], x[cut:], y[cut:])

    def model(self) -> torch.nn.Module:
        """Return a network with ten logits."""
        return mlp(64, self._config.hidden, 10)

    def kinds(self) -> Mapping[str, str]:
        """Return the kinds of the scaling entries."""
        return SCALE_KINDS

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy."""
        return cross_entropy(outputs, targets)

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return accuracy and macro F1."""
        return metrics.classification(outputs, targets)
