"""One direction of a cell by hand: what a policy's promises stand in place of, and what scheduling by channel gains."""

from typing import Any

import numpy as np
import pytest

from edge.slices.lane import Lane, Steering
from edge.slices.scheduler import proportional_fair_gain
from tests.cells import DOWN_BPS, PRBS, UP_BPS, a_cell, a_slice

GOOD_DB = 60.0
RRM: list[dict[str, Any]] = [{"min": 50}, {"dedicated": 10, "min": 30}, {"min": 0, "max": 40}]


def a_lane(slices: list[int], rrm: list[dict[str, Any]] = RRM, sinr_db: float = GOOD_DB, **cell: Any) -> Lane:
    made = [a_slice(name, sst + 1, {"rrm": ratio}) for sst, (name, ratio) in enumerate(zip("abc", rrm, strict=False))]
    num = len(slices)
    lane = Lane(a_cell(*made, **cell), "up", np.array(slices, np.intp), np.full(num, np.inf), np.zeros(num, np.bool_))
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
    lane = Lane(cell, "up", slices, np.full(3, np.inf), np.array([False, True, False]))
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


def test_what_others_hold_against_a_policy() -> None:
    lane = a_lane([0, 0, 1, 2])
    percent = PRBS / 100
    # From user 1 on are others: in a somebody is steered, in b and c they are alone with the slice's minimum.
    assert lane.held(1, np.array([True, False, False])) == pytest.approx([0.0, 30 * percent, 0.0])
    assert lane.held(1, np.array([False, False, False])) == pytest.approx([50 * percent, 30 * percent, 0.0])
    assert lane.held(4, np.array([True, True, True])).tolist() == [0.0] * 3
    few = a_lane([0, 1], sinr_db=-1.0)
    assert few.most_prbs[0] < 30 * percent
    assert few.held(1, np.array([True, False, False])) == pytest.approx([0.0, few.most_prbs[1], 0.0])


def test_alone_each_has_what_its_slice_and_its_power_allow() -> None:
    assert a_lane([0, 1, 2]).alone_bps() == pytest.approx([PRBS * UP_BPS, PRBS * UP_BPS, 0.4 * PRBS * UP_BPS], rel=1e-9)
    cell = a_cell(a_slice("a", 1, down={"ue_ambr_bps": 7e6}), a_slice("b", 2, terminal={"bandwidth_mhz": 20}))
    down = Lane(cell, "down", np.array([0, 1, 1], np.intp), np.array([np.inf, np.inf, 1e6]), np.zeros(3, np.bool_))
    down.hear(np.full(3, GOOD_DB), np.arange(3))
    assert down.alone_bps() == pytest.approx([7e6, 51 * DOWN_BPS, 1e6], rel=1e-9)


def test_scheduling_by_channel_gains_what_its_table_says() -> None:
    for num, gain in ((1, 1.0), (2, 1.26), (5, 1.47), (10, 1.54)):
        plain, fair = a_lane([0] * num, [{}], 8.0), a_lane([0] * num, [{}], 8.0, scheduler="proportional_fair")
        everyone = np.ones(num, np.bool_)
        assert fair.share(everyone)[0].tolist() == plain.share(everyone)[0].tolist()
        assert fair.share(everyone)[1] == pytest.approx(gain * plain.share(everyone)[1], rel=1e-12)
    # Those of another slice are no reason to be choosy.
    apart = a_lane([0, 1, 1], [{"min": 50}, {"min": 50}], 8.0, scheduler="proportional_fair")
    alike = a_lane([0, 1, 1], [{"min": 50}, {"min": 50}], 8.0)
    ratio = apart.share(np.ones(3, np.bool_))[1] / alike.share(np.ones(3, np.bool_))[1]
    assert ratio == pytest.approx([1.0, 1.26, 1.26], rel=1e-12)
    limited = a_cell(a_slice("a", 1, {"ue_ambr_bps": 3e5}), scheduler="proportional_fair")
    lane = Lane(limited, "up", np.zeros(2, np.intp), np.full(2, np.inf), np.zeros(2, np.bool_))
    lane.hear(np.array([8.0, 20.0]), np.arange(2))
    assert lane.share(np.ones(2, np.bool_))[1] == pytest.approx([3e5, 3e5], rel=1e-9)
    assert float(proportional_fair_gain(2, 8.0)) == 1.26
