"""What tasks with classes have in common."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy

from client import metrics
from client.models import SCALE_KINDS


class Classification:
    """One logit a class, cross-entropy, macro F1 and accuracy."""

    better: Mapping[str, str] = metrics.CLASSIFICATION

    def kinds(self) -> Mapping[str, str]:
        """Return the kinds of the scaling entries."""
        return SCALE_KINDS

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy."""
        return cross_entropy(outputs, targets)

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return macro F1 and accuracy."""
        return metrics.classification(outputs, targets)
