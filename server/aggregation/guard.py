"""The guard: an update is folded only if it can be; a refusal has a reason and costs nobody else the round."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.params import Entry, Kind, Model, dtype_name
from fedslice.core.records import Update
from server.aggregation.exact import LARGEST_TERM, terms_of

_MEMORY = 64  # accepted norms that say what is in line
_SLACK = 1.001  # a wrapped angle in float32 may be a rounding beyond half its period


class GuardConfig(Table):
    """What is out of line.

    A weight above `max_weight`; a change whose norm is above `norm_factor` times the median of those lately
    accepted or, before there are any, times the model's own norm.
    """

    max_weight: Annotated[float, Field(gt=0)] = 1e9
    norm_factor: Annotated[float, Field(gt=1)] = 100.0


class Guard:
    """Judges updates one by one. It learns only when a round counts, so that order cannot matter within one."""

    def __init__(self, config: GuardConfig, needed_metrics: Sequence[str] = ()) -> None:
        """Keep the limits, and the names of metrics without which the rule cannot weigh an update."""
        self._config, self._needed = config, needed_metrics
        self._accepted: list[float] = []

    def limit(self, model: Model) -> float:
        """Return the largest norm of a change that is in line this round."""
        trained = [array for name, array in model.arrays.items() if _is_trained(model.entries[name])]
        own = max(1.0, math.sqrt(sum(_square(array, None) for array in trained)))
        usual = float(np.median(self._accepted)) if self._accepted else own
        # Late in training changes are small, and a node back from a long absence must not be shut out.
        return self._config.norm_factor * max(usual, 0.01 * own)

    def judge(self, update: Update, model: Model, limit: float) -> tuple[str | None, float]:
        """Return why an update is refused, or None, and the norm of its change."""
        reason = self._weight_reason(update.weight) or self._metric_reason(update) or _shape_reason(update, model)
        if reason:
            return reason, math.nan
        square, largest_norm = 0.0, limit
        for name, array in update.arrays.items():
            entry = model.entries[name]
            if entry.kind is Kind.COUNTER:
                continue
            part = _square(array, model.arrays[name] if update.whole else None, entry.period)
            if not math.isfinite(part) and not np.isfinite(array).all():
                return f"not finite: entry {name} holds a NaN or an infinity", math.nan
            if not update.weight * math.sqrt(part) <= LARGEST_TERM:
                return f"range: entry {name} times its weight is beyond {LARGEST_TERM:.3g}", math.nan
            if entry.kind is Kind.ANGLE and not update.whole and _beyond_half(array, entry):
                return f"angle: entry {name} changes by more than half its period", math.nan
            square += part if _is_trained(entry) else 0.0
        norm = math.sqrt(square)
        if norm > largest_norm:
            return f"norm: the change has norm {norm:.3g}, the limit is {largest_norm:.3g}", norm
        return None, norm

    def observe(self, norms: list[float]) -> None:
        """Learn the norms of a round that counted, in node order."""
        self._accepted = (self._accepted + norms)[-_MEMORY:]

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        return {"accepted": self._accepted}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._accepted = list(state["accepted"])

    def _metric_reason(self, update: Update) -> str | None:
        # A loss that is not a number tells of an update that is not worth more.
        if not math.isfinite(loss := update.metrics.get("train_loss", 0.0)):
            return f"not finite: train_loss is {loss}"
        for name in self._needed:
            if not update.metrics.get(name, -1.0) >= 0:
                return f"metrics: the rule needs {name}, from zero up; it is {update.metrics.get(name, 'missing')}"
        return None

    def _weight_reason(self, weight: float) -> str | None:
        if math.isfinite(weight) and 0 < weight <= self._config.max_weight:
            return None
        return f"weight: {weight:g} is not in (0, {self._config.max_weight:g}]"


def _shape_reason(update: Update, model: Model) -> str | None:
    if missing := model.arrays.keys() - update.arrays.keys():
        return f"keys: entry {min(missing)} is missing"
    if extra := update.arrays.keys() - model.arrays.keys():
        return f"keys: entry {min(extra)} is not in the model"
    for name, array in update.arrays.items():
        entry = model.entries[name]
        if array.shape != entry.shape:
            return f"shape: entry {name} is {array.shape}, not {entry.shape}"
        if dtype_name(array.dtype) != entry.dtype:
            return f"dtype: entry {name} is {array.dtype}, not {entry.dtype}"
    return None


def _is_trained(entry: Entry) -> bool:
    return entry.kind in (Kind.WEIGHT, Kind.ANGLE)


def _square(array: Any, base: Any, period: float = 0.0) -> float:
    # A NaN or an infinity anywhere makes the sum of squares one, so a single pass finds both.
    with np.errstate(over="ignore", invalid="ignore"):
        return sum(float(np.dot(terms, terms)) for _, terms in terms_of(array, base, period))


def _beyond_half(array: Any, entry: Entry) -> bool:
    return bool((np.abs(array.astype(np.float64)) > _SLACK * entry.period / 2).any())
