"""An exchange against a simulator that goes by small steps of time, and a large cohort against the exact computation."""

from bisect import bisect
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from edge.slices import Demand, Network, NetworkConfig, NodeProfile, NodesConfig, Traffic, profiles
from edge.slices.profile import Direction
from edge.slices.traffic import _COARSENESS
from tests.cells import STILL, a_cell, a_slice, demand

STEP_S = 1e-3
COHERENCE_S = 0.5
PLACE = {"kind": "InF-SL", "nearest_m": 20.0, "farthest_m": 250.0, "gnb_height_m": 1.5}
MOVING = {"fading_db": 3.0, "coherence_s": COHERENCE_S, "outage": {"mean_up_s": 4.0, "median_down_s": 0.6, "log_sigma": 0.5}}


def level(capacity: float, caps: Sequence[float]) -> list[float]:
    """Fill all alike until the capacity is used up, by halving."""
    low, high = 0.0, capacity + max(caps, default=0.0)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(cap, middle) for cap in caps) <= capacity else (low, middle)
    return [min(cap, low) for cap in caps]


class Steps:
    """The same cell, told in its own words: one user after the other, one millisecond after the other."""

    def __init__(self, net: Network, demands: Sequence[Demand], at_s: float) -> None:
        self.config, self.at_s, self.demands = net.config, at_s, demands
        self.nodes = [d.node for d in demands]
        self.slices = [net.config.slices.index(net.slice_of(node)) for node in self.nodes]
        self.terminals, self.availability = net.terminals, net.terminals.availability(net.num_nodes)
        self.rates = cache(self._rates)
        self.channels_s = [0.0]  # from when on the channel is taken to be as it is then
        while self.channels_s[-1] < 100.0:
            self.channels_s.append(self.channels_s[-1] + max(COHERENCE_S / 2, _COARSENESS * self.channels_s[-1]))

    def _rates(self, way: Direction, active: tuple[int, ...], channel: int) -> dict[int, float]:
        """The rate of each active member while the channel stands still for the so-many-th time."""
        heard = self.terminals.sinr_db(self.at_s + self.channels_s[channel], np.array(self.nodes))[way == "up"]
        most, wanted, total = {}, [], float(self.config.cell.prbs)
        for index, one in enumerate(self.config.slices):
            link, ratio = self.config.link(one, way), one.side(way).rrm
            for member in (m for m in active if self.slices[m] == index):
                reach = min(float(link.useful_prbs(heard[member])), self.config.most_prbs(one, way))
                if one.side(way).ue_ambr_bps < np.inf:
                    reach = min(reach, float(link.prbs_for(one.side(way).ue_ambr_bps, heard[member])))
                most[member] = reach
            wanted.append(min(sum(most[m] for m in most if self.slices[m] == index), total * ratio.max / 100))
        least = [min(want, total * one.side(way).rrm.min / 100) for want, one in zip(wanted, self.config.slices, strict=True)]
        more = level(total - sum(least), [want - had for want, had in zip(wanted, least, strict=True)])
        found: dict[int, float] = {}
        for index, one in enumerate(self.config.slices):
            members = [m for m in most if self.slices[m] == index]
            shares = level(least[index] + more[index], [most[m] for m in members])
            link = self.config.link(one, way)
            found |= {m: float(link.rate_bps(prbs, heard[m])) for m, prbs in zip(members, shares, strict=True)}
        return found

    def run(self) -> list[tuple[float, float, float]]:
        """When each ended loading, computing and sending."""
        num = len(self.demands)
        left = {"down": [8.0 * d.bytes_down for d in self.demands], "up": [8.0 * d.bytes_up for d in self.demands]}
        loaded, ready, sent = [np.inf] * num, [np.inf] * num, [np.inf] * num
        now = 0.0
        while max(sent) == np.inf:
            up, _ = self.availability.at(self.at_s + now, np.array(self.nodes))
            channel = bisect(self.channels_s, now + 1e-9) - 1
            ways: tuple[Direction, ...] = ("down", "up")
            for way in ways:
                begun = [now >= 0 if way == "down" else now >= ready[m] for m in range(num)]
                active = tuple(m for m in range(num) if begun[m] and up[m] and left[way][m] > 0)
                for member, rate in self.rates(way, active, channel).items():
                    left[way][member] -= rate * STEP_S
            now += STEP_S
            for m in range(num):
                one = self.config.slices[self.slices[m]]
                if left["down"][m] <= 0 and loaded[m] == np.inf:
                    loaded[m] = now + one.down.delay_ms / 1e3
                    ready[m] = loaded[m] + self.demands[m].compute_s
                if left["up"][m] <= 0 and sent[m] == np.inf:
                    sent[m] = now + one.up.delay_ms / 1e3
        return list(zip(loaded, ready, sent, strict=True))


def a_case(seed: int, dynamics: dict[str, Any]) -> tuple[Network, list[Demand]]:
    source = np.random.default_rng(seed)
    cell = a_cell(
        a_slice("a", 1, {"rrm": {"min": 40}}, weight=1.0),
        a_slice("b", 2, {"rrm": {"min": 10, "max": 30}, "ue_ambr_bps": 3e6}, {"rrm": {"max": 50}}),
        place=PLACE,
        dynamics=dynamics,
    )
    num = int(source.integers(2, 6))
    speeds = source.choice([0.0, 3.0], num) if dynamics is MOVING else np.zeros(num)
    nodes = [NodeProfile(name="n", slice=str(source.choice(["a", "b"])), speed_m_s=float(v)) for v in speeds]
    sizes = source.uniform(0.5, 4.0, (num, 2)) * [8e6, 1e6]
    asks = [demand(n, int(sizes[n, 0]), float(source.uniform(0, 2)), int(sizes[n, 1])) for n in range(num)]
    return Network(cell, nodes, seed), asks


def ends(traffic: Traffic) -> Any:
    return np.cumsum([traffic.download_s, traffic.compute_s, traffic.upload_s], axis=0).T


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dynamics", [STILL, MOVING], ids=["still", "moving"])
def test_small_steps_of_time_say_the_same(seed: int, dynamics: dict[str, Any]) -> None:
    net, asks = a_case(seed, dynamics)
    found = ends(net.carry(asks, 11.0))
    assert found == pytest.approx(np.array(Steps(net, asks, 11.0).run()), rel=5e-3, abs=4 * STEP_S)


HURRIED = {"handover": {"mean_up_s": 3.0, "median_down_s": 0.05, "log_sigma": 0.0}}


@pytest.mark.parametrize(("speed_m_s", "dynamics"), [(0.0, {}), (2.0, HURRIED)], ids=["fixed", "moving"])
def test_a_large_cohort_is_as_near_to_exact_as_its_steps_are_small(
    speed_m_s: float, dynamics: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [p.model_copy(update={"speed_m_s": speed_m_s}) for p in NodesConfig().profiles]
    config = NetworkConfig.model_validate({"cell": {"dynamics": dynamics}})
    net, source = Network(config, profiles(NodesConfig(count=200, profiles=kinds), 3), 3), np.random.default_rng(4)
    asks = [demand(n, 200_000, float(source.uniform(0.5, 20)), int(source.uniform(5e4, 4e5))) for n in range(200)]
    quick = net.carry(asks, 0.0)
    monkeypatch.setattr("edge.slices.traffic._LARGE", 200)
    exact = net.carry(asks, 0.0)
    assert len(quick.use["up"].prbs) < 0.7 * len(exact.use["up"].prbs)
    off = ends(quick)[:, 2] / ends(exact)[:, 2] - 1
    assert ends(quick)[:, 2].max() == pytest.approx(ends(exact)[:, 2].max(), rel=_COARSENESS)
    assert np.abs(off).mean() < _COARSENESS
    assert np.quantile(np.abs(off), 0.95) < 2 * _COARSENESS
    assert _COARSENESS <= 0.02


def test_a_large_cohort_goes_by_a_fiftieth_of_the_time_and_at_least_a_millisecond() -> None:
    def steps(num: int) -> tuple[Any, Any]:
        net = Network(a_cell(), [NodeProfile(name="n", slice="embb")] * num, 0)
        until_s = np.array(net.carry([demand(n, 0, n * 1e-4, 5_000 * (1 + n)) for n in range(num)], 0.0).use["up"].until_s)
        return np.diff(until_s), np.maximum(_COARSENESS * until_s[:-1], 1e-3)

    took, least = steps(65)
    assert (took >= least - 1e-12).all()
    assert took.min() < 2e-3 < 4e-3 < took.max()  # the millisecond counts at first, and the share later
    exact, coarse = steps(64)
    assert len(took) < 65 < 2 * 64 <= len(exact)  # each start and each end of 64 is an event
    assert (exact < coarse).mean() > 0.5
