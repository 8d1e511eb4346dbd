"""How the radio channel of nodes moves: shadowing over distance, fading over time, outages and handovers.

Every draw comes from a generator that the caller passes in, and every path is an array of steps by nodes.
"""

import math
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.slices.pathloss import Bools, Floats, Place, Positive
from fedslice.core.config import Table

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Interruptions(Table):
    """A link that comes and goes: up for exponential times, down for log-normal ones.

    The defaults are a radio link failure with re-establishment, 95 % of them between 0.2 and 60 s (engineering default).
    `log_sigma = 0` makes every interruption as long as the median.
    """

    mean_up_s: Positive = 300.0
    median_down_s: Positive = 3.46
    log_sigma: NonNegative = 1.455

    @property
    def mean_down_s(self) -> float:
        """Return the mean length of an interruption in s."""
        return self.median_down_s * math.exp(self.log_sigma**2 / 2)

    @property
    def availability(self) -> float:
        """Return the share of time in which the link is up, in the long run."""
        return self.mean_up_s / (self.mean_up_s + self.mean_down_s)


class Dynamics(Table):
    """How fast and how far the channel of a node moves.

    All are engineering defaults: TR 38.901 fixes the spread of shadowing but not of wide-band fading in dB, and the
    handover is a plain one, whose hold of 50 ms is what a node that moves between cells sees.
    """

    decorrelation_m: Positive = 10.0
    fading_db: NonNegative = 3.0
    coherence_s: Positive = 0.5
    outage: Interruptions = Interruptions()
    handover: Interruptions = Interruptions(mean_up_s=60.0, median_down_s=0.05, log_sigma=0.0)


def lines_of_sight(place: Place, distance_2d_m: npt.ArrayLike, rng: np.random.Generator) -> Bools:
    """Draw which nodes see the antenna."""
    probability = place.los_probability(distance_2d_m)
    return np.asarray(rng.random(probability.shape) < probability)


def obstructions_db(place: Place, num_nodes: int, rng: np.random.Generator) -> Floats:
    """Draw the loss in dB of what stands around each node, such as a machine or a cabinet."""
    return np.where(rng.random(num_nodes) < place.obstructed_share, place.obstruction_db, 0.0)


def autoregressive(correlation: npt.ArrayLike, rng: np.random.Generator, before: npt.ArrayLike | None = None) -> Floats:
    """Draw paths of a first-order autoregressive process whose every value is standard normal.

    Args:
        correlation: Of each step with the step before it, in 0..1, steps by nodes.
        rng: Where the draws come from.
        before: The value of each node before the first step, to go on from; without it the first step is drawn afresh.

    Returns:
        The paths, steps by nodes.
    """
    rho = np.asarray(correlation, np.float64)
    noise = rng.standard_normal(rho.shape) * np.sqrt(1.0 - rho**2)
    last = rng.standard_normal(rho.shape[1:]) if before is None else np.asarray(before, np.float64)
    paths = np.empty_like(rho)
    for step in range(len(rho)):  # each step needs the one before; nodes go together
        last = paths[step] = rho[step] * last + noise[step]
    return paths


def shadowing(moved_m: npt.ArrayLike, decorrelation_m: float, rng: np.random.Generator, before: Floats | None = None) -> Floats:
    """Draw shadowing along the way of nodes, in standard deviations (TR 38.901 clause 7.4.4).

    The correlation over a distance is exp(-distance / decorrelation), whatever the steps in between: a node that
    stands keeps its shadow. Multiply by `Place.shadow_sigma_db`.

    Args:
        moved_m: How far each node moved in each step, in m, steps by nodes.
        decorrelation_m: The distance in m over which the correlation falls to 1/e.
        rng: Where the draws come from.
        before: As in `autoregressive`.
    """
    return autoregressive(np.exp(-np.asarray(moved_m, np.float64) / decorrelation_m), rng, before)


def fading_db(
    dynamics: Dynamics, step_s: float, shape: tuple[int, int], rng: np.random.Generator, before_db: Floats | None = None
) -> Floats:
    """Draw the Gauss-Markov fading in dB of nodes over time.

    It stands for Rayleigh fading averaged over a wide band: F becomes a F + sqrt(1 - a^2) N(0, sigma), a = exp(-step / tau).

    Args:
        dynamics: Its spread and coherence time.
        step_s: The time in s between two steps.
        shape: How many steps, how many nodes.
        rng: Where the draws come from.
        before_db: The fading in dB of each node before the first step, to go on from.
    """
    correlation = np.full(shape, math.exp(-step_s / dynamics.coherence_s))
    if dynamics.fading_db == 0.0:
        return np.zeros(shape)
    before = None if before_db is None else before_db / dynamics.fading_db
    return dynamics.fading_db * autoregressive(correlation, rng, before)


def interruptions(kind: Interruptions, num_nodes: int, horizon_s: float, rng: np.random.Generator) -> Floats:
    """Draw when the links of nodes are down; every link begins up.

    Args:
        kind: How often, and how long.
        num_nodes: How many nodes.
        horizon_s: How far to draw, in s. The last interruption of each node ends after it.
        rng: Where the draws come from.

    Returns:
        Begin and end of each interruption in s, nodes by interruptions by two. All nodes have as many.
    """
    drawn: list[Floats] = []
    reached = np.zeros(num_nodes)
    while not drawn or reached.min() < horizon_s:
        up = rng.exponential(kind.mean_up_s, num_nodes)
        down = kind.median_down_s * np.exp(kind.log_sigma * rng.standard_normal(num_nodes))
        drawn.append(np.stack([reached + up, reached + up + down], axis=-1))
        reached = drawn[-1][:, 1]
    return np.stack(drawn, axis=1)


def is_up(drawn: Floats, at_s: npt.ArrayLike) -> Bools:
    """Return whether each node's link is up at moments in s; times by nodes."""
    times = np.atleast_1d(np.asarray(at_s, np.float64))[:, None]
    up = np.empty((len(times), len(drawn)), np.bool_)
    for node, spans in enumerate(drawn):
        # Spans follow each other, so the last to begin is the only one that may still last.
        last = np.searchsorted(spans[:, 0], times[:, 0], side="right") - 1
        up[:, node] = (last < 0) | (times[:, 0] >= spans[np.maximum(last, 0), 1])
    return up


def resume_s(spans: Floats, at_s: float) -> float:
    """Return the first moment in s, not before `at_s`, at which the link of one node is up.

    Args:
        spans: The interruptions of the node: begin and end in s.
        at_s: The moment to start looking.
    """
    last = int(np.searchsorted(spans[:, 0], at_s, side="right")) - 1
    return at_s if last < 0 else max(at_s, float(spans[last, 1]))
