"""What an aggregation rule is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedslice.core.params import Array, Model
from fedslice.core.records import Update


@dataclass(frozen=True, slots=True)
class Fold:
    """What a cohort says together: changes, for the server optimizer, and entries that are settled without it."""

    changes: dict[str, npt.NDArray[np.float64]]
    settled: dict[str, Array]


class Rule(Protocol):
    """Turns updates that passed the guard into one fold."""

    def fold(self, model: Model, updates: Iterable[Update], quorum: int = 1) -> Fold | None:
        """Return the fold, or None if fewer than `quorum` updates came. The order of updates changes nothing."""
