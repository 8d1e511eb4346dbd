"""One direction of a cell by hand: slices before users, users by weight, and what a policy's promises stand in place of."""

from typing import Any

import numpy as np
import pytest

from edge.slices.lane import Lane, Steering
from edge.slices.scheduler import share_among_users
from tests.cells import DOWN_BPS, PRBS, UP_BPS, a_cell, a_slice

GOOD_DB = 60.0
RRM: list[dict[str, Any]] = [{"min": 50}, {"dedicated": 10, "min": 30}, {"min": 0, "max": 40}]


def a_lane(slices: list[int], sinr_db: float = GOOD_DB, weight: list[float] | None = None) -> Lane:
    made = [a_slice(name, sst + 1, {"rrm": ratio}) for sst, (name, ratio) in enumerate(zip("abc", RRM, strict=True))]
    num, pace = len(slices), np.ones(len(slices)) if weight is None else np.array(weight)
    lane = Lane(a_cell(*made), "up", np.array(slices, np.intp), np.full(num, np.inf), np.zeros(num, np.bool_), pace)
    lane.hear(np.full(num, sinr_db), np.arange(num))
    return lane


def percents(lane: Lane, active: list[bool], steering: Steering | None = None) -> Any:
    return pytest.approx((lane.share(np.array(active), steering)[0] * 100 / PRBS).tolist(), abs=1e-9)


def steer(floors: list[float], ceilings: list[float], slices: list[bool]) -> Steering:
    def prbs(values: list[float]) -> Any:
        return np.array(values) * PRBS / 100

    return Steering(floor_prbs=prbs(floors), ceiling_prbs=prbs(ceilings), slices=np.array(slices))


NO_CEILINGS = [np.inf] * 3


def test_slices_first_and_then_the_users_of_each() -> None:
    lane = a_lane([0, 0, 1, 2])
    # Minima of 50, 30 and 0; the 20 beyond are shared alike.
    third = 20 / 3
    assert percents(lane, [True] * 4) == [(50 + third) / 2, (50 + third) / 2, 30 + third, third]
    assert percents(lane, [True, False, False, False]) == [90, 0, 0, 0]  # 10 are dedicated to b, which idles
    assert percents(lane, [False, False, False, True]) == [0, 0, 0, 40]
    assert percents(lane, [False, False, True, True]) == [0, 0, 65, 35]
    assert percents(lane, [False] * 4) == [0, 0, 0, 0]
    rates = lane.share(np.array([True, False, False, False]))[1]
    assert rates == pytest.approx([0.9 * PRBS * UP_BPS, 0, 0, 0], rel=1e-9)


def test_promises_stand_in_place_of_the_minimum_where_a_policy_steers() -> None:
    lane = a_lane([0, 1, 2])
    everyone = [True] * 3
    # a is promised 5 in place of its 50, b keeps its 30; the 65 left go by thirds until c has its 40.
    assert percents(lane, everyone, steer([5, 0, 0], NO_CEILINGS, [True, False, False])) == [
        5 + 65 / 3, 30 + 65 / 3, 65 / 3,
    ]  # fmt: skip
    # What is dedicated stays, however little is promised of it.
    assert percents(lane, everyone, steer([0, 0, 0], NO_CEILINGS, [False, True, False])) == [
        50 + 40 / 3, 10 + 40 / 3, 40 / 3,
    ]  # fmt: skip
    assert percents(lane, everyone, steer([0, 0, 0], [np.inf, 0, np.inf], [False, True, False])) == [70, 0, 20]
    # A promise beyond what the unsteered minima leave goes as far as they do; of two, each is cut alike.
    assert percents(lane, everyone, steer([95, 0, 0], NO_CEILINGS, [True, False, False])) == [70, 30, 0]
    assert percents(lane, everyone, steer([90, 0, 90], NO_CEILINGS, [True, False, True])) == [
        70 * 90 / 130, 30, 70 * 40 / 130,
    ]  # fmt: skip
    # What a ceiling leaves of the cell is the others'.
    assert percents(lane, everyone, steer([0, 0, 0], [20, np.inf, np.inf], [True, False, False])) == [20, 55, 25]


def test_a_guaranteed_flow_keeps_its_rate_beside_steered_ones_of_its_slice() -> None:
    side = {"rrm": {"min": 20}, "gfbr_bps": 4e6}
    cell = a_cell(a_slice("a", 1, side, fiveqi=2), a_slice("b", 2, {"rrm": {"min": 60}}))
    slices = np.array([0, 0, 1], np.intp)
    lane = Lane(cell, "up", slices, np.full(3, np.inf), np.array([False, True, False]), np.ones(3))
    lane.hear(np.full(3, GOOD_DB), np.arange(3))
    needed = 4e6 / UP_BPS
    assert lane.floor_prbs == pytest.approx([0, needed, 0], rel=1e-6)
    assert lane.due_bps.tolist() == [4e6, 4e6, 0.0]
    steering = steer([100, 0, 0], NO_CEILINGS, [True, False])
    prbs, rate_bps = lane.share(np.ones(3, np.bool_), steering)
    # 40 percent are left by b. The guaranteed rate comes first, however much is promised beside it.
    assert prbs == pytest.approx([0.4 * PRBS - needed, needed, 0.6 * PRBS], rel=1e-6)
    modest = steer([25, 0, 0], NO_CEILINGS, [True, False])
    rate_bps = lane.share(np.ones(3, np.bool_), modest)[1]
    assert rate_bps[1] >= 4e6 * (1 - 1e-9)
    assert rate_bps[0] >= 0.25 * PRBS * UP_BPS


def test_what_others_keep_against_a_policy() -> None:
    lane, up = a_lane([0, 0, 1, 2]), np.ones(4, np.bool_)
    percent = PRBS / 100
    # Head by head a part of the slice's minimum: two share the 50 of a, one has the 30 of b, and c has none.
    assert lane.kept(0, up) == pytest.approx([25 * percent, 25 * percent, 30 * percent, 0.0])
    assert lane.kept(1, up) == pytest.approx([0.0, 25 * percent, 30 * percent, 0.0])
    assert lane.by_slice(lane.kept(1, up)) == pytest.approx([25 * percent, 30 * percent, 0.0])
    assert lane.kept(1, np.array([True, True, False, True])) == pytest.approx([0.0, 25 * percent, 0.0, 0.0])
    assert lane.kept(4, up).tolist() == [0.0] * 4
    few = a_lane([0, 1], sinr_db=-1.0)
    assert 0.0 < few.most_prbs[0] < 30 * percent
    assert few.kept(1, up[:2]) == pytest.approx([0.0, few.most_prbs[1]])


def test_who_has_a_guaranteed_rate_keeps_it_where_it_is_more_than_its_part() -> None:
    cell = a_cell(a_slice("a", 1, {"rrm": {"min": 20}, "gfbr_bps": 4e6}, fiveqi=2))
    lane = Lane(cell, "up", np.zeros(3, np.intp), np.full(3, np.inf), np.array([False, False, True]), np.ones(3))
    lane.hear(np.full(3, GOOD_DB), np.arange(3))
    part, needed = 20 / 3 * PRBS / 100, 4e6 / UP_BPS
    assert part < needed
    assert lane.kept(1, np.ones(3, np.bool_)) == pytest.approx([0.0, part, needed], rel=1e-6)


def test_users_fill_up_by_their_weight() -> None:
    most, pace = np.array([100.0, 100.0]), np.array([1.0, 3.0])
    assert share_among_users(40.0, most, [], pace) == pytest.approx([10, 30])
    assert share_among_users(40.0, np.array([100.0, 24.0]), [], pace) == pytest.approx([16, 24])
    # What is promised comes first, and only what is left of the 40 goes by weight: 28.
    assert share_among_users(40.0, most, [np.array([12.0, 0.0])], pace) == pytest.approx([19, 21])
    assert share_among_users(40.0, most, [np.array([30.0, 50.0])], pace) == pytest.approx([15, 25])
    lane, heavy = (a_lane([0, 0, 1, 2], weight=weight) for weight in ([1.0] * 4, [1.0, 3.0, 7.0, 0.5]))
    third = 20 / 3
    # Slices do not hear of it.
    assert percents(lane, [True] * 4) == [(50 + third) / 2, (50 + third) / 2, 30 + third, third]
    assert percents(heavy, [True] * 4) == [(50 + third) / 4, (50 + third) * 3 / 4, 30 + third, third]
    assert percents(heavy, [True, False, True, True]) == [50 + third, 0, 30 + third, third]


def test_alone_each_has_what_its_slice_and_its_power_allow() -> None:
    assert a_lane([0, 1, 2]).alone_bps() == pytest.approx([PRBS * UP_BPS, PRBS * UP_BPS, 0.4 * PRBS * UP_BPS], rel=1e-9)
    cell = a_cell(a_slice("a", 1, down={"ue_ambr_bps": 7e6}), a_slice("b", 2, terminal={"bandwidth_mhz": 20}))
    offered_bps = np.array([np.inf, np.inf, 1e6])
    down = Lane(cell, "down", np.array([0, 1, 1], np.intp), offered_bps, np.zeros(3, np.bool_), np.ones(3))
    down.hear(np.full(3, GOOD_DB), np.arange(3))
    assert down.alone_bps() == pytest.approx([7e6, 51 * DOWN_BPS, 1e6], rel=1e-9)
