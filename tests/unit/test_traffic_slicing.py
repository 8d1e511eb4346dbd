"""An exchange whose uplink somebody steers: what is granted is what the nodes get, and when it is asked for."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edge.slices import Grant, Traffic, Uplink
from edge.slices.traffic import _COARSENESS
from fedslice.core.federation import FederationConfig
from server.slicing import MinMaxConfig, bound_s
from tests.cells import (
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
    demand,
    interrupt,
    network,
)

SECOND = round(PRBS * UP_BPS / 8)  # bytes that a node sends in one if it is alone
GREEDY = {"slice": "embb", "up_bps": math.inf}


class Stub:
    """Grants what a function says, and remembers what it was asked."""

    def __init__(self, says: Callable[[Uplink, Grant | None], Grant], period_s: float = 0.5) -> None:
        self.period_s, self._says = period_s, says
        self.asked: list[tuple[Uplink, Grant | None, Grant]] = []

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        assert len(self.asked) < 100
        found = self._says(uplink, before)
        self.asked.append((uplink, before, found))
        return found

    @property
    def moments(self) -> list[float]:
        return [uplink.now_s for uplink, _, _ in self.asked]


def percents(floors: Any, ceilings: Any = math.inf, limit: str = "") -> Callable[[Uplink, Grant | None], Grant]:
    """Always the same floors and ceilings, in percent of the cell."""

    def says(uplink: Uplink, before: Grant | None) -> Grant:
        columns = [np.broadcast_to(np.asarray(part, np.float64) * PRBS / 100, len(uplink.nodes)) for part in (floors, ceilings)]
        return before or Grant(floor_prbs=columns[0], ceiling_prbs=columns[1], limit=limit)

    return says


def sent_s(traffic: Traffic) -> Any:
    """When the last bit of each was sent, counted from the first moment at which an upload can begin."""
    ends = traffic.download_s + traffic.compute_s + traffic.upload_s - UP_S - DOWN_S
    return pytest.approx(ends.tolist(), abs=NEAR_S)


def test_floors_come_first_and_the_rest_is_shared_alike() -> None:
    pair = network(a_cell(), ("embb", "embb"))
    # 60 and 20 percent promised, 10 more each: 70 and 30.
    traffic = pair.carry([demand(0, 0, 0, 7 * SECOND), demand(1, 0, 0, 3 * SECOND)], 0.0, Stub(percents([60, 20])))
    assert sent_s(traffic) == [10.0, 10.0]
    # Promises of more than there is are cut alike: 90 and 60 become 60 and 40.
    traffic = pair.carry([demand(0, 0, 0, 6 * SECOND), demand(1, 0, 0, 4 * SECOND)], 0.0, Stub(percents([90, 60])))
    assert sent_s(traffic) == [10.0, 10.0]
    # Who is not sending leaves the promise to those that are.
    traffic = pair.carry([demand(0, 0, 5.0, SECOND), demand(1, 0, 0, 3 * SECOND)], 0.0, Stub(percents([95, 5])))
    assert sent_s(traffic) == [6.0, 3.0]


def test_ceilings_hold_though_radio_is_left() -> None:
    pair = network(a_cell(), ("embb", "embb"))
    traffic = pair.carry([demand(0, 0, 0, SECOND), demand(1, 0, 0, 9 * SECOND)], 0.0, Stub(percents(0, [10, math.inf])))
    assert sent_s(traffic) == [10.0, 10.0]
    alone = pair.carry([demand(0, 0, 0, SECOND)], 0.0, Stub(percents(0, 25)))
    assert sent_s(alone) == [4.0]


def test_a_promise_goes_beyond_the_slices_minimum_and_over_its_neighbours_surplus() -> None:
    cell = a_cell(a_slice("a", 1, {"rrm": {"min": 10}}), a_slice("b", 2, {"rrm": {"min": 10, "max": 80}}))
    pair = network(cell, ("a", "b"))
    # Without grants: 50 to 50. With floors of 70 and 20 the last 10 are shared by weight: 75 and 25.
    plain = pair.carry([demand(0, 0, 0, SECOND), demand(1, 0, 0, SECOND)], 0.0)
    assert sent_s(plain) == [2.0, 2.0]
    traffic = pair.carry([demand(0, 0, 0, 3 * SECOND), demand(1, 0, 0, SECOND)], 0.0, Stub(percents([70, 20])))
    assert sent_s(traffic) == [4.0, 4.0]
    # The maximum of a slice is above every promise.
    capped = pair.carry([demand(0, 0, 0, SECOND), demand(1, 0, 0, 4 * SECOND)], 0.0, Stub(percents([0, 100])))
    assert sent_s(capped) == [5.0, 5.0]


def test_others_keep_their_minimum_where_nobody_is_steered() -> None:
    cell = a_cell(a_slice("fl", 1, {"rrm": {"min": 20}}), a_slice("embb", 2, {"rrm": {"min": 60}}), background=[GREEDY])
    node = network(cell, ("fl",))
    stub = Stub(percents(90))
    traffic = node.carry([demand(0, 0, 0, SECOND)], 0.0, stub)
    assert sent_s(traffic) == [2.5]  # the promise of 90 goes as far as the other's 60
    assert stub.asked[0][0].held == pytest.approx([0.0, 60 * PRBS / 100])
    # The steered slice has what is promised in place of its own minimum: of its 20 only 5, and half of what is left.
    modest = node.carry([demand(0, 0, 0, SECOND)], 0.0, Stub(percents(5)))
    assert sent_s(modest) == [1 / (0.05 + 0.35 / 2)]


# Of a minimum of 40 percent each of two heads has 20. Who promises 100 beside them is cut as they are.
@pytest.mark.parametrize(
    ("least", "promised", "kept", "has"), [(40, 80, 0.2, 0.8), (40, 100, 0.2, 100 / 120), (0, 80, 0.0, 0.9), (0, 100, 0.0, 1.0)]
)
def test_others_keep_their_part_of_the_slice_that_is_steered(least: int, promised: int, kept: float, has: float) -> None:
    cell = a_cell(a_slice("embb", 1, {"rrm": {"min": least}}), background=[GREEDY])
    stub = Stub(percents(promised))
    traffic = network(cell).carry([demand(0, 0, 0, SECOND)], 0.0, stub)
    assert sent_s(traffic) == [1 / has]
    assert stub.asked[0][0].held == pytest.approx([kept * PRBS])
    # Before the transfer it had the whole cell.
    assert traffic.use["up"].background_bits == pytest.approx(PRBS * UP_BPS * (DOWN_S + (1 - has) / has), rel=1e-4)


def test_who_comes_back_has_its_part_again_under_a_grant_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, [(FOREVER_S, 2 * FOREVER_S)], [(0.0, DOWN_S + 0.5)])
    cell = a_cell(a_slice("embb", 1, {"rrm": {"min": 80}}), background=[GREEDY])
    stub = Stub(percents(60))
    traffic = network(cell).carry([demand(0, 0, 0, SECOND)], 0.0, stub)
    assert traffic.grants == 1
    assert [uplink.held[0] for uplink, _, _ in stub.asked] == pytest.approx([0.0, 0.4 * PRBS, 0.4 * PRBS])
    assert sent_s(traffic) == [0.5 + 0.5 / 0.6]


def test_grants_come_more_rarely_in_a_long_exchange() -> None:
    stub = Stub(lambda uplink, _before: percents(0)(uplink, None), period_s=0.4)
    traffic = network(a_cell()).carry([demand(0, 0, 0, 40 * SECOND)], 0.0, stub)
    moments = [DOWN_S]
    while moments[-1] + (step_s := max(0.4, _COARSENESS * moments[-1])) < DOWN_S + 40.0:
        moments.append(moments[-1] + step_s)
    assert stub.moments == pytest.approx(moments, abs=NEAR_S)
    assert stub.moments[-1] - stub.moments[-2] > 0.7
    assert (traffic.grants, len(traffic.use["up"].prbs)) == (len(moments), len(moments) + 1)  # no event is for nothing


@pytest.mark.parametrize(("seed", "reached"), [(0, True), (2, True), (3, True), (4, True), (6, False), (5, False)])
def test_a_fade_is_no_limit(seed: int, reached: bool) -> None:
    """So weak is the channel that it bears no MCS now and then: in the median it does, and a policy goes by that."""
    net = network(a_cell(dynamics={**STILL, "fading_db": 4.0}, receive_gain_db=-72.0), ("embb",) * 4, seed=seed)
    asks = [demand(n, 0, 0.3 * n, 300_000) for n in range(4)]
    traffic = net.carry(asks, 0.0, MinMaxConfig().build(FederationConfig()))
    table = net.config.link(net.config.slices[0], "up").table
    sent = [n for n in range(4) if n not in net.out_of_reach]
    last_s = (traffic.download_s + traffic.compute_s + traffic.upload_s)[sent].max()
    channel_db = np.array([net.terminals.sinr_db(at_s, np.array(sent))[1] for at_s in np.arange(0.0, last_s, 0.25)])
    assert (channel_db < table.lowest_sinr_db).any()
    assert (net.out_of_reach == []) == math.isfinite(bound_s(traffic.start)) == reached
    assert (traffic.limits == []) == reached
    assert traffic.grants > 0


def test_grants_come_each_period_while_somebody_can_send() -> None:
    pair = network(a_cell(), ("embb", "embb"))
    stub = Stub(lambda _uplink, _before: percents(0)(_uplink, None), period_s=0.4)
    traffic = pair.carry([demand(0, 0, 0, SECOND), demand(1, 0, 5.0, SECOND)], 0.0, stub)
    first = DOWN_S + np.arange(3) * 0.4
    assert stub.moments == pytest.approx([*first, *(DOWN_S + 5.0 + np.arange(3) * 0.4)], abs=NEAR_S)
    assert traffic.grants == 6
    before = [before for _, before, _ in stub.asked]
    assert before[0] is None
    assert all(one is found for one, (_, _, found) in zip(before[1:], stub.asked, strict=False))


def test_a_grant_that_stays_is_not_counted_anew_and_limits_are_told_once() -> None:
    node = network(a_cell())
    stays = Stub(percents(0, limit="embb: too little"))
    traffic = node.carry([demand(0, 0, 0, 3 * SECOND - 1000)], 0.0, stays)
    assert len(stays.asked) == 6
    assert (traffic.grants, traffic.limits) == (1, ["embb: too little"])
    words = iter(["x", "", "y", "x", "y", ""])
    changes = Stub(lambda uplink, _: percents(0, limit=next(words))(uplink, None))
    traffic = node.carry([demand(0, 0, 0, 3 * SECOND - 1000)], 0.0, changes)
    assert (traffic.grants, traffic.limits) == (6, ["x", "y"])
    assert node.carry([demand(0, 10**6, 1.0, SECOND)], 0.0).grants == 0


def test_what_a_policy_sees_is_what_is_left() -> None:
    pair = network(a_cell(), ("embb", "embb"))
    stub = Stub(percents(0), period_s=0.9)
    pair.carry([demand(0, 0, 0, 2 * SECOND), demand(1, 10**6, 2.5, SECOND)], 0.0, stub)
    left = [(uplink.bits / 8 / SECOND).tolist() for uplink, _, _ in stub.asked]
    loads_s = alone_down_s(10**6)
    # The first is through at 2.0 s, and the period of the last question is over at 2.7 s: the second has sent since 2.5 s.
    assert left == [pytest.approx(one, abs=1e-6) for one in ([2.0, 1.0], [1.1, 1.0], [0.2, 1.0], [0.0, 0.8 + loads_s])]
    first, later = stub.asked[0][0], stub.asked[3][0]
    assert first.release_s == pytest.approx([DOWN_S, loads_s + DOWN_S + 2.5], abs=NEAR_S)
    assert later.release_s == pytest.approx(first.release_s, abs=NEAR_S)
    assert later.now_s == pytest.approx(DOWN_S + 2.7, abs=NEAR_S)
    assert (first.nodes, first.names, first.delay_s.tolist()) == ((0, 1), ("embb",), pytest.approx([UP_S, UP_S], abs=NEAR_S))
    assert first.rate_bps(first.most_prbs) == pytest.approx([PRBS * UP_BPS] * 2, rel=1e-9)


def test_nobody_is_asked_for_the_sake_of_a_node_that_is_not_heard() -> None:
    deaf = a_cell(a_slice("embb", 1), a_slice("deaf", 2, terminal={"power_dbm": -200.0}))
    stub = Stub(percents(0))
    traffic = network(deaf, ("embb", "deaf")).carry([demand(0, 0, 0, SECOND // 4 * 3), demand(1, 0, 0, SECOND)], 0.0, stub)
    assert stub.moments == pytest.approx([DOWN_S, DOWN_S + 0.5], abs=NEAR_S)
    assert traffic.upload_s == pytest.approx([0.75 + UP_S, math.inf], abs=NEAR_S)


def test_nobody_is_asked_while_every_sender_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, [(0.5 + DOWN_S, 100.0 + DOWN_S)], [(0.1 + DOWN_S, 10 * 86_400.0)])
    stub = Stub(percents(0))
    traffic = network(a_cell(), ("embb", "embb")).carry([demand(0, 0, 0, 3 * SECOND), demand(1, 0, 0, SECOND)], 0.0, stub)
    # Half of 0.1 s, then alone: 0.45 s are sent when the link goes, 2.55 s are left when it comes back; the other never does.
    assert traffic.upload_s == pytest.approx([102.55 + UP_S, math.inf], abs=NEAR_S)
    back_s = DOWN_S + 100.0
    assert stub.moments == pytest.approx([DOWN_S, back_s, back_s * (1 + _COARSENESS)], abs=NEAR_S)
