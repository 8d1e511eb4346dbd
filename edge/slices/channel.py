"""How the radio channel of nodes moves: shadowing over distance, fading over time, outages and handovers.

Every draw comes from a generator that the caller passes in.
"""

import math
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.slices.pathloss import Floats, Place, Positive
from fedslice.core.config import Table

_WAVES = 16  # a node; enough for tails that are normal within a few percent
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


def obstructions_db(place: Place, num_nodes: int, rng: np.random.Generator) -> Floats:
    """Draw the loss in dB of what stands around each node, such as a machine or a cabinet."""
    return np.where(rng.random(num_nodes) < place.obstructed_share, place.obstruction_db, 0.0)


class Wander:
    """A Gauss-Markov value of each node along one way, be it time or distance, that can be asked for anywhere on it.

    A stationary Gaussian process with the autocorrelation exp(-|d|) is the one that is also Markov (Doob, 1942). A sum
    of waves has it in the mean if their frequencies are Cauchy-distributed (sums of sinusoids: Cai and Giannakis, IEEE
    Trans. Veh. Technol. 52(6), 2003). So there is no state to keep, and no step that must be drawn before another.
    """

    def __init__(self, num_nodes: int, length: float, rng: np.random.Generator) -> None:
        """Draw the waves of each node.

        Args:
            num_nodes: How many nodes, each independent of the others.
            length: The distance, or time, over which the correlation falls to 1/e.
            rng: Where the draws come from.
        """
        # Node after node, so that more of them leave the first as they are.
        draws = rng.random((num_nodes, 2, _WAVES))
        self._frequency = np.tan(math.pi * (draws[:, 0] - 0.5)) / length
        self._phase = 2.0 * math.pi * draws[:, 1]

    def at(self, where: npt.ArrayLike, nodes: npt.NDArray[np.intp]) -> Floats:
        """Return the value of each of some nodes, standard normal, at one place for all or one for each."""
        place = np.asarray(where, np.float64)[..., None]
        values: Floats = np.cos(place * self._frequency[nodes] + self._phase[nodes]).sum(axis=-1)
        return math.sqrt(2.0 / _WAVES) * values


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
