"""The algebra of parameters: what each entry of a model is, and how it is subtracted and folded."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Params = Mapping[str, Array]

# torch names its running statistics so; a task may declare any other entry a statistic.
_STATISTIC_NAMES = ("running_mean", "running_var")
_VARIANCE_NAMES = ("running_var", "std")  # never negative


class Kind(StrEnum):
    """What an entry of a model is, which decides how it is folded."""

    WEIGHT = "weight"  # trainable floats: weighted mean, then the server optimizer
    STATISTIC = "statistic"  # running mean or variance: weighted mean, past the optimizer
    COUNTER = "counter"  # integers: maximum, dtype kept
    ANGLE = "angle"  # periodic: the nearest equivalent difference, then as a weight
    LOCAL = "local"  # personal layers: never leave the node


@dataclass(frozen=True, slots=True)
class Entry:
    """What one entry of a model must look like. `period` is in radians and only for angles."""

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    period: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """The parameters of a model together with what each of them is."""

    arrays: Params
    entries: Mapping[str, Entry]

    def num_bytes(self) -> int:
        """Return the size of all entries in bytes."""
        return sum(array.nbytes for array in self.arrays.values())


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name that `dtype_of` reads back; numpy builds it afresh each time it is asked."""
    return str(dtype)


def default_kind(name: str, dtype: np.dtype[Any]) -> Kind:
    """Return the kind of an entry that its task did not declare, from dtype and name."""
    if _counts(dtype):
        return Kind.COUNTER
    return Kind.STATISTIC if name.rsplit(".", 1)[-1] in _STATISTIC_NAMES else Kind.WEIGHT


def is_variance(name: str) -> bool:
    """Return whether an entry's name says that it is a variance or a deviation."""
    return name.rsplit(".", 1)[-1] in _VARIANCE_NAMES


def describe(arrays: Params, kinds: Mapping[str, str]) -> dict[str, Entry]:
    """Return the entries of a model.

    Args:
        arrays: The parameters.
        kinds: Kind by name as text, e.g. `weight` or, with its period, `angle:6.2831853`.
            Names that are absent get their default.

    Raises:
        ValueError: A kind is unknown, names no entry, does not fit the entry's dtype, or is an angle without a period.
    """
    if unknown := sorted(set(kinds) - set(arrays)):
        raise ValueError(f"kinds name entries that the model does not have: {', '.join(unknown)}")
    entries = {}
    for name, array in arrays.items():
        text, _, period = kinds.get(name, default_kind(name, array.dtype).value).partition(":")
        if text not in list(Kind):
            raise ValueError(f"entry {name}: no kind is called {text!r}; there are {', '.join(Kind)}")
        kind = Kind(text)
        if (kind is Kind.ANGLE) != bool(period) or (period and not 0 < _number(period) < math.inf):
            raise ValueError(f"entry {name}: an angle, and nothing else, is declared with its period, as in 'angle:6.28'")
        if kind is not Kind.LOCAL and (kind is Kind.COUNTER) != _counts(array.dtype):
            raise ValueError(f"entry {name}: {array.dtype} cannot be a {text}; counters are integers, all else is not")
        entries[name] = Entry(kind, str(array.dtype), array.shape, float(period or 0.0))
    return entries


def _counts(dtype: np.dtype[Any]) -> bool:
    return bool(np.issubdtype(dtype, np.integer) or dtype == np.bool_)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def kind_text(entry: Entry) -> str:
    """Return the text that `describe` reads back."""
    return f"{entry.kind.value}:{entry.period!r}" if entry.kind is Kind.ANGLE else entry.kind.value


def wrap(delta: Array, period: float) -> Array:
    """Return the equivalent of each angle difference that is nearest to zero, in [-period/2, period/2]."""
    rest = np.fmod(delta, period)  # exact, however large the difference
    return np.asarray(rest - period * np.round(rest / period))


def difference(new: Array, base: Array, entry: Entry) -> Array:
    """Return what a node sends for one entry: its change, in the entry's dtype.

    A counter travels whole: the maximum of differences would not be the maximum of counters.
    """
    if entry.kind is Kind.COUNTER:
        return new
    delta = np.subtract(new, base, dtype=np.float64)
    return np.asarray(wrap(delta, entry.period) if entry.kind is Kind.ANGLE else delta).astype(dtype_of(entry.dtype))


def added(base: Array, delta: Array, entry: Entry) -> Array:
    """Return the whole entry again from its change; the inverse of `difference`."""
    if entry.kind is Kind.COUNTER:
        return delta
    return np.asarray(np.add(base, delta, dtype=np.float64)).astype(dtype_of(entry.dtype))


def shared(arrays: Params, entries: Mapping[str, Entry]) -> dict[str, Array]:
    """Return the entries that may leave a node."""
    return {name: array for name, array in arrays.items() if entries[name].kind is not Kind.LOCAL}
