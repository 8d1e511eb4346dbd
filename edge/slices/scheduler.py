"""Who gets how many resource blocks: slices first (TS 28.541 clause 4.3.36), then the nodes of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Proportional fair over round robin, by the number of nodes and the mean SNR in dB: simulated slot by slot over
# wide-band Rayleigh fading with MCS table 1. One node has nobody to be better than.
_GAIN_NODES = np.log2([1.0, 2.0, 5.0, 10.0, 20.0])
_GAIN_SNR_DB = np.array([0.0, 8.0, 16.0, 24.0])
_GAIN = np.array(
    [
        [1.00, 1.41, 1.84, 2.02, 2.10],
        [1.00, 1.26, 1.47, 1.54, 1.57],
        [1.00, 1.17, 1.28, 1.31, 1.32],
        [1.00, 1.09, 1.12, 1.12, 1.12],
    ]
)


def max_min(capacity: float, caps: npt.ArrayLike, weights: npt.ArrayLike) -> Floats:
    """Split a capacity by weighted max-min fairness: everybody is filled at the pace of their weight until their cap.

    Args:
        capacity: What there is to split.
        caps: The most that each can use; may be infinite.
        weights: Above zero.

    Returns:
        What each gets. All of the capacity is used, or everybody has their cap.
    """
    most, pace = np.asarray(caps, np.float64), np.asarray(weights, np.float64)
    if most.sum() <= capacity:
        return most.copy()
    order = np.argsort(most / pace, kind="stable")
    filled = np.concatenate(([0.0], np.cumsum(most[order])[:-1]))  # taken by those who fill up earlier
    pacing = np.cumsum(pace[order][::-1])[::-1]  # weight of those who are still filling
    levels = (capacity - filled) / pacing
    # The first who does not fill up at the level that is left decides it; somebody must, whatever the sums round to.
    unfilled = levels <= (most / pace)[order]
    unfilled[-1] = True
    level = float(levels[np.argmax(unfilled)])
    return np.minimum(most, pace * level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What RRMPolicyRatio gives each slice, in PRBs, one entry a slice (TS 28.541 clause 4.3.36).

    Attributes:
        dedicated: Held for the slice even while it idles.
        minimum: Guaranteed when needed, lent while it is not; holds the dedicated ones.
        maximum: Never more than this.
        weight: The pace at which slices fill up from what is shared.
    """

    dedicated: Floats
    minimum: Floats
    maximum: Floats
    weight: Floats


def share_among_slices(total: float, demand: npt.ArrayLike, policy: Policy) -> Floats:
    """Split the PRBs of a cell over its slices by progressive filling.

    Each slice is first given what it needs of its minimum; the rest is spread by weight, up to what each needs or may
    have. What a slice leaves of its dedicated PRBs stays unused.

    Args:
        total: How many PRBs there are; the minima must fit.
        demand: How many PRBs each slice could use.
        policy: What each slice is promised.

    Returns:
        How many PRBs each slice uses.
    """
    wanted = np.minimum(np.asarray(demand, np.float64), policy.maximum)
    first = np.minimum(wanted, policy.minimum)
    held = np.maximum(first, policy.dedicated)
    shared = max_min(max(total - float(held.sum()), 0.0), wanted - first, policy.weight)
    return np.minimum(first + shared, wanted)  # a - b + b may round above a


def share_among_users(prbs: float, most: Floats, floors: Sequence[Floats], weight: Floats) -> Floats:
    """Split the PRBs of a slice over its users: first what each is promised, the rest by weighted max-min.

    Args:
        prbs: How many PRBs the slice has.
        most: The most that each user can use.
        floors: What each is promised, at most `most`, in promises that go before those behind them. If one promise to all
            together is more than there is, each is cut alike.
        weight: The pace at which each fills up beyond that, above zero.

    Returns:
        The PRBs of each user.
    """
    given = np.zeros_like(most)
    for floor in floors:
        if not floor.any():
            continue
        more = np.maximum(floor - given, 0.0)
        left, asked = prbs - float(given.sum()), float(more.sum())
        if asked > 0.0:
            given += more * min(1.0, max(left, 0.0) / asked)
    left = max(prbs - float(given.sum()), 0.0)
    return np.minimum(given + max_min(left, most - given, weight), most)


def raised(policy: Policy, promised: Floats, total: float) -> Policy:
    """Return a policy whose minima hold what users are promised, as far as maxima, other minima and the cell allow.

    Args:
        policy: What each slice is promised.
        promised: The PRBs that the users of each slice are promised together.
        total: The PRBs of the cell.
    """
    more = np.clip(promised, policy.minimum, policy.maximum) - policy.minimum
    room, asked = total - float(policy.minimum.sum()), float(more.sum())
    minimum = policy.minimum + more * min(1.0, max(room, 0.0) / asked) if asked > 0.0 else policy.minimum
    return Policy(dedicated=policy.dedicated, minimum=minimum, maximum=policy.maximum, weight=policy.weight)


def proportional_fair_gain(num_nodes: npt.ArrayLike, snr_db: npt.ArrayLike) -> Floats:
    """Return by how much proportional-fair scheduling beats equal shares of a fading channel.

    Between the simulated points it is linear in dB and in log2 of the number of nodes; beyond them it is flat.

    Args:
        num_nodes: How many nodes share the PRBs.
        snr_db: Their mean SNR in dB.
    """
    across, row = _position(_GAIN_NODES, np.log2(np.maximum(np.asarray(num_nodes, np.float64), 1.0)))
    down, column = _position(_GAIN_SNR_DB, np.asarray(snr_db, np.float64))
    upper = _GAIN[column, row] * (1.0 - across) + _GAIN[column, row + 1] * across
    lower = _GAIN[column + 1, row] * (1.0 - across) + _GAIN[column + 1, row + 1] * across
    return upper * (1.0 - down) + lower * down


def _position(grid: Floats, at: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return how far between two points of a grid a value is, and the index of the first of them."""
    within = np.clip(at, grid[0], grid[-1])
    index = np.clip(np.searchsorted(grid, within, side="right") - 1, 0, len(grid) - 2)
    return (within - grid[index]) / (grid[index + 1] - grid[index]), index


def waiting_time_s(arrivals_a_s: npt.ArrayLike, mean_service_s: npt.ArrayLike, service_cv: npt.ArrayLike = 0.0) -> Floats:
    """Return the mean wait in s before service in an M/G/1 queue (Pollaczek and Khinchine); inf where it overflows.

    Args:
        arrivals_a_s: Poisson arrivals a second.
        mean_service_s: Mean service time in s.
        service_cv: Standard deviation over mean of the service time: 0 for packets of one size, 1 for exponential.
    """
    rate, mean, cv = (np.asarray(value, np.float64) for value in (arrivals_a_s, mean_service_s, service_cv))
    load = rate * mean
    second_moment = mean**2 * (1.0 + cv**2)
    left = np.where(load < 1.0, 1.0 - load, np.nan)  # nan: no division by zero where the queue grows without end
    return np.where(load < 1.0, rate * second_moment / (2.0 * left), np.inf)
