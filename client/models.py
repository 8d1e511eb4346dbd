"""Networks that tasks share."""

from collections.abc import Sequence
from itertools import pairwise

import torch


class Standardize(torch.nn.Module):
    """Scales features by mean and deviation that the nodes found together; they travel with the model."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, num_features: int) -> None:
        """Start as the identity, until `client.scaling` fills it in. Features are the last axis."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with mean 0 and deviation 1 a feature."""
        return (x - self.mean) / self.std


SCALE = "scale"
# Fixed for the run and equal on all nodes, so folding them as statistics leaves them as they are.
SCALE_KINDS = {f"{SCALE}.mean": "statistic", f"{SCALE}.std": "statistic"}


def mlp(num_features: int, hidden: Sequence[int], num_outputs: int) -> torch.nn.Module:
    """Return standardisation and a ReLU network: (batch, num_features) to (batch, num_outputs)."""
    sizes = [num_features, *hidden]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    layers.append(torch.nn.Linear(sizes[-1], num_outputs))
    model = torch.nn.Sequential()
    model.add_module(SCALE, Standardize(num_features))
    model.add_module("net", torch.nn.Sequential(*layers))
    return model
