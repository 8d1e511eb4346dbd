"""Terminals: where they stand and go, how well they are heard, and when their links are there."""

import math
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from edge.slices.channel import Dynamics, Interruptions
from edge.slices.profile import Profile
from edge.slices.terminals import Spot, Terminals
from tests.cells import HOUR_S, STILL, a_cell, a_slice

RING: dict[str, Any] = {"kind": "InF-SL", "nearest_m": 20.0, "farthest_m": 120.0, "gnb_height_m": 1.5}
PLAIN = Spot(slice=0)


def hall(dynamics: dict[str, Any] = STILL, place: dict[str, Any] = RING, **cell: Any) -> Profile:
    return a_cell(dynamics=dynamics, place=place, **cell)


def crowd(num: int, profile: Profile, seed: int = 0, **spot: Any) -> tuple[Terminals, Any]:
    return Terminals(profile, [Spot(slice=0, **spot)] * num, seed), np.arange(num)


def test_every_spot_of_the_floor_is_as_likely() -> None:
    terminals, who = crowd(50_000, hall())
    along = terminals.distance_m(0.0, who)
    assert (along.min(), along.max()) == pytest.approx((20.0, 120.0), abs=0.1)
    for within_m in (40.0, 70.0, 100.0):
        share = (within_m**2 - 20.0**2) / (120.0**2 - 20.0**2)
        assert (along < within_m).mean() == pytest.approx(share, abs=0.01)
    assert terminals.distance_m(1e6, who).tolist() == along.tolist()


def test_a_distance_that_is_given_is_kept_and_moves_nobody_else() -> None:
    spots = [PLAIN, Spot(slice=0, distance_m=33.0), PLAIN]
    given, drawn = Terminals(hall(), spots, 4), Terminals(hall(), [PLAIN] * 3, 4)
    who = np.arange(3)
    assert given.distance_m(0.0, who)[1] == 33.0
    assert given.distance_m(0.0, who)[[0, 2]].tolist() == drawn.distance_m(0.0, who)[[0, 2]].tolist()
    assert given.distance_m(0.0, np.array([2, 1])).tolist() == given.distance_m(0.0, who)[[2, 1]].tolist()


def test_who_moves_goes_to_and_fro() -> None:
    spots = [Spot(slice=0, distance_m=90.0, speed_m_s=2.0), Spot(slice=0, distance_m=50.0)]
    terminals, who = Terminals(hall(), spots, 0), np.arange(2)
    # 30 m on to the far end at 15 s, 100 m back at 65 s, and there again at 100 s.
    moments = {0.0: 90.0, 10.0: 110.0, 15.0: 120.0, 20.0: 110.0, 65.0: 20.0, 70.0: 30.0, 100.0: 90.0, 1015.0: 120.0}
    for at_s, along in moments.items():
        assert terminals.distance_m(at_s, who) == pytest.approx([along, 50.0])
    assert terminals.changes
    assert not Terminals(hall(), spots[1:], 0).changes
    assert Terminals(hall({**STILL, "fading_db": 0.1}), spots[1:], 0).changes


def shadows_db(terminals: Terminals, at_s: float, who: Any, profile: Profile) -> Any:
    """What is left of the path loss when the median of those in line of sight is taken off, in standard deviations."""
    place, along = profile.cell.place, terminals.distance_m(at_s, who)
    return (terminals.path_loss_db(at_s, who) - place.path_loss_db(along, True, 3.7)) / 4.3


def test_shadows_belong_to_the_way_and_not_to_time() -> None:
    # In a hall that is seen throughout there is one spread: 4.3 dB.
    profile = hall({**STILL, "decorrelation_m": 10.0}, {**RING, "clutter_density": 1e-12})
    terminals, who = crowd(20_000, profile, speed_m_s=2.0)
    here = shadows_db(terminals, 100.0, who, profile)
    assert (here.mean(), here.std()) == pytest.approx((0.0, 1.0), abs=0.03)
    for seconds in (1.0, 5.0, 10.0):
        there = shadows_db(terminals, 100.0 + seconds, who, profile)
        assert (here * there).mean() == pytest.approx(math.exp(-2.0 * seconds / 10.0), abs=0.03)
    still, who = crowd(500, profile)
    assert still.path_loss_db(0.0, who).tolist() == still.path_loss_db(1e5, who).tolist()


def test_the_antenna_is_seen_as_often_as_the_table_says() -> None:
    profile = hall()
    for along in (25.0, 60.0, 110.0):
        terminals, who = crowd(40_000, profile, distance_m=along)
        seen = terminals.sees(terminals.distance_m(0.0, who), np.zeros(len(who)), who)
        assert seen.mean() == pytest.approx(math.exp(along * math.log(0.7) / 10.0), abs=0.01)


def test_sight_stays_for_a_way_of_half_the_clutters_size() -> None:
    profile = hall()
    # Nodes that go by 0.1 m, and others by 50 m: of those some have lost or found the antenna, of these hardly any.
    terminals, who = crowd(20_000, profile, distance_m=30.0)
    along = np.full(len(who), 30.0)
    before = terminals.sees(along, np.zeros(len(who)), who)
    near, far = (terminals.sees(along, np.full(len(who), way), who) for way in (0.1, 50.0))
    p = math.exp(30.0 * math.log(0.7) / 10.0)
    assert (before != far).mean() == pytest.approx(2 * p * (1 - p), abs=0.015)
    assert (before != near).mean() == pytest.approx(math.acos(math.exp(-0.1 / 5.0)) / math.pi, abs=0.02)


def test_the_link_budget_by_hand() -> None:
    """44 dBm over 106 PRBs down, 23 dBm up; noise of -118.44 dBm in a PRB and 9 or 5 dB of the receiver's own."""
    table: dict[str, Any] = {"noise_rise_db": 3.0, "receive_gain_db": 8.0}
    terminals, who = crowd(5, hall(**table), distance_m=50.0)
    loss_db = terminals.path_loss_db(0.0, who)
    down_db, up_db = terminals.sinr_db(0.0, who)
    noise_dbm = -174.0 + 10 * math.log10(360e3)
    assert down_db == pytest.approx(44.0 - 10 * math.log10(106) - loss_db - noise_dbm - 9.0 - 3.0, abs=1e-9)
    assert up_db == pytest.approx(23.0 + 8.0 - loss_db - noise_dbm - 5.0 - 3.0, abs=1e-9)
    weak = a_cell(a_slice("embb", 1, terminal={"power_dbm": 20.0, "noise_figure_db": 12.0}), place=RING, **table)
    other_down_db, other_up_db = Terminals(weak, [Spot(slice=0, distance_m=50.0)] * 5, 0).sinr_db(0.0, who)
    assert down_db - other_down_db == pytest.approx([3.0] * 5)
    assert up_db - other_up_db == pytest.approx([3.0] * 5)


def test_a_median_hall_by_hand() -> None:
    """Without line of sight 100 m away: 95.364 dB in the median, and 12 dB more behind a machine."""
    blocked = {**RING, "clutter_density": 0.39, "clutter_size_m": 0.5, "obstructed_share": 0.5, "obstruction_db": 12.0}
    terminals, who = crowd(40_000, hall(place=blocked), distance_m=100.0)
    loss_db = terminals.path_loss_db(0.0, who)
    assert loss_db.mean() == pytest.approx(95.364 + 6.0, abs=0.15)
    assert loss_db.std() == pytest.approx(math.hypot(5.7, 6.0), abs=0.1)


def test_fading_is_the_same_both_ways_and_moves_around_the_median() -> None:
    profile = hall({**STILL, "fading_db": 3.0, "coherence_s": 0.5})
    terminals, who = crowd(20_000, profile, distance_m=50.0)
    median_db, up_median_db = terminals.sinr_db(9.0, who, faded=False)
    offsets = []
    for at_s in (9.0, 9.5):
        down_db, up_db = terminals.sinr_db(at_s, who)
        offsets.append(down_db - median_db)
        assert up_db - up_median_db == pytest.approx(offsets[-1], abs=1e-9)
    assert (offsets[0].mean(), offsets[0].std()) == pytest.approx((0.0, 3.0), abs=0.06)
    assert (offsets[0] * offsets[1]).mean() / 9.0 == pytest.approx(math.exp(-1.0), abs=0.03)
    assert terminals.step_s == 0.25
    moving = Terminals(profile, [PLAIN, Spot(slice=0, speed_m_s=1.0)], 0)
    assert moving.spread_db(np.arange(2)) == pytest.approx([3.0, math.hypot(3.0, 5.7)])


def test_the_channel_belongs_to_the_seed_and_asking_changes_nothing() -> None:
    profile = hall({"fading_db": 3.0})
    spots = [Spot(slice=0, speed_m_s=float(n % 2)) for n in range(6)]
    one, again, other = (Terminals(profile, spots, seed) for seed in (1, 1, 2))
    who, moments = np.arange(6), [0.0, 3.0, 1e5]
    forward = [one.sinr_db(at_s, who)[0].tolist() for at_s in moments]
    assert [again.sinr_db(at_s, who)[0].tolist() for at_s in reversed(moments)] == forward[::-1]
    assert one.sinr_db(3.0, np.array([4]))[1][0] == again.sinr_db(3.0, who)[1][4]
    assert other.sinr_db(0.0, who)[0].tolist() != forward[0]


def test_links_are_up_for_their_share_of_time() -> None:
    kind = Interruptions(mean_up_s=20.0, median_down_s=2.0, log_sigma=0.5)
    profile = hall({**STILL, "outage": kind.model_dump()})
    terminals, who = crowd(400, profile)
    there = terminals.availability(300)
    ups = [there.at(at_s, who)[0].mean() for at_s in np.arange(200.0, 5000.0, 11.0)]
    assert np.mean(ups) == pytest.approx(20.0 / (20.0 + 2.0 * math.exp(0.125)), abs=0.005)


BUSY: dict[str, Any] = {**STILL, "outage": {"mean_up_s": 20.0}, "handover": {"mean_up_s": 9.0}}


@pytest.mark.parametrize("begin_s", [0.0, 2.9 * HOUR_S, 1000.9 * HOUR_S])
def test_the_next_change_is_where_the_link_changes_and_not_before(begin_s: float) -> None:
    """Only at the turn of an hour it may be told for nothing."""
    terminals, who = crowd(30, hall({**STILL, "outage": {"mean_up_s": 20.0}}), speed_m_s=1.0)
    there = terminals.availability(20)
    up, change_s = there.at(begin_s, who)
    last_s = begin_s + 0.2 * HOUR_S
    while (change_s < last_s).any():
        before, _ = there.at(np.nextafter(change_s, 0.0), who)
        after, following_s = there.at(change_s, who)
        assert (before == up).all()
        assert ((after != up) | (change_s % HOUR_S == 0.0)).all()
        assert (following_s > change_s).all()
        up, change_s = after, following_s


def test_every_hour_begins_with_all_links_up_and_is_drawn_by_itself() -> None:
    terminals, who = crowd(2000, hall({**STILL, "outage": {"mean_up_s": 600.0, "median_down_s": 300.0, "log_sigma": 0.0}}))
    there = terminals.availability(1500)
    inside = [there.at(hour * HOUR_S + 1700.0, who)[0] for hour in range(4)]
    for hour in range(1, 4):
        assert there.at(hour * HOUR_S, who)[0].all()
        assert not there.at(np.nextafter(hour * HOUR_S, 0.0), who)[0].all()
    # Up for 600 s and down for 300 s by turns: two thirds are up long after an hour began, and none knows of another.
    assert [up.mean() for up in inside] == pytest.approx([2 / 3] * 4, abs=0.04)
    for earlier, later in pairwise(inside):
        assert (earlier & later).mean() == pytest.approx(4 / 9, abs=0.04)
    assert (inside[0][:500] & inside[0][1500:]).mean() == pytest.approx(4 / 9, abs=0.07)  # nor do others copy the nodes


def test_who_asks_far_ahead_or_in_another_order_is_told_the_same() -> None:
    terminals, who = crowd(10, hall(BUSY), speed_m_s=1.0)
    moments = np.arange(0.0, 4 * HOUR_S, 97.0)
    near, far = terminals.availability(10), terminals.availability(10)
    assert far.at(1e8, who)[1].min() > 1e8
    forward = [[part.tolist() for part in near.at(at_s, who)] for at_s in moments]
    back = [[part.tolist() for part in far.at(at_s, who)] for at_s in moments[::-1]]
    assert back[::-1] == forward
    mixed = np.random.default_rng(0).permutation(len(moments))
    assert [[part.tolist() for part in near.at(moments[at], who)] for at in mixed] == [forward[at] for at in mixed]
    # Each at its own moment, in as many hours.
    every = np.linspace(0, len(moments) - 1, 10).astype(int)
    up, change_s = near.at(moments[every], who)
    assert up.tolist() == [forward[at][0][n] for n, at in enumerate(every)]
    assert change_s.tolist() == [forward[at][1][n] for n, at in enumerate(every)]
    assert far.at(50.0, np.array([3]))[1].tolist() == near.at(50.0, who)[1][[3]].tolist()


def test_long_runs_take_no_more_memory() -> None:
    terminals, who = crowd(50, hall(BUSY), speed_m_s=1.0)
    there = terminals.availability(50)
    tracemalloc.start()
    used = []
    for hours in (range(5), range(5, 60)):
        for hour in hours:
            there.at(hour * HOUR_S + 9.0, who)
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert used[0] > 50_000  # some hours are kept
    assert used[1] < 1.5 * used[0]


def test_others_change_nothing_for_the_nodes() -> None:
    profile = hall({**BUSY, "fading_db": 3.0}, {**RING, "obstructed_share": 0.5, "obstruction_db": 12.0})
    spots = [Spot(slice=0, speed_m_s=float(n % 2)) for n in range(5)]
    alone, beside = Terminals(profile, spots, 3), Terminals(profile, [*spots, *[PLAIN] * 7], 3)
    who = np.arange(5)
    mine, theirs = alone.availability(5), beside.availability(5)
    for at_s in (0.0, 33.3, 1.7 * HOUR_S, 500.2 * HOUR_S):
        for here, there in zip(alone.sinr_db(at_s, who), beside.sinr_db(at_s, who), strict=True):
            assert here.tolist() == there.tolist()
        for now, then in zip(mine.at(at_s, who), theirs.at(at_s, who), strict=True):
            assert now.tolist() == then.tolist()
    # With the others told apart from the nodes, and not as more of the same.
    assert theirs.at(0.0, np.arange(12))[1][5:].tolist() != beside.availability(12).at(0.0, np.arange(12))[1][5:].tolist()


def test_handovers_are_for_those_that_move() -> None:
    often = {**STILL, "handover": {"mean_up_s": 5.0, "median_down_s": 0.05, "log_sigma": 0.0}}
    terminals = Terminals(hall(often), [PLAIN, Spot(slice=0, speed_m_s=1.0)], 0)
    there, who = terminals.availability(2), np.arange(2)
    up, change_s = there.at(0.0, who)
    assert change_s[0] == HOUR_S
    down, back_s = there.at(change_s[1], who)
    assert (up.tolist(), down.tolist()) == ([True, True], [True, False])
    assert back_s[1] - change_s[1] == pytest.approx(0.05)
    assert Dynamics().handover.median_down_s == 0.05
