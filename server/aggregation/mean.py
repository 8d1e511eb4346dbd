"""The weighted mean, folded as updates come: one sum in memory, whatever the cohort, in any order the same bytes."""

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np

from fedslice.core.config import Table
from fedslice.core.params import Array, Kind, Model, dtype_of
from fedslice.core.records import Update
from server.aggregation.exact import RESOLUTION, ExactSum
from server.aggregation.rule import Fold


class MeanConfig(Table):
    """The weighted mean of FedAvg (McMahan et al. 2017, algorithm 1), weighted by number of examples."""

    rule: Literal["mean"] = "mean"

    def build(self) -> "Mean":
        """Return the rule."""
        return Mean()


class Mean:
    """Weights, angles and statistics by weighted mean, counters by maximum."""

    def fold(self, model: Model, updates: Iterable[Update], quorum: int = 1) -> Fold | None:
        """Fold updates one at a time; None if fewer than `quorum` came."""
        sums = {n: ExactSum(e.shape) for n, e in model.entries.items() if e.kind is not Kind.COUNTER}
        counters = {n: model.arrays[n] for n, e in model.entries.items() if e.kind is Kind.COUNTER}
        weights: list[float] = []
        for update in updates:
            weights.append(update.weight)
            for name, total in sums.items():
                base = model.arrays[name] if update.whole else None
                total.add(update.arrays[name], update.weight, base, model.entries[name].period)
            # asarray, as numpy makes a 0-dimensional result a scalar.
            counters = {name: np.asarray(np.maximum(array, update.arrays[name])) for name, array in counters.items()}
            del update  # or it would stay in memory beside the next one
        if len(weights) < quorum or not weights:
            return None
        return self._finish(model, sums, counters, weights)

    def _finish(self, model: Model, sums: dict[str, ExactSum], counters: dict[str, Array], weights: list[float]) -> Fold:
        fold, weight = Fold({}, dict(counters)), math.fsum(weights)
        rounding = RESOLUTION * max(1.0, len(weights) / weight)
        for name in list(sums):
            change = sums.pop(name).mean(weight)
            if model.entries[name].kind is Kind.STATISTIC:
                fold.settled[name] = _statistic(model.arrays[name], change, model.entries[name].dtype, rounding)
            else:
                fold.changes[name] = change
        return fold


def _statistic(base: Array, change: Array, dtype: str, rounding: float) -> Array:
    whole = base.astype(np.float64)
    mean = np.asarray(whole + change)
    # The fold's own rounding must not turn a variance of zero into a negative one.
    mean[np.abs(mean) <= rounding + 2.0**-50 * np.abs(whole)] = 0.0
    return mean.astype(dtype_of(dtype))
