"""Handwritten digits, 1,797 images of 8 x 8 (ships with scikit-learn)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from sklearn.datasets import load_digits

from client.models import mlp
from client.tasks.classification import Classification
from client.tasks.task import Dataset, Hidden
from fedslice.core.config import Table
from fedslice.core.seeds import rng


class DigitsConfig(Table):
    """Classification of digits."""

    name: Literal["digits"] = "digits"
    hidden: Hidden = [64]

    def build(self) -> "Digits":
        """Return the task."""
        return Digits(self)


class Digits(Classification):
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
