"""Sharing keeps its promises for any slices, any nodes and any demand."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from edge.slices.link import Link
from edge.slices.scheduler import Floats, Policy, max_min, proportional_fair_gain, share_among_slices, waiting_time_s
from edge.slices.spectrum import TABLES

TOTAL = 106.0
NEAR = 1e-7
amounts = st.floats(0.0, 200.0) | st.integers(0, 200).map(float) | st.just(math.inf)
weights = st.floats(0.01, 100.0)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Ratios as RRMPolicyRatio allows them: whole percents, minima that fit."""
    count = draw(st.integers(1, 6))
    left, rows = 100, []
    for _ in range(count):
        least = draw(st.integers(0, left))
        left -= least
        rows.append((draw(st.integers(0, least)), least, draw(st.integers(least, 100))))
    dedicated, minimum, maximum = (np.array(column) * TOTAL / 100 for column in zip(*rows, strict=True))
    weight = np.array(draw(st.lists(weights, min_size=count, max_size=count)))
    return Policy(dedicated=dedicated, minimum=minimum, maximum=maximum, weight=weight)


@st.composite
def cells(draw: st.DrawFn) -> tuple[Policy, Floats]:
    policy = draw(policies())
    count = len(policy.weight)
    return policy, np.array(draw(st.lists(amounts, min_size=count, max_size=count)))


@st.composite
def queues(draw: st.DrawFn) -> tuple[float, Floats, Floats]:
    count = draw(st.integers(0, 12))
    lists = [draw(st.lists(kind, min_size=count, max_size=count)) for kind in (amounts, weights)]
    return draw(st.floats(0.0, 300.0)), np.array(lists[0]), np.array(lists[1])


def permuted(policy: Policy, order: Floats) -> Policy:
    at = order.astype(int)
    return Policy(
        dedicated=policy.dedicated[at], minimum=policy.minimum[at], maximum=policy.maximum[at], weight=policy.weight[at]
    )


@settings(max_examples=300, deadline=None)
@given(cells())
def test_nothing_is_left_that_somebody_could_use(cell: tuple[Policy, Floats]) -> None:
    policy, demand = cell
    given_to = share_among_slices(TOTAL, demand, policy)
    wanted = np.minimum(demand, policy.maximum)
    idle_dedicated = np.maximum(policy.dedicated - given_to, 0.0).sum()
    satisfied = given_to.sum() >= wanted.sum() - NEAR
    assert satisfied or given_to.sum() == pytest.approx(TOTAL - idle_dedicated, abs=NEAR)


@settings(max_examples=300, deadline=None)
@given(cells())
def test_nobody_gets_more_than_the_demand_the_maximum_or_what_there_is(cell: tuple[Policy, Floats]) -> None:
    policy, demand = cell
    given_to = share_among_slices(TOTAL, demand, policy)
    assert (given_to >= 0).all()
    assert (given_to <= np.minimum(demand, policy.maximum)).all()
    assert given_to.sum() <= TOTAL + NEAR


@settings(max_examples=300, deadline=None)
@given(cells())
def test_the_minimum_is_there_whatever_the_others_want(cell: tuple[Policy, Floats]) -> None:
    policy, demand = cell
    for asked in (demand, np.full_like(demand, math.inf)):
        given_to = share_among_slices(TOTAL, asked, policy)
        assert (given_to >= 0.99 * np.minimum(asked, policy.minimum)).all()


@settings(max_examples=300, deadline=None)
@given(policies(), st.integers(0, 5))
def test_dedicated_is_never_lent_and_the_rest_of_the_minimum_is(policy: Policy, idle: int) -> None:
    idle %= len(policy.weight)
    demand = np.full(len(policy.weight), math.inf)
    demand[idle] = 0.0
    given_to = share_among_slices(TOTAL, demand, policy)
    free = TOTAL - policy.dedicated[idle]
    assert given_to[idle] == 0
    assert given_to.sum() <= free + NEAR
    others = np.delete(policy.maximum, idle).sum()
    assert given_to.sum() == pytest.approx(min(free, others), abs=NEAR)


@settings(max_examples=200, deadline=None)
@given(cells(), st.randoms(use_true_random=False))
def test_the_order_of_slices_does_not_matter(cell: tuple[Policy, Floats], shuffler: random.Random) -> None:
    policy, demand = cell
    order = list(range(len(demand)))
    shuffler.shuffle(order)
    at = np.array(order)
    found = share_among_slices(TOTAL, demand[at], permuted(policy, at))
    assert found == pytest.approx(share_among_slices(TOTAL, demand, policy)[at], abs=NEAR)


@settings(max_examples=200, deadline=None)
@given(cells(), st.floats(0.0, 100.0))
def test_a_larger_cell_gives_no_slice_less(cell: tuple[Policy, Floats], more: float) -> None:
    policy, demand = cell
    given_to = share_among_slices(TOTAL, demand, policy)
    assert (share_among_slices(TOTAL + more, demand, policy) >= given_to - NEAR).all()


def test_the_factory_by_hand() -> None:
    percent = TOTAL / 100
    policy = Policy(
        dedicated=np.array([0, 5, 0]) * percent,
        minimum=np.array([40, 10, 5]) * percent,
        maximum=np.array([100, 30, 20]) * percent,
        weight=np.ones(3),
    )

    def percents(*demand: float) -> list[float]:
        return [float(prbs) / percent for prbs in share_among_slices(TOTAL, np.array(demand) * percent, policy)]

    # 45 are shared beyond the minima; 15 each, which mMTC's maximum just allows.
    assert percents(math.inf, math.inf, math.inf) == pytest.approx([55, 25, 20])
    assert percents(math.inf, 0, 0) == pytest.approx([95, 0, 0])  # but for what is dedicated to URLLC
    assert percents(math.inf, 2, 0) == pytest.approx([95, 2, 0])
    assert percents(math.inf, 8, 0) == pytest.approx([92, 8, 0])
    assert percents(0, math.inf, math.inf) == pytest.approx([0, 30, 20])
    assert percents(10, 10, 10) == pytest.approx([10, 10, 10])


@settings(max_examples=300, deadline=None)
@given(queues())
def test_max_min_uses_all_and_evens_out(queue: tuple[float, Floats, Floats]) -> None:
    capacity, caps, pace = queue
    found = max_min(capacity, caps, pace)
    assert (found >= 0).all()
    assert (found <= caps).all()
    assert found.sum() == pytest.approx(min(capacity, caps.sum()), abs=NEAR)
    # Whoever is below their cap is at the highest level there is.
    levels = found / pace
    short = found < caps * (1 - 1e-9) - NEAR
    assert not short.any() or levels[short].min() >= levels.max() - NEAR * 100


def by_subsets(capacity: float, caps: Floats, pace: Floats) -> Floats:
    """Try every set of those who are full; only one leaves a level that agrees with it."""
    if caps.sum() <= capacity:
        return caps
    best, gap = caps, math.inf
    for full in itertools.product([False, True], repeat=len(caps)):
        mask = np.array(full)
        if mask.all() or caps[mask].sum() > capacity:
            continue
        level = (capacity - caps[mask].sum()) / pace[~mask].sum()
        wrong = max((caps[mask] - level * pace[mask]).max(initial=0.0), (level * pace[~mask] - caps[~mask]).max(initial=0.0))
        if wrong < gap:
            best, gap = np.where(mask, caps, level * pace), wrong
    return best


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_max_min_equals_brute_force(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    caps = np.array(data.draw(st.lists(st.integers(0, 12).map(float), min_size=count, max_size=count)))
    pace = np.array(data.draw(st.lists(st.integers(1, 4).map(float), min_size=count, max_size=count)))
    capacity = data.draw(st.integers(0, 20).map(float))
    assert max_min(capacity, caps, pace) == pytest.approx(by_subsets(capacity, caps, pace), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10), st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)), min_size=1, max_size=3))
def test_no_whole_split_is_fairer(capacity: int, nodes: list[tuple[int, int]]) -> None:
    caps, pace = (np.array(column, np.float64) for column in zip(*nodes, strict=True))
    found = sorted(max_min(float(capacity), caps, pace) / pace)
    for split in itertools.product(*(range(cap + 1) for cap, _ in nodes)):
        if sum(split) <= capacity:
            other = sorted(np.array(split) / pace)
            first = next(((a, b) for a, b in zip(found, other, strict=True) if abs(a - b) > 1e-9), None)
            assert first is None or first[0] > first[1]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.integers(1, 4),
    st.floats(-40.0, 60.0),
    st.lists(st.just(0.0) | st.floats(1e-3, 273.0), min_size=3, max_size=3, unique=True),
)
@example(3, True, 3, -3.5625, [0.0, 1.0, 3.0])  # the highest rate there is, but for a rounding
def test_more_prbs_never_give_less_and_each_gives_less_than_the_last(
    table: int, uplink: bool, layers: int, sinr_db: float, prbs: list[float]
) -> None:
    link = Link(table=TABLES[table], slot_share=0.23, overhead=0.08, layers=layers, power_limited=uplink)
    few, some, many = sorted(prbs)
    assume(few < some < many)
    low, middle, high = link.rate_bps([few, some, many], sinr_db).tolist()
    slack = 1e-9 * high
    assert low <= middle + slack
    assert middle <= high + slack
    part = (some - few) / (many - few)
    assert middle >= low * (1 - part) + high * part - slack  # concave
    assert link.rate_bps(many, sinr_db + 1.0) >= high - slack
    needed = float(link.prbs_for(high, sinr_db))
    assert needed <= many * (1 + 1e-9) + 1e-9
    assert link.rate_bps(needed, sinr_db) == pytest.approx(high, rel=1e-9)


def test_the_gain_of_proportional_fair_is_the_simulated_one() -> None:
    simulated = {
        0: [1.41, 1.84, 2.02, 2.10],
        8: [1.26, 1.47, 1.54, 1.57],
        16: [1.17, 1.28, 1.31, 1.32],
        24: [1.09, 1.12, 1.12, 1.12],
    }
    for snr_db, gains in simulated.items():
        assert proportional_fair_gain([2, 5, 10, 20], snr_db) == pytest.approx(gains)
    assert proportional_fair_gain(1, [-30.0, 0.0, 12.0, 50.0]).tolist() == [1.0] * 4
    assert proportional_fair_gain([500, 2, 2], [0.0, -9.0, 99.0]) == pytest.approx([2.10, 1.41, 1.09])
    assert proportional_fair_gain(2, 4.0) == pytest.approx((1.41 + 1.26) / 2)
    assert proportional_fair_gain(math.sqrt(2 * 5), 0.0) == pytest.approx((1.41 + 1.84) / 2)


@given(st.integers(1, 200), st.integers(0, 200), st.floats(-20.0, 40.0), st.floats(0.0, 10.0))
def test_the_gain_grows_with_nodes_and_falls_with_snr(num: int, more: int, snr_db: float, higher: float) -> None:
    gain = float(proportional_fair_gain(num, snr_db))
    assert 1.0 <= gain <= 2.1
    assert proportional_fair_gain(num + more, snr_db) >= gain - 1e-12
    assert proportional_fair_gain(num, snr_db + higher) <= gain + 1e-12


def test_the_wait_in_a_queue_by_closed_forms() -> None:
    service_s = 1e-3
    for load in (0.1, 0.5, 0.9):
        one = load * service_s / (1 - load)  # M/M/1
        assert waiting_time_s(load / service_s, service_s, 1.0) == pytest.approx(one)
        assert waiting_time_s(load / service_s, service_s) == pytest.approx(one / 2)  # M/D/1
    assert waiting_time_s([0.0, 1000.0, 2000.0], service_s).tolist() == [0.0, math.inf, math.inf]


def test_the_wait_in_a_queue_by_simulation() -> None:
    rng, num, load = np.random.default_rng(1), 1_000_000, 0.7
    service = rng.gamma(4.0, 0.25, num)  # mean 1, cv 0.5
    # Lindley: W grows by service less gap and never below zero, so it is the walk above its own minimum.
    walk = np.concatenate(([0.0], np.cumsum(service[:-1] - rng.exponential(1 / load, num - 1))))
    waits = walk - np.minimum.accumulate(walk)
    assert waits.mean() == pytest.approx(float(waiting_time_s(load, 1.0, 0.5)), rel=0.02)
