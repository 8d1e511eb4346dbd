"""Slicing policies by closed forms: how soon, which shares, why not, and when to change one's mind."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edge.slices.uplink import Grant, Uplink
from fedslice.core.federation import FederationConfig
from server.slicing import DeadlineConfig, MinMaxConfig, ProportionalConfig, QuorumConfig, bound_s, least_time
from server.slicing.least_time import finish_s
from server.slicing.room import Room
from server.slicing.steady import steady
from tests.uplinks import A_PRB_BPS, CONCAVE, LINEAR, random_uplink, uplink

SECOND = A_PRB_BPS  # bits that one PRB sends in a second
SLOW = FederationConfig(deadline_s=1e6)
MIN_MAX = MinMaxConfig().build(SLOW)


def grant_of(floors: list[float], ceilings: list[float] | None = None) -> Grant:
    tops = np.full(len(floors), math.inf) if ceilings is None else np.array(ceilings)
    return Grant(floor_prbs=np.array(floors), ceiling_prbs=tops)


def test_equal_starts_share_by_prb_seconds() -> None:
    found = least_time(uplink(SECOND * np.array([300.0, 100.0, 600.0]), release=4.0, delay=0.5))
    assert found.finish_s == pytest.approx(4 + 0.5 + 1000 / 100, rel=1e-8)
    assert found.prbs == pytest.approx([30, 10, 60], rel=1e-7)
    assert found.limit == ""


def test_a_far_node_with_few_bytes_may_need_the_most() -> None:
    cell = uplink(SECOND * np.array([200.0, 100.0]), sinr=[60.0, 2.0])
    slower = A_PRB_BPS / float(LINEAR.rate_bps(1.0, 2.0))
    assert slower > 4
    found = least_time(cell)
    assert found.finish_s == pytest.approx((200 + 100 * slower) / 100, rel=1e-8)
    assert found.prbs[1] > 2 * found.prbs[0]


def test_two_starts_solve_a_quadratic() -> None:
    # 300 / T + 200 / (T - 2) = 100
    found = least_time(uplink(SECOND * np.array([300.0, 200.0]), release=[0.0, 2.0]))
    assert found.finish_s == pytest.approx((7 + math.sqrt(49 - 24)) / 2, rel=1e-8)
    assert found.prbs == pytest.approx([50, 50], rel=1e-7)


def test_a_full_slice_decides_and_the_other_gets_what_is_left() -> None:
    cell = uplink(SECOND * np.array([100.0, 300.0]), links=(LINEAR, LINEAR), maximum=[100.0, 20.0])
    assert least_time(cell).finish_s == pytest.approx(300 / 20, rel=1e-8)
    grant = MIN_MAX.grant(cell, None)
    assert grant.finish_s == pytest.approx(15.0, rel=1e-8)
    assert grant.floor_prbs == pytest.approx([80, 20], rel=1e-7)
    # With room in the slice the closed form is that of one slice.
    assert least_time(replace(cell, maximum=np.array([100.0, 80.0]))).finish_s == pytest.approx(4.0, rel=1e-8)


def test_what_is_held_or_dedicated_is_not_there() -> None:
    bits = SECOND * np.array([300.0, 300.0])
    cell = uplink(bits, links=(LINEAR, LINEAR, LINEAR), held=[10.0, 5.0, 0.0], dedicated=[0.0, 8.0, 25.0], slices=[0, 1])
    # 100 less 10, 5 and 25; that 8 are dedicated to the second slice does not matter, as more are used in it.
    assert least_time(cell).finish_s == pytest.approx(600 / 60, rel=1e-8)
    assert MIN_MAX.grant(cell, None).floor_prbs == pytest.approx([30, 30], rel=1e-7)
    # Nobody sends in the second slice: its 8 dedicated PRBs stay idle, of which 5 are held anyway.
    assert least_time(replace(cell, bits=SECOND * np.array([300.0, 0.0]))).finish_s == pytest.approx(300 / 57, rel=1e-8)
    # Nodes there get the 3 of them that others do not hold, even when nothing is shared.
    full = replace(cell, held=np.array([67.0, 5.0, 0.0]))
    assert least_time(replace(full, bits=SECOND * np.array([0.0, 6.0]))).finish_s == pytest.approx(2.0, rel=1e-8)


def test_power_bounds_what_prbs_bring() -> None:
    cell = uplink([8e6], links=(CONCAVE,), sinr=3.0, now=1.0, delay=0.25)
    best_bps = float(CONCAVE.rate_bps(100.0, 3.0))
    found = least_time(cell)
    assert found.finish_s == pytest.approx(1.25 + 8e6 / best_bps, rel=1e-8)
    assert found.prbs[0] == pytest.approx(float(CONCAVE.useful_prbs(3.0)), rel=1e-6)
    assert found.prbs[0] < 100
    assert bound_s(cell) == pytest.approx(found.finish_s, rel=1e-8)


def test_nothing_left_is_finished_now() -> None:
    for bits in ([], [0.0, 0.0]):
        found = least_time(uplink(bits, now=7.0))
        assert (found.finish_s, found.prbs.tolist(), found.limit) == (7.0, bits, "")
        assert bound_s(uplink(bits, now=7.0)) == 7.0


def test_the_bound_is_the_optimum_of_one_machine_with_releases() -> None:
    source = np.random.default_rng(3)
    for num in (1, 2, 5, 12):
        release, need_s = source.uniform(0, 10, num), source.uniform(10, 200, num)
        cell = uplink(SECOND * need_s, release=release, delay=0.02, now=1.0)
        starts = np.maximum(release, 1.0)
        exact = max(start + need_s[starts >= start].sum() / 100 for start in starts) + 0.02
        assert bound_s(cell) == pytest.approx(exact, rel=1e-8)


def test_many_starts_leave_a_bound_that_is_one() -> None:
    cell = random_uplink(1, 60)
    assert cell.now_s < bound_s(cell) <= least_time(cell).finish_s


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"sinr": [20, -40, 20, 20]}, "node 1: its power reaches no MCS"),
        ({"sinr": [20, -40, 20, -40]}, "node 1: its power reaches no MCS; 1 more never finish"),
        ({"held": [0, 21.2], "maximum": [100, 21.2]}, "slice urllc: its maximum of 21.2 PRBs is held by others; 1 more"),
        ({"held": [70, 30]}, "cell: its 100.0 PRBs are held by others or dedicated to other slices than embb; 3 more"),
        ({"most": [100, 100, 0, 100]}, "node 2: it may have no more than 0 PRBs"),
        ({"release": [0, math.inf, 0, 0]}, "node 1: nobody knows when it begins to send"),
    ],
)
def test_what_cannot_be_names_what_forbids_it_and_the_others_are_served(given: dict[str, Any], limit: str) -> None:
    cell = uplink([1e6] * 4, links=(CONCAVE, CONCAVE), **{"sinr": 20.0, **given})
    found = least_time(cell)
    assert found.limit.startswith(limit)
    assert found.finish_s == bound_s(cell) == math.inf
    served = int((found.prbs > 0).sum())
    assert served == 4 - 1 - (int(found.limit.split("; ")[1].split()[0]) if ";" in found.limit else 0)
    for policy in (MIN_MAX, *(config().build(SLOW) for config in (ProportionalConfig, DeadlineConfig, QuorumConfig))):
        grant = policy.grant(cell, None)
        assert (grant.limit, grant.finish_s) == (found.limit, math.inf)
        assert int((grant.floor_prbs > 0).sum()) == served


def test_a_quorum_takes_the_cheapest_and_counts_who_is_done() -> None:
    cell = uplink(SECOND * np.array([100.0, 400.0, 0.0, 200.0, 900.0]), release=1.0)
    grant = QuorumConfig().build(FederationConfig(close_at=0.6)).grant(cell, None)  # three of five, of whom one is done
    assert grant.finish_s == pytest.approx(1 + 300 / 100, rel=1e-8)
    assert grant.floor_prbs == pytest.approx([100 / 3, 0, 0, 200 / 3, 0], rel=1e-7)
    assert np.isinf(grant.ceiling_prbs).all()
    there = QuorumConfig().build(FederationConfig(close_at=0.2)).grant(cell, None)
    assert (there.finish_s, there.floor_prbs.tolist()) == (0.0, [0.0] * 5)
    # Whoever never finishes does not keep a quorum from being reached.
    poor = replace(cell, sinr_db=np.array([60.0, -40, 60, 60, 60]))
    assert QuorumConfig().build(FederationConfig(close_at=0.6)).grant(poor, None).limit == ""


def test_a_share_is_rounded_up_but_not_by_rounding() -> None:
    assert 0.07 * 100 > 7
    for share, num in ((0.07, 7), (0.071, 8)):
        grant = QuorumConfig().build(FederationConfig(close_at=share)).grant(uplink([1e6] * 100), None)
        assert int((grant.floor_prbs > 0).sum()) == num


def test_a_deadline_takes_no_more_than_it_needs() -> None:
    cell = uplink(SECOND * np.array([100.0, 300.0]), now=2.0)
    grant = DeadlineConfig(margin=0.25).build(FederationConfig(deadline_s=12.0)).grant(cell, None)
    assert grant.floor_prbs == pytest.approx([12.5, 37.5], rel=1e-7)
    assert grant.ceiling_prbs.tolist() == grant.floor_prbs.tolist()
    assert grant.finish_s == pytest.approx(2 + 10 / 1.25, rel=1e-7)
    # The margin never keeps a node out: it is cut where it does not fit.
    tight = DeadlineConfig(margin=0.25).build(FederationConfig(deadline_s=6.2)).grant(cell, None)
    assert tight.floor_prbs == pytest.approx([25, 75], rel=1e-7)
    assert tight.limit == ""


def test_a_deadline_names_what_is_too_little() -> None:
    bits = SECOND * np.array([100.0, 160.0, 150.0])
    cell = uplink(bits, links=(LINEAR, LINEAR), slices=[0, 1, 1], maximum=[100.0, 20.0])
    policy = DeadlineConfig(margin=0.0).build(FederationConfig(deadline_s=10.0))
    grant = policy.grant(cell, None)
    assert grant.limit == "slice urllc: its nodes need 31.0 PRBs, and may have 20.0"
    assert grant.floor_prbs == pytest.approx([10, 0, 15], rel=1e-7)
    assert grant.ceiling_prbs == pytest.approx([10, math.inf, 15], rel=1e-7)
    small = replace(cell, maximum=np.full(2, 100.0), held=np.array([60.0, 0.0]))
    assert policy.grant(small, None).limit == "cell: the nodes need 41.0 PRBs, more than others leave of 100.0"
    late = replace(cell, release_s=np.array([0.0, 0.0, 9.0]))
    assert policy.grant(late, None).limit == "node 2: in 20.0 PRBs, the most of use to it, it would be done at 16.5 s"
    after = policy.grant(replace(cell, now_s=10.0), grant)
    assert (after.limit, after.floor_prbs.tolist()) == ("deadline: 10 s are over", [0.0] * 3)
    assert np.isinf(after.ceiling_prbs).all()


def test_proportional_shares_by_need_among_those_who_send() -> None:
    cell = uplink(SECOND * np.array([100.0, 300.0, 500.0]), release=[0.0, 0.0, 9.0], now=1.0)
    grant = ProportionalConfig().build(SLOW).grant(cell, None)
    assert grant.floor_prbs == pytest.approx([25, 75, 0], rel=1e-9)
    assert grant.finish_s == pytest.approx(1 + 4, rel=1e-9)
    bounded = ProportionalConfig().build(SLOW).grant(replace(cell, most_prbs=np.array([100.0, 40, 100])), None)
    assert bounded.floor_prbs == pytest.approx([60, 40, 0], rel=1e-9)


def test_where_the_coordinator_waits_a_deadline_out_of_reach_is_the_least_time() -> None:
    bits = SECOND * np.array([100.0, 160.0, 150.0])
    cell = uplink(bits, links=(LINEAR, LINEAR), slices=[0, 1, 1], maximum=[100.0, 20.0])
    policy = DeadlineConfig(deadline_s=10.0).build(FederationConfig())
    grant = policy.grant(cell, None)
    assert grant.limit == "slice urllc: its nodes need 31.0 PRBs, and may have 20.0"
    assert grant.finish_s == pytest.approx(310 / 20, rel=1e-8)
    assert grant.floor_prbs == pytest.approx([80, 20 * 16 / 31, 20 * 15 / 31], rel=1e-7)
    assert policy.grant(replace(cell, now_s=11.0), grant).limit == "deadline: 10 s are over"
    near = DeadlineConfig(deadline_s=30.0).build(FederationConfig(deadline_s=12.0))
    assert (near.deadline_s, near.refuses) == (12.0, True)
    with pytest.raises(ValueError, match=r"needs slicing.deadline_s or federation.deadline_s"):
        DeadlineConfig().build(FederationConfig())


def test_filling_gives_a_slice_its_own_when_nothing_is_shared() -> None:
    room = Room(own=np.array([30.0, 0.0]), shared=20.0, most=np.array([50.0, 20.0]))
    slices, most = np.array([0, 0, 1]), np.full(3, 100.0)
    assert room.filled(slices, np.array([1.0, 1, 4]), most) == pytest.approx([15, 15, 20], rel=1e-9)
    # Level 12.5: the first slice needs 20 of the shared beyond its own 30 less, the second 12.5.
    assert room.filled(slices, np.array([1.0, 2, 1]), most) == pytest.approx([12.5, 25, 12.5], rel=1e-9)
    assert room.filled(slices, np.array([1.0, 0, 0]), np.full(3, 7.0)).tolist() == [7.0, 0.0, 0.0]
    three = Room(own=np.array([30.0, 0, 0]), shared=20.0, most=np.array([50.0, 20, 20]))
    assert three.filled(np.arange(3), np.array([1.0, 4, 4]), most) == pytest.approx([30, 10, 10], rel=1e-9)


def test_prbs_that_nobody_else_can_have_are_the_cheapest() -> None:
    bits = SECOND * np.array([400.0, 300.0, 300.0])
    cell = uplink(bits, links=(LINEAR, LINEAR, LINEAR), dedicated=[50.0, 0.0, 0.0])
    # In 10 s they need 40, 30 and 30; the 40 are there anyway, and of 50 that are shared only one can have 30.
    grant = DeadlineConfig(margin=0.0).build(FederationConfig(deadline_s=10.0)).grant(cell, None)
    assert grant.floor_prbs == pytest.approx([40, 30, 0], rel=1e-7)
    # Two are done soonest with one of them where 50 are dedicated: any other two share 50.
    assert least_time(cell, 2).prbs == pytest.approx([400 / 7, 300 / 7, 0], rel=1e-7)


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        ([50.0, 50.0], [54.9, 45.1], True),
        ([50.0, 50.0], [55.1, 44.9], False),  # a floor moved by more than 5 of 100
        ([10.0, 4.0], [10.0, 4.3], False),  # the last is done 7 % sooner
        ([10.0, 4.0], [10.0, 4.1], True),
        ([10.0, 0.0], [10.0, 1.0], False),  # one had nothing
        ([99.0, 4.0], [97.0, 3.0], False),  # it does not fit
    ],
)
def test_small_changes_are_not_worth_it(before: list[float], after: list[float], stays: bool) -> None:
    cell = uplink(SECOND * np.array([100.0, 100.0]))
    was, would_be = grant_of(before), replace(grant_of(after), finish_s=9.0, limit="why")
    found = steady(cell, was, would_be, 0.05)
    assert found.floor_prbs is (was if stays else would_be).floor_prbs
    assert (found.finish_s, found.limit) == (9.0, "why")


def test_who_is_done_or_let_go_changes_all() -> None:
    cell = uplink(SECOND * np.array([100.0, 100.0]))
    done = replace(cell, bits=np.array([0.0, SECOND]))
    was, would_be = grant_of([1.0, 50.0]), grant_of([0.0, 50.0])
    assert steady(cell, was, would_be, 0.05) is not would_be
    assert steady(done, was, would_be, 0.05) is would_be
    assert steady(cell, grant_of([1.0, 50.0], [1.0, 50.0]), would_be, 0.05) is would_be
    assert steady(replace(cell, most_prbs=np.array([100.0, 49.0])), was, would_be, 0.05) is would_be
    assert steady(cell, grant_of([1.0]), would_be, 0.05) is would_be
    assert steady(cell, None, would_be, 0.05) is would_be


def test_a_policy_keeps_its_grant_while_the_channel_hardly_moves() -> None:
    def moved(by_db: float) -> Uplink:
        return uplink([2e7, 2e7, 1e7], links=(CONCAVE,), sinr=[20.0 + by_db, 12.0, 15.0], now=0.2)

    first = MIN_MAX.grant(moved(0.0), None)
    assert MIN_MAX.grant(moved(0.1), first).floor_prbs is first.floor_prbs
    assert MIN_MAX.grant(moved(-10.0), first).floor_prbs is not first.floor_prbs
    eager = MinMaxConfig(hysteresis=0.0).build(SLOW)
    assert eager.grant(moved(0.1), first).floor_prbs is not first.floor_prbs


def test_a_finish_needs_a_rate() -> None:
    cell = uplink(SECOND * np.array([100.0, 0.0, 50.0]), release=[3.0, 9.0, 0.0], delay=0.5, now=1.0)
    assert finish_s(cell, np.array([20.0, 0.0, 0.0])) == pytest.approx([8.5, 1.0, math.inf])


@pytest.mark.parametrize(
    "keys",
    [{"period_s": 0.001}, {"hysteresis": -0.1}, {"period": 1.0}, {"hysteresis": math.nan}],
    ids=lambda keys: next(iter(keys)),
)
def test_a_wrong_key_is_refused(keys: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        MinMaxConfig.model_validate(keys)
