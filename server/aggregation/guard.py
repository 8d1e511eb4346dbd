"""The guard: an update is folded only if it can be; a refusal has a reason and costs nobody else the round."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.params import Array, Entry, Kind, Model, dtype_name, is_variance
from fedslice.core.records import Update
from server.aggregation.exact import LARGEST_TERM, terms_of

_MEMORY = 64  # accepted norms that say what is in line
_ROUNDING = 1e-2  # of a 16-bit difference that takes a variance down to zero
_SLACK = 1.001  # a wrapped angle in float32 may be a rounding beyond half its period


class GuardConfig(Table):
    """What is out of line.

    A weight above `max_weight`; a change whose norm is above `norm_factor` times the median of those lately
    accepted or, before there are any, times the model's own norm; likewise of statistics, times their own norm; a
    counter that goes up by more than `max_weight`.
    """

    max_weight: Annotated[float, Field(gt=0)] = 1e9
    norm_factor: Annotated[float, Field(gt=1)] = 100.0


class Guard:
    """Judges updates one by one. It learns only when a round counts, so that order cannot matter within one."""

    def __init__(self, config: GuardConfig, needed_metrics: Sequence[str] = ()) -> None:
        """Keep the limits, and the names of metrics without which the rule cannot weigh an update."""
        self._config, self._needed = config, needed_metrics
        self._accepted: list[float] = []

    def limits(self, model: Model) -> dict[bool, float]:
        """Return the largest norm of a change that is in line this round: of trained entries (True), of statistics (False)."""
        own = {True: 0.0, False: 0.0}
        for name, array in model.arrays.items():
            if model.entries[name].kind is not Kind.COUNTER:
                own[_is_trained(model.entries[name])] += _square(array, None)
        trained, statistics = (max(1.0, math.sqrt(own[which])) for which in (True, False))
        usual = float(np.median(self._accepted)) if self._accepted else trained
        # Late in training changes are small, and a node back from a long absence must not be shut out.
        return {
            True: self._config.norm_factor * max(usual, 0.01 * trained),
            False: self._config.norm_factor * statistics,
        }

    def judge(self, update: Update, model: Model, limits: Mapping[bool, float]) -> tuple[str | None, float]:
        """Return why an update is refused, or None, and the norm of its change of trained entries."""
        reason = self._weight_reason(update.weight) or self._metric_reason(update) or _shape_reason(update, model)
        if reason:
            return reason, math.nan
        squares = {True: 0.0, False: 0.0}
        for name, array in update.arrays.items():
            entry, base = model.entries[name], model.arrays[name]
            if entry.kind is Kind.COUNTER:
                reason, square = self._counter_reason(name, array, base), 0.0
            else:
                square = _square(array, base if update.whole else None, entry.period)
                reason = _value_reason(name, array, base, entry, update, square)
            if reason:
                return reason, math.nan
            squares[_is_trained(entry)] += square
        for trained, what in ((True, "change"), (False, "change of statistics")):
            if (norm := math.sqrt(squares[trained])) > limits[trained]:
                return f"norm: the {what} has norm {norm:.3g}, the limit is {limits[trained]:.3g}", math.nan
        return None, math.sqrt(squares[True])

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

    def _counter_reason(self, name: str, array: Array, base: Array) -> str | None:
        # The greatest counter counts for all: one that is out of line would stay for ever.
        if (np.subtract(array, base, dtype=np.float64) > self._config.max_weight).any():
            return f"counter: entry {name} goes up by more than {self._config.max_weight:g}"
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


def _value_reason(name: str, array: Array, base: Array, entry: Entry, update: Update, square: float) -> str | None:
    if not math.isfinite(square) and not np.isfinite(array).all():
        return f"not finite: entry {name} holds a NaN or an infinity"
    if not update.weight * math.sqrt(square) <= LARGEST_TERM:
        return f"range: entry {name} times its weight is beyond {LARGEST_TERM:.3g}"
    if entry.kind is Kind.ANGLE and not update.whole and _beyond_half(array, entry):
        return f"angle: entry {name} changes by more than half its period"
    if is_variance(name) and entry.kind is Kind.STATISTIC:
        whole = array.astype(np.float64) if update.whole else np.add(array, base, dtype=np.float64)
        if (whole < -_ROUNDING * np.abs(base.astype(np.float64))).any():
            return f"statistic: entry {name} would be a negative variance"
    return None


def _is_trained(entry: Entry) -> bool:
    return entry.kind in (Kind.WEIGHT, Kind.ANGLE)


def _square(array: Any, base: Any, period: float = 0.0) -> float:
    # A NaN or an infinity anywhere makes the sum of squares one, so a single pass finds both.
    with np.errstate(over="ignore", invalid="ignore"):
        return sum(float(np.dot(terms, terms)) for _, terms in terms_of(array, base, period))


def _beyond_half(array: Any, entry: Entry) -> bool:
    return bool((np.abs(array.astype(np.float64)) > _SLACK * entry.period / 2).any())
