"""An exchange over a cell against closed forms: who shares with whom, and from when until when."""

import math
from typing import Any

import numpy as np
import pytest

from edge.slices import Network, NodeProfile, Traffic
from edge.slices.profile import Direction
from edge.slices.terminals import Terminals
from edge.slices.traffic import _COARSENESS
from tests.cells import (
    DOWN_BPS,
    DOWN_S,
    FOREVER_S,
    NEAR_S,
    PRBS,
    STILL,
    UP_BPS,
    UP_S,
    a_cell,
    a_slice,
    alone_down_s,
    alone_up_s,
    demand,
    interrupt,
    network,
)

MB = 10**6
SECOND = round(PRBS * UP_BPS / 8)  # bytes that a node sends in one if it is alone


def total_s(traffic: Traffic) -> list[float]:
    found: list[float] = (traffic.download_s + traffic.compute_s + traffic.upload_s).tolist()
    return found


def upload_ends(traffic: Traffic) -> Any:
    """When the last bit was sent, without the link's delay."""
    return pytest.approx([end - UP_S for end in total_s(traffic)], abs=NEAR_S)


def test_one_node_loads_computes_and_sends() -> None:
    traffic = network(a_cell()).carry([demand(0, 30 * MB, 2.5, 7 * MB)], 0.0)
    assert traffic.nodes == (0,)
    assert traffic.download_s == pytest.approx([alone_down_s(30 * MB) + DOWN_S], abs=NEAR_S)
    assert traffic.compute_s == pytest.approx([2.5], rel=1e-12)
    assert traffic.upload_s == pytest.approx([alone_up_s(7 * MB) + UP_S], abs=NEAR_S)


def test_two_downloads_and_two_uploads_share_and_the_ways_do_not_meet() -> None:
    pair = network(a_cell(), ("embb", "embb"))
    # The small one ends at twice its time alone; the large one when both are through.
    traffic = pair.carry([demand(0, 10 * MB), demand(1, 40 * MB)], 0.0)
    assert traffic.download_s == pytest.approx([2 * alone_down_s(10 * MB) + DOWN_S, alone_down_s(50 * MB) + DOWN_S], abs=NEAR_S)
    # One loads while the other sends: each has its direction for itself.
    apart = pair.carry([demand(0, 100 * MB), demand(1, 0, 0.0, 2 * MB)], 0.0)
    assert apart.download_s[0] == pytest.approx(alone_down_s(100 * MB) + DOWN_S, abs=NEAR_S)
    assert apart.upload_s[1] == pytest.approx(alone_up_s(2 * MB) + UP_S, abs=NEAR_S)
    assert alone_down_s(100 * MB) > DOWN_S  # so that they did overlap


def test_uploads_that_begin_one_after_the_other_share_from_then_on() -> None:
    pair = network(a_cell(), ("embb", "embb"))
    # 3 s of work from 0 and 1 s from 1 s on: at 1 s there are 2 s left, the other ends at 3 s, the first at 4 s.
    traffic = pair.carry([demand(0, 0, 0.0, 3 * SECOND), demand(1, 0, 1.0, SECOND)], 0.0)
    assert upload_ends(traffic) == [DOWN_S + 4.0, DOWN_S + 3.0]
    trio = network(a_cell(), ("embb",) * 3)
    # 2 s each from 0, 1 and 2 s: 1 s and 2 s left at 1 s; 0.5, 1.5 and 2 s left at 2 s; then thirds until 3.5 s, ...
    traffic = trio.carry([demand(n, 0, float(n), 2 * SECOND) for n in range(3)], 0.0)
    assert upload_ends(traffic) == [DOWN_S + at for at in (3.5, 5.5, 6.0)]


def test_slices_share_by_their_ratios_and_borrow_what_is_idle() -> None:
    cell = a_cell(a_slice("a", 1, {"rrm": {"min": 75}}), a_slice("b", 2, {"rrm": {"min": 25, "max": 50}}))
    # b has a quarter until a is through: a's 3 s take 4 s, by then b has 1 s of its 2 s; the rest goes at its maximum.
    traffic = network(cell, ("a", "b")).carry([demand(0, 0, 0.0, 3 * SECOND), demand(1, 0, 0.0, 2 * SECOND)], 0.0)
    assert upload_ends(traffic) == [DOWN_S + 4.0, DOWN_S + 4.0 + 1.0 / 0.5]


def test_rate_limits_bind_and_leave_the_rest_to_others() -> None:
    cell = a_cell(a_slice("slow", 1, {"ue_ambr_bps": 2e6}), a_slice("fast", 2))
    traffic = network(cell, ("slow", "fast")).carry([demand(0, 0, 0.0, MB), demand(1, 0, 0.0, 10 * MB)], 0.0)
    assert 80e6 / (PRBS * UP_BPS - 2e6) < 4.0  # so the fast one is through first
    assert upload_ends(traffic) == [DOWN_S + 4.0, DOWN_S + 80e6 / (PRBS * UP_BPS - 2e6)]


def test_an_outage_in_a_transfer_and_what_the_other_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, [(1.0 + DOWN_S, 3.5 + DOWN_S)], [(50.0, 60.0)])
    alone = network(a_cell(), ("embb", "embb")).carry([demand(0, 0, 0.0, 4 * SECOND)], 0.0)
    assert upload_ends(alone) == [DOWN_S + 6.5]
    both = network(a_cell(), ("embb", "embb")).carry([demand(0, 0, 0.0, SECOND), demand(1, 0, 0.0, 2 * SECOND)], 0.0)
    # Until 1 s halves; the other alone until its 1.5 s more are sent; then the first has half a second left at 3.5 s.
    assert upload_ends(both) == [DOWN_S + 4.0, DOWN_S + 2.5]
    later = network(a_cell(), ("embb", "embb")).carry([demand(1, 0, 0.0, SECOND)], 49.5)
    assert upload_ends(later) == [DOWN_S + 11.0]  # of which it waited for ten
    down = network(a_cell(), ("embb", "embb")).carry([demand(0, 10 * MB)], 2.0)
    assert down.download_s == pytest.approx([1.5 + DOWN_S + alone_down_s(10 * MB) + DOWN_S], abs=NEAR_S)


def test_no_bytes_take_the_delay_alone() -> None:
    assert total_s(network(a_cell()).carry([demand(0)], 0.0)) == pytest.approx([DOWN_S + UP_S], abs=NEAR_S)
    assert network(a_cell()).carry([], 0.0).nodes == ()


@pytest.mark.parametrize("gone", ["link", "channel"])
def test_a_node_that_is_never_reached_is_lost_and_costs_little(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gone == "link":
        interrupt(monkeypatch, [(0.0, FOREVER_S / 2)], [(1.0, 2.0)])
        pair = network(a_cell(), ("embb", "embb"))
    else:
        far = {"kind": "InF-SL", "nearest_m": 10.0, "farthest_m": 600.0, "gnb_height_m": 1.5}
        often = {**STILL, "outage": {"mean_up_s": 300.0}}
        slices = [a_slice("embb", 1), a_slice("deaf", 2, terminal={"power_dbm": -200.0})]
        background = [{"slice": "embb", "num_users": 20, "up_bps": 1e3}]
        pair = network(a_cell(*slices, place=far, dynamics=often, background=background), ("deaf", "embb"), distance_m=20.0)
    traffic = pair.carry([demand(0, 0, 0.0, MB), demand(1, 0, 0.0, MB)], 0.0)
    assert traffic.upload_s[0] == math.inf
    assert total_s(traffic)[0] == math.inf
    assert total_s(traffic)[1] < 10.0
    assert len(traffic.use["up"].prbs) < 3000
    assert math.isnan(traffic.sinr_db["up"][0]) == (gone == "link")


@pytest.mark.parametrize(("background", "factor"), [({"up_bps": math.inf}, 2.0), ({"up_bps": math.inf, "num_users": 3}, 4.0)])
def test_greedy_background_slows_by_its_number(background: dict[str, Any], factor: float) -> None:
    busy = network(a_cell(background=[{"slice": "embb", **background}])).carry([demand(0, MB, 0.0, MB)], 0.0)
    assert busy.upload_s == pytest.approx([factor * alone_up_s(MB) + UP_S], abs=NEAR_S)
    assert busy.download_s == pytest.approx([alone_down_s(MB) + DOWN_S], abs=NEAR_S)  # they load nothing


def test_users_are_served_by_their_weight() -> None:
    # A node of weight 1 beside others of 3 and 0.5: it has 2 of 9 parts while it sends; down it is alone.
    others = [{"slice": "embb", "up_bps": math.inf, "weight": weight} for weight in (3.0, 0.5)]
    busy = network(a_cell(background=others)).carry([demand(0, MB, 0.0, MB)], 0.0)
    assert busy.upload_s == pytest.approx([4.5 * alone_up_s(MB) + UP_S], abs=NEAR_S)
    assert busy.download_s == pytest.approx([alone_down_s(MB) + DOWN_S], abs=NEAR_S)
    # Of two nodes the heavier has three quarters: 3 s of work take 4 s, and then the other sends its 2 s more.
    nodes = [NodeProfile(name="n", slice="embb", weight=weight) for weight in (0.5, 1.5)]
    traffic = Network(a_cell(), nodes, 0).carry([demand(0, 0, 0.0, 3 * SECOND), demand(1, 0, 0.0, 3 * SECOND)], 0.0)
    assert upload_ends(traffic) == [DOWN_S + 6.0, DOWN_S + 4.0]


def test_background_that_offers_little_takes_that_alone() -> None:
    offered = [{"slice": "embb", "num_users": 2, "up_bps": 5e6, "down_bps": 20e6}]
    busy = network(a_cell(background=offered)).carry([demand(0, MB, 0.0, MB)], 0.0)
    assert busy.upload_s == pytest.approx([8e6 / (PRBS * UP_BPS - 10e6) + UP_S], abs=NEAR_S)
    assert busy.download_s == pytest.approx([8e6 / (PRBS * DOWN_BPS - 40e6) + DOWN_S], abs=NEAR_S)
    assert busy.use["up"].background_bits == pytest.approx(10e6 * (total_s(busy)[0] - UP_S), rel=1e-6)


@pytest.mark.parametrize("dynamics", [STILL, {**STILL, "fading_db": 2.0, "outage": {"mean_up_s": 3.0, "median_down_s": 0.5}}])
def test_what_is_logged_is_what_was_sent(dynamics: dict[str, Any]) -> None:
    cell = a_cell(a_slice("a", 1, {"rrm": {"min": 30}}), a_slice("b", 2, {"rrm": {"min": 5, "max": 40}}), dynamics=dynamics)
    asks = [demand(n, (n + 1) * 10 * MB, 0.3 * n, (6 - n) * MB) for n in range(6)]
    traffic = network(cell, ("a", "b") * 3).carry(asks, 0.0)
    sent: dict[Direction, tuple[float, str]] = {"down": (DOWN_BPS, "bytes_down"), "up": (UP_BPS, "bytes_up")}
    for way, (bps, size) in sent.items():
        use = traffic.use[way]
        prb_seconds = (np.array(use.prbs) * np.diff(use.until_s)[:, None]).sum(axis=0)
        by_slice = [sum(8 * getattr(ask, size) for ask in asks[index::2]) for index in (0, 1)]
        assert prb_seconds * bps == pytest.approx([*by_slice, 0.0, 0.0], rel=1e-6)
        assert use.until_s[-1] == pytest.approx(max(total_s(traffic)) - UP_S, abs=NEAR_S)


def test_the_order_of_demands_is_of_no_account() -> None:
    cell = a_cell(background=[{"slice": "embb", "num_users": 3, "up_bps": 3e6}], dynamics={})
    net = network(cell, ("embb",) * 12, seed=5)
    asks = [demand(n, (n + 1) * MB, 0.4 * (n % 5), (12 - n) * MB) for n in range(12)]
    there, back = net.carry(asks, 30.0), net.carry(asks[::-1], 30.0)
    assert back.nodes == there.nodes[::-1]
    assert total_s(back)[::-1] == pytest.approx(total_s(there), abs=NEAR_S)
    again = network(cell, ("embb",) * 12, seed=5).carry(asks, 30.0)
    assert again.upload_s.tobytes() == there.upload_s.tobytes()
    assert again.use["up"].until_s == there.use["up"].until_s


def test_the_channel_is_heard_at_half_its_coherence_and_later_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[float, bool]] = []
    real = Terminals.sinr_db

    def noted(self: Terminals, at_s: float, who: Any, *, faded: bool = True) -> Any:
        heard.append((at_s, faded))
        return real(self, at_s, who, faded=faded)

    monkeypatch.setattr(Terminals, "sinr_db", noted)
    net = network(a_cell(dynamics={**STILL, "fading_db": 1.0, "coherence_s": 0.8}))
    heard.clear()
    net.carry([demand(0, 0, 100.0)], 7.0)
    assert [at for at, faded in heard if not faded] == [7.0]  # the median of those that stand still
    moments = np.array([at for at, faded in heard if faded]) - 7.0
    steps = np.diff(moments)
    assert moments[0] == 0.0
    assert steps == pytest.approx(np.maximum(0.4, _COARSENESS * moments[:-1]), rel=1e-9)
    assert (steps[:10].max(), steps[-1]) == pytest.approx((0.4, _COARSENESS * moments[-2]))
    assert moments[-1] <= 100.1 <= moments[-1] * (1 + _COARSENESS) + 0.1
    still, moving = network(a_cell()), network(a_cell(), speed_m_s=1.0)
    heard.clear()
    still.carry([demand(0, 0, 100.0)], 7.0)
    assert heard == [(7.0, True), (7.0, False)]
    heard.clear()
    moving.carry([demand(0, 0, 100.0)], 7.0)
    assert len(heard) > 100
    assert [at for at, faded in heard if faded] == [at for at, faded in heard if not faded]


def test_a_still_channel_is_the_same_at_any_moment_and_a_moving_one_is_not() -> None:
    asks = [demand(n, MB, 0.5 * n, MB) for n in range(4)]
    still = network(a_cell(), ("embb",) * 4)
    fading = network(a_cell(dynamics={**STILL, "fading_db": 3.0}, receive_gain_db=-30.0), ("embb",) * 4)
    for moment in (1.0, 1e4, 1e6):
        assert total_s(still.carry(asks, moment)) == pytest.approx(total_s(still.carry(asks, 0.0)), abs=NEAR_S)
        assert total_s(fading.carry(asks, moment)) == total_s(fading.carry(asks, moment))
        assert total_s(fading.carry(asks, moment)) != pytest.approx(total_s(fading.carry(asks, 0.0)), rel=1e-3)


def test_the_bound_is_taken_at_the_median_and_stays_as_it_was() -> None:
    net: Network = network(a_cell(dynamics={**STILL, "fading_db": 6.0}, receive_gain_db=-68.0), ("embb",) * 3)
    traffic = net.carry([demand(n, MB, 1.0, MB) for n in range(3)], 5.0)
    who = np.arange(3)
    down_db, up_db = net.terminals.sinr_db(5.0, who, faded=False)
    assert traffic.start.sinr_db.tolist() == up_db.tolist()
    assert traffic.start.most_prbs.max() < PRBS
    assert traffic.start.most_prbs == pytest.approx(np.minimum(traffic.start.links[0].useful_prbs(up_db), PRBS))
    alone_bps = net.config.link(net.config.slices[0], "down").rate_bps(float(PRBS), down_db)
    assert traffic.start.release_s == pytest.approx(8e6 / alone_bps + DOWN_S + 1.0)
    assert traffic.start.bits.tolist() == [8e6] * 3
