"""What the log keeps of an exchange: shares that add up to what was carried, under the right names."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge.slices import Traffic, radio_fields
from edge.slices.demand import Use
from tests.cells import DOWN_BPS, DOWN_S, NEAR_S, PRBS, UP_BPS, UP_S, a_cell, a_slice, alone_up_s, demand, network

STEPS = 40
MB = 10**6
ROUNDED = 0.5e-4  # of a share


def an_exchange() -> tuple[Traffic, float]:
    """Two senders in one slice beside two others in another, and how long it took."""
    greedy = [{"slice": "b", "up_bps": math.inf}, {"slice": "b", "down_bps": 1e6}]
    cell = a_cell(a_slice("a", 1), a_slice("b", 2), a_slice("idle", 3), background=greedy)
    traffic = network(cell, ("a", "a")).carry([demand(0, 2 * MB, 0.1, 3 * MB), demand(1, MB, 0.7, MB)], 5.0)
    return traffic, float((traffic.download_s + traffic.compute_s + traffic.upload_s).max())


def test_shares_add_up_to_what_was_carried() -> None:
    traffic, duration_s = an_exchange()
    fields = radio_fields(traffic, duration_s)
    assert fields["step_s"] == pytest.approx(duration_s / STEPS)
    for way, bps, bits in (("down", DOWN_BPS, 24e6), ("up", UP_BPS, 32e6)):
        share_seconds = {name: sum(row) * fields["step_s"] for name, row in fields[way].items()}
        assert {len(row) for row in fields[way].values()} == {STEPS}
        near = ROUNDED * duration_s
        assert share_seconds["a"] == pytest.approx(bits / bps / PRBS, abs=near)
    # Both senders beside the cohort are in b; who offers 1 Mbit/s down has that until the cell falls silent.
    until_s = duration_s - UP_S
    assert sum(fields["down"]["b (background)"]) * fields["step_s"] == pytest.approx(
        1e6 / DOWN_BPS / PRBS * until_s, abs=ROUNDED * duration_s
    )
    alone_s = until_s - 32e6 / UP_BPS / PRBS
    assert sum(fields["up"]["b (background)"]) * fields["step_s"] == pytest.approx(alone_s, abs=ROUNDED * duration_s)
    assert list(fields["down"]) == list(fields["up"]) == ["a", "b (background)"]
    assert max(sum(rows) for rows in zip(*fields["up"].values(), strict=True)) <= 1.0 + 2 * ROUNDED


def test_a_round_that_closes_early_or_late_keeps_its_own_time() -> None:
    traffic, duration_s = an_exchange()
    early, late = radio_fields(traffic, 0.4 * duration_s), radio_fields(traffic, 4.0 * duration_s)
    assert late["up"]["a"][STEPS // 4 :] == [0.0] * (STEPS - STEPS // 4)
    whole = sum(radio_fields(traffic, duration_s)["up"]["a"]) * duration_s
    assert sum(late["up"]["a"]) * 4.0 * duration_s == pytest.approx(whole, abs=ROUNDED * STEPS * 5 * duration_s)
    assert 0 < sum(early["up"]["a"]) * 0.4 * duration_s < whole


def test_a_step_holds_the_mean_of_what_was_in_it() -> None:
    traffic, _ = an_exchange()
    rows = np.zeros((3, 6))
    rows[:, 0] = [PRBS, 0.0, PRBS / 2]
    by_hand = replace(traffic, use={**traffic.use, "up": Use(until_s=[0.0, 1.5, 2.0, 10.0], prbs=list(rows))})
    shares = radio_fields(by_hand, 40.0)["up"]
    assert shares == {"a": [1.0, 0.5, *[0.5] * 8, *[0.0] * 30]}
    nothing = replace(traffic, use={**traffic.use, "up": Use(until_s=[0.0, 3.0], prbs=[np.zeros(6)])})
    assert radio_fields(nothing, 40.0)["up"] == {"a": [0.0] * STEPS}


def test_each_node_has_the_mean_channel_of_its_transfers() -> None:
    net = network(a_cell(), ("embb", "embb"))
    down_db, up_db = net.terminals.sinr_db(0.0, np.arange(2))
    nodes = radio_fields(net.carry([demand(0, MB, 0.0, MB), demand(1, MB, 3.0, MB)], 0.0), 1.0)["nodes"]
    assert list(nodes) == ["0", "1"]
    for at, node in enumerate(nodes.values()):
        assert node == {"sinr_down_db": round(float(down_db[at]), 2), "sinr_up_db": round(float(up_db[at]), 2)}
    silent = net.carry([demand(1, MB, 0.0, 0)], 0.0)
    found = radio_fields(silent, 1.0)["nodes"]
    assert list(found) == ["1"]
    assert math.isnan(found["1"]["sinr_up_db"])
    assert found["1"]["sinr_down_db"] == round(float(down_db[1]), 2)


def test_users_of_guaranteed_flows_that_had_less_are_told() -> None:
    """A flow that wants 90 % of a slice of half the cell has too little while another of its slice is there."""
    flow: dict[str, Any] = {"rrm": {"min": 50, "max": 50}, "gfbr_bps": 0.9 * 0.5 * PRBS * UP_BPS}
    cell = a_cell(a_slice("gbr", 1, flow, fiveqi=2))
    traffic = network(cell, ("gbr", "gbr")).carry([demand(0, 0, 0.0, MB), demand(1, 0, 0.0, 3 * MB)], 0.0)
    fields = radio_fields(traffic, 1.0)
    together_s, due_s = traffic.upload_s[0] - UP_S, traffic.upload_s.sum() - 2 * UP_S
    assert traffic.use["up"].due_s == pytest.approx(due_s, abs=NEAR_S)
    assert 0.0 < fields["short"]["up"] == pytest.approx(traffic.use["up"].short_s / due_s)
    assert traffic.use["up"].short_s in (pytest.approx(together_s), pytest.approx(2 * together_s))
    assert "down" not in fields["short"]
    assert radio_fields(network(a_cell()).carry([demand(0, 0, 0.0, MB)], 0.0), 1.0)["short"] == {}


def test_all_of_it_is_json() -> None:
    traffic, duration_s = an_exchange()
    fields = radio_fields(traffic, duration_s)
    assert json.loads(json.dumps(fields)) == fields
    assert (fields["grants"], fields["limits"]) == (0, [])
    assert alone_up_s(MB) + DOWN_S < duration_s
