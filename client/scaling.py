"""Federated scaling: nodes send counts, sums and sums of squares of their features, never rows."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from client.models import SCALE, Standardize

Sums = dict[str, npt.NDArray[np.float64]]


def sums(x: npt.NDArray[np.float32]) -> Sums:
    """Return what a node may tell of its features, the last axis of x; rows with a NaN or Inf are left out."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    return {
        "count": np.array([len(rows)], np.float64),
        "sum": rows.sum(axis=0),
        "square": np.einsum("ij,ij->j", rows, rows),
    }


def fill(model: torch.nn.Module, totals: Mapping[str, npt.NDArray[np.float64]]) -> None:
    """Set the model's `Standardize` layer, if it has one, from the totals over all nodes."""
    layer = getattr(model, SCALE, None)
    if not isinstance(layer, Standardize) or not totals:
        return
    count = np.maximum(totals["count"], 1.0)
    mean, square = totals["sum"] / count, totals["square"] / count
    variance = np.maximum(square - mean**2, 0.0)
    # A feature that never changes carries nothing: divide by one, not by rounding error.
    std = np.where(variance > 1e-12 * square, np.sqrt(variance), 1.0)
    layer.mean.copy_(torch.from_numpy(mean.astype(np.float32)))
    layer.std.copy_(torch.from_numpy(std.astype(np.float32)))
