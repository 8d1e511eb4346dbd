"""No other shares are better: by all splits, by all subsets, and by a general solver."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from edge.slices.uplink import Floats, Uplink
from server.slicing import bound_s, least_time
from server.slicing.deadline import Deadline
from server.slicing.least_time import finish_s
from server.slicing.room import Room
from tests.uplinks import CONCAVE, STURDY, allowed, cost, needed, random_uplink, uplink


def last_s(cell: Uplink, prbs: Floats) -> float:
    return float(finish_s(cell, prbs).max())


@pytest.mark.parametrize("seed", range(6))
def test_no_whole_split_is_sooner(seed: int) -> None:
    source = np.random.default_rng(seed)
    cell = uplink(
        source.uniform(1e6, 1e7, 3),
        links=(CONCAVE, STURDY),
        total=14.0,
        release=source.uniform(0.0, 3.0, 3),
        sinr=source.uniform(5.0, 25.0, 3),
        maximum=[14.0, 6.0],
        dedicated=[0.0, 3.0],
        held=[2.0, 1.0],
    )
    splits = [np.array(split, np.float64) for split in itertools.product(range(1, 13), repeat=3)]
    best_s = min(last_s(cell, split) for split in splits if allowed(cell, split))
    found = least_time(cell)
    assert allowed(cell, found.prbs)
    assert last_s(cell, found.prbs) == pytest.approx(found.finish_s, rel=1e-7)
    assert found.finish_s <= best_s * (1 + 1e-9)
    # A whole split near the fractional one is not much worse, so neither is far off.
    assert best_s <= found.finish_s * 1.35


def by_solver(cell: Uplink, start: Floats) -> float:
    """The least time by SLSQP, from some shares: unknowns are PRBs, what each slice costs, and the finish.

    Times are measured from `now_s` and in units of a first guess, or its steps would be of no size.
    """
    num, slices = len(start), len(cell.names)
    member = np.array([cell.slice == index for index in range(slices)], np.float64)
    begin_s = np.maximum(cell.release_s, cell.now_s) + cell.delay_s - cell.now_s
    unit_s = last_s(cell, start) - cell.now_s

    def spare(x: Floats) -> Floats:
        prbs, costs, finish = x[:num], x[num:-1], x[-1]
        sent = cell.rate_bps(np.maximum(prbs, 1e-9)) * (finish * unit_s - begin_s) / cell.bits - 1.0
        return np.concatenate((sent, costs - member @ prbs - cell.held, [cell.total_prbs - costs.sum()]))

    costs = np.maximum(member @ start + cell.held, cell.dedicated)
    bounds = [(1e-6, most) for most in cell.most_prbs]
    bounds += [(least, max(most, least)) for least, most in zip(cell.dedicated, cell.maximum, strict=True)] + [(0.0, 2.0)]
    found = minimize(
        lambda x: x[-1],
        np.concatenate((start, costs, [1.0])),
        jac=lambda x: np.eye(len(x))[-1],
        bounds=bounds,
        constraints={"type": "ineq", "fun": spare},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    prbs = np.maximum(found.x[:num], 0.0)
    factor = min(1.0, Room.of(cell).spare_factor(cell.slice, prbs))  # whatever it broke a limit by
    return last_s(cell, np.minimum(prbs * factor, cell.most_prbs))


@pytest.mark.parametrize("seed", range(24))
def test_a_general_solver_finds_nothing_sooner(seed: int) -> None:
    num = 5 + seed % 6
    cell = random_uplink(seed, num)
    found = least_time(cell)
    assert found.limit == ""
    assert allowed(cell, found.prbs)
    assert last_s(cell, found.prbs) <= found.finish_s * (1 + 1e-8)
    source = np.random.default_rng(seed)
    room, paces = Room.of(cell), [np.ones(num), cell.bits, *source.uniform(0.1, 1.0, (2, num))]
    starts = [room.filled(cell.slice, pace, cell.most_prbs) for pace in paces]
    best_s = min(by_solver(cell, start) for start in starts)
    assert found.finish_s <= best_s * (1 + 1e-6)
    assert best_s <= found.finish_s * 1.001  # it is a rival to be taken seriously


def by_halving(cell: Uplink, members: Sequence[int]) -> float:
    """The least time of some nodes, straight from the definition."""
    mask = np.isin(np.arange(len(cell.nodes)), members)
    low, high = cell.now_s, 1e5
    for _ in range(60):
        middle = (low + high) / 2
        prbs = np.where(mask, needed(cell, middle), 0.0)
        low, high = (low, middle) if np.isfinite(prbs).all() and allowed(cell, prbs) else (middle, high)
    return high


@pytest.mark.parametrize("seed", range(8))
def test_no_other_quorum_is_sooner(seed: int) -> None:
    cell = random_uplink(100 + seed, 5, total=20.0)
    cell = replace(cell, bits=np.where(np.arange(5) == seed % 5, 0.0, cell.bits))
    sending = np.flatnonzero(cell.bits > 0).tolist()
    for num in range(1, 5):
        best_s = min(by_halving(cell, members) for members in itertools.combinations(sending, num))
        found = least_time(cell, num)
        assert found.finish_s == pytest.approx(best_s, rel=1e-6)
        assert (found.prbs > 0).sum() == num
        assert allowed(cell, found.prbs)
        assert (finish_s(cell, found.prbs) <= found.finish_s * (1 + 1e-8)).sum() == num + 1  # with the one that is done


@pytest.mark.parametrize("seed", range(20))
def test_no_other_admission_serves_more_or_as_many_for_less(seed: int) -> None:
    cell = random_uplink(200 + seed, 7, total=20.0)
    deadline_s = 10.0 + 3.0 * seed
    prbs = needed(cell, deadline_s)
    best = (0, -cost(cell, np.zeros(7)))
    for mask in map(np.array, itertools.product([False, True], repeat=7)):
        if np.isfinite(prbs[mask]).all() and allowed(cell, some := np.where(mask, prbs, 0.0)):
            best = max(best, (int(mask.sum()), -cost(cell, some)))
    grant = Deadline(period_s=0.2, hysteresis=0.0, deadline_s=deadline_s, margin=0.0, refuses=True).grant(cell, None)
    served = grant.floor_prbs > 0
    assert int(served.sum()) == best[0]
    assert cost(cell, grant.floor_prbs) == pytest.approx(-best[1], rel=1e-9)
    assert grant.floor_prbs[served] == pytest.approx(prbs[served], rel=1e-9)
    assert (finish_s(cell, grant.floor_prbs)[served] <= deadline_s * (1 + 1e-9)).all()
    assert (grant.limit == "") == (best[0] == 7)


def by_turns(cell: Uplink, source: np.random.Generator) -> float:
    """When all are done under a policy that draws new shares whenever a node begins or is done, and each 0.5 s."""
    room, now_s, left, done_s = Room.of(cell), cell.now_s, cell.bits.copy(), 0.0
    while (left > 0).any():
        sending = (left > 0) & (cell.release_s <= now_s)
        pace = np.where(sending, source.exponential(1.0, len(left)) ** 3 + 1e-3, 0.0)
        rate_bps = cell.rate_bps(room.filled(cell.slice, pace, cell.most_prbs))
        ends = np.where(sending, left / np.where(sending, rate_bps, 1.0), math.inf)
        begins = np.where(cell.release_s > now_s, cell.release_s - now_s, math.inf)
        step_s = min(0.5, float(ends.min()), float(begins.min()))
        left = np.where(sending, np.where(ends <= step_s, 0.0, left - rate_bps * step_s), left)
        now_s += step_s
        over = sending & (left == 0)
        done_s = max(done_s, float((now_s + cell.delay_s)[over].max(initial=0.0)))
    return done_s


@pytest.mark.parametrize("seed", range(12))
def test_no_changing_shares_beat_the_bound(seed: int) -> None:
    cell = random_uplink(300 + seed, 4)
    bound = bound_s(cell)
    assert bound <= least_time(cell).finish_s * (1 + 1e-8)
    source = np.random.default_rng(seed)
    ends = [by_turns(cell, source) for _ in range(12)]
    assert bound <= min(ends) * (1 + 1e-8)
    assert min(ends) <= 3 * bound
