"""What the figures of the radio show, as plain numbers: shares over time, round times, links, latencies."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedslice.core.records import NodeId
from fedslice.report.lines import NAN
from fedslice.report.radio_log import RadioRound
from fedslice.report.runs import Run

Array = npt.NDArray[np.float64]
MOST_POINTS = 600
MOST_ROUNDS = 100

_Key = TypeVar("_Key", NodeId, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Each slice's share of the PRBs in stretches of virtual time. Between stretches nothing was modelled."""

    starts: Array
    ends: Array
    of: dict[str, Array]


def prb_shares(run: Run, way: str) -> Shares:
    """Return the shares as logged, a stretch a step. A step in which any share is unknown is left out."""
    parts = [item for item in run.radio if item.shares[way]]
    names = sorted({name for item in parts for name in item.shares[way]})
    starts = _joined(item.from_s + item.step_s * np.arange(_steps(item, way), dtype=np.float64) for item in parts)
    ends = starts + _joined(np.full(_steps(item, way), item.step_s) for item in parts)
    # A round's last step may reach into the next round.
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    # Who is not named in a round had nothing of it.
    of = {name: _joined(np.asarray(item.shares[way].get(name, [0.0] * _steps(item, way))) for item in parts) for name in names}
    known = ends > starts
    for values in of.values():
        known &= np.isfinite(values)
    return Shares(starts=starts[known], ends=ends[known], of={name: values[known] for name, values in of.items()})


def stairs(shares: Shares, most: int = MOST_POINTS) -> tuple[Array, dict[str, Array]]:
    """Return at most so many times, and the shares from each time to the next; NaN where a gap begins."""
    if not len(shares.starts):
        return shares.starts, shares.of
    widths = shares.ends - shares.starts
    # Times are sums of floats: a hair's breadth is no gap.
    before_gap = np.append(shares.starts[1:] - shares.ends[:-1] > 1e-6 * widths[:-1], True)
    if len(widths) + before_gap.sum() > most:
        edges = np.linspace(shares.starts[0], shares.ends[-1], most)
        means, covered = binned(shares, edges)
        empty = covered < 1e-6 * np.diff(edges)
        return edges, {name: np.append(np.where(empty, NAN, values), NAN) for name, values in means.items()}
    places = np.flatnonzero(before_gap) + 1
    times = np.insert(shares.starts, places, shares.ends[before_gap])
    return times, {name: np.insert(values, places, NAN) for name, values in shares.of.items()}


def binned(shares: Shares, edges: Array) -> tuple[dict[str, Array], Array]:
    """Return each slice's mean share between consecutive edges, and how many seconds of each bin the mean is of."""
    widths = shares.ends - shares.starts
    times = np.column_stack([shares.starts, shares.ends]).ravel()

    def within(amounts: Array) -> Array:
        # What was there by each time grows linearly within a stretch and stands still in a gap.
        so_far = np.concatenate([[0.0], np.cumsum(amounts)])
        return np.diff(np.interp(edges, times, np.column_stack([so_far[:-1], so_far[1:]]).ravel()))

    covered = within(widths)
    divisors = np.where(covered > 0, covered, 1.0)
    return {name: within(values * widths) / divisors for name, values in shares.of.items()}, covered


def rounds_a_point(runs: Iterable[Run]) -> int:
    """Return how many rounds to draw as one point: a line of a thousand jagged ones could not be told from another."""
    return max(1, *(math.ceil(len(run.rounds) / MOST_ROUNDS) for run in runs))


def round_times(run: Run, together: int) -> list[tuple[int, float, float]]:
    """Return the first round, the mean round time and the mean T* of each so many rounds together; NaN where not known."""
    points = []
    for place in range(0, len(run.rounds), together):
        records = run.rounds[place : place + together]
        took = [record.round_s for record in records if record.round_s is not None]
        bound = [record.bound_s for record in records if record.bound_s is not None]
        points.append((records[0].round, _mean(took), _mean(bound)))
    return points


def bound_ratio(run: Run) -> float:
    """Return how many times T* a round took, in the median; NaN when no round's T* is known."""
    ratios = [
        record.round_s / record.bound_s
        for record in run.rounds
        if record.round_s is not None and record.bound_s is not None and record.bound_s > 0
    ]
    return float(np.median(ratios)) if ratios else NAN


def links(run: Run, way: str) -> dict[NodeId, tuple[float, float]]:
    """Return each node's SINR in dB and rate in bit/s, means over the rounds; a node that lacks one is left out."""
    sinr = _means((node, link.get(f"sinr_{way}_db", NAN)) for item in run.radio for node, link in item.links.items())
    rate = _means((node, link.get(f"{way}_bps", NAN)) for item in run.radio for node, link in item.links.items())
    return {node: (sinr[node], rate[node]) for node in sorted(sinr.keys() & rate.keys())}


def latencies(run: Run, way: str) -> dict[str, float]:
    """Return each slice's latency in ms, the mean over the rounds; a slice without one is left out."""
    return _means(pair for item in run.radio for pair in item.latency_ms[way].items())


def radio_slices(run: Run) -> set[str]:
    """Return the slices that the log of the radio names."""
    return {
        name for item in run.radio for tables in (item.shares, item.latency_ms) for table in tables.values() for name in table
    }


def _means(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    found: dict[_Key, list[float]] = {}
    for key, value in pairs:
        if math.isfinite(value):
            found.setdefault(key, []).append(value)
    return {key: _mean(values) for key, values in found.items()}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else NAN


def _steps(item: RadioRound, way: str) -> int:
    return len(next(iter(item.shares[way].values())))


def _joined(parts: Iterable[Array]) -> Array:
    return np.concatenate([np.empty(0), *parts])
