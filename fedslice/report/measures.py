"""What the figures and tables show, as plain numbers: who took part, who was refused, how even it was."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fedslice.core.records import NodeId, Rejection
from fedslice.report.lines import NAN
from fedslice.report.runs import Run

OTHER_REASONS = "other reasons"
MAX_REASONS = 7
NO_REPLY = "no reply"  # how the reason begins when there was nothing to refuse


class Outcome(IntEnum):
    """What became of one node in one round."""

    NOT_SELECTED = 0
    FOLDED = 1
    VOID = 2
    NO_REPLY = 3
    REFUSED = 4


def outcomes(run: Run) -> npt.NDArray[np.int8]:
    """Return the outcome of each node (row, in the order of `run.nodes`) in each round (column)."""
    row = {node: index for index, node in enumerate(run.nodes)}
    table = np.zeros((len(run.nodes), len(run.rounds)), np.int8)
    for column, record in enumerate(run.rounds):
        for node in record.selected:
            table[row[node], column] = Outcome.NO_REPLY
        for item in record.rejected:
            silent = item.reason.startswith(NO_REPLY)
            table[row[item.node], column] = Outcome.NO_REPLY if silent else Outcome.REFUSED
        # Last, for who answers twice is refused the second answer, and the first still counts.
        for node in record.replied:
            table[row[node], column] = Outcome.VOID if record.void else Outcome.FOLDED
    return table


def participation(run: Run) -> dict[NodeId, int]:
    """Return in how many rounds each node's update was folded."""
    counts = (outcomes(run) == Outcome.FOLDED).sum(axis=1)
    return {node: int(count) for node, count in zip(run.nodes, counts, strict=True)}


def reasons(runs: Iterable[Run]) -> list[str]:
    """Return the kinds of reasons to tell apart, the most frequent first; the rare rest shares one name."""
    counts = Counter(_kind(item.reason) for run in runs for record in run.rounds for item in record.rejected)
    # Ties go by name, so that the page is the same each time.
    names = [name for name, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    return names if len(names) <= MAX_REASONS + 1 else [*names[:MAX_REASONS], OTHER_REASONS]


def reason_of(item: Rejection, told_apart: Sequence[str]) -> str:
    """Return the name under which a refusal is counted."""
    kind = _kind(item.reason)
    return kind if kind in told_apart else OTHER_REASONS


def _kind(reason: str) -> str:
    # Reasons read `norm: the change has norm 31, the limit is 4`: what follows the colon differs each time.
    return reason.partition(":")[0]


def slice_names(runs: Iterable[Run]) -> list[str]:
    """Return the slices that any round of any run used."""
    return sorted({name for run in runs for record in run.rounds for name in record.slices})


def ranked(run: Run, metric: str) -> list[tuple[NodeId, float]]:
    """Return each node's value of a metric, the worst first; nodes without one are left out."""
    found = [(node, known.metrics.get(metric, NAN)) for node, known in run.nodes.items()]
    sign = -1 if run.better.get(metric, "lower" if metric == "loss" else "higher") == "lower" else 1
    return sorted(((node, value) for node, value in found if math.isfinite(value)), key=lambda pair: sign * pair[1])


def gini(values: Sequence[float]) -> float:
    """Return the Gini coefficient: 0 when all are equal, (n-1)/n when one has everything."""
    ordered = np.sort(np.asarray(values, np.float64))
    total, count = ordered.sum(), len(ordered)
    if not total > 0:
        return NAN
    return float(((2 * np.arange(1, count + 1) - count - 1) * ordered).sum() / (count * total))


def jain(values: Sequence[float]) -> float:
    """Return Jain's index: 1 when all are equal, 1/n when one has everything."""
    array = np.asarray(values, np.float64)
    squares = float((array**2).sum())
    return float(array.sum()) ** 2 / (len(array) * squares) if squares > 0 else NAN


def byte_unit(most: float) -> tuple[float, str]:
    """Return the divisor and name of the unit that suits a number of bytes."""
    return _unit(most, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))


def time_unit(most: float) -> tuple[float, str]:
    """Return the divisor and name of the unit that suits a number of seconds."""
    return _unit(most / 2, ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")))


def energy_unit(most: float) -> tuple[float, str]:
    """Return the divisor and name of the unit that suits a number of joules."""
    return _unit(most, ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1, "J")))


def _unit(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((unit for unit in units if most >= unit[0]), units[-1])
