"""What a cell offers: messages by closed forms, rows of the survey, and the yardstick of a 5G testbed."""

import math
from typing import Any

import numpy as np
import pytest

from edge.slices import Demand, Network, NetworkConfig, NodeProfile, survey
from edge.slices.latency import Repeats, last_blocks_s
from edge.slices.messages import MESSAGE_BYTES, message_latency, transfer_delay_s

FACTORY = NetworkConfig.model_validate({})
EMBB, URLLC, MMTC = FACTORY.slices
NEAR = np.full(3, 60.0)  # dB: every MCS is within reach
ETHERNET_BPS = 941e6  # of TCP over gigabit Ethernet


def nodes(*slices: str) -> list[NodeProfile]:
    return [NodeProfile(name=name, slice=name, distance_m=20.0) for name in slices]


def network(*slices: str, **tables: Any) -> Network:
    return Network(NetworkConfig.model_validate(tables), nodes(*slices), 0)


def test_a_message_waits_for_what_others_offer_and_not_for_what_takes_the_rest() -> None:
    idle, _ = message_latency(FACTORY, EMBB, "up", [], NEAR)
    assert idle.queue_s == 0.0
    assert idle.link_s == pytest.approx(0.0105 + 4.5e-3 * (0.1 + 0.01 + 0.001), rel=0.02)  # and RLC's 1e-4 of 75 ms
    greedy, _ = message_latency(FACTORY, EMBB, "up", [math.inf] * 5, NEAR)
    assert greedy == idle
    # 40 % of 106 PRBs; two who offer 5 Mbit/s each; M/D/1: half the load over what is left of it, in services.
    each = float(FACTORY.link(EMBB, "up").rate_bps(42.4 / 2, 60.0))
    load = 10e6 / (2 * each)
    loaded, _ = message_latency(FACTORY, EMBB, "up", [5e6, 5e6], NEAR)
    assert loaded.queue_s == pytest.approx(load / (2 * (1 - load)) * 8 * MESSAGE_BYTES / (2 * each), rel=1e-9)


def test_a_slice_that_is_offered_more_than_it_carries_keeps_no_budget() -> None:
    latency, late = message_latency(FACTORY, MMTC, "up", [5e6] * 3, np.full(3, 0.0))
    assert (latency.queue_s, late) == (math.inf, 1.0)
    unheard, missed = message_latency(FACTORY, URLLC, "up", [1e6], np.full(3, -40.0))
    assert (unheard.queue_s, missed) == (math.inf, 1.0)


def test_an_empty_slice_has_its_idle_delay() -> None:
    latency, late = message_latency(FACTORY, URLLC, "up", [], np.zeros(0))
    assert latency.idle_s == 0.003
    assert latency.total_s < 0.0031
    assert late < URLLC.qos.error_rate


def test_the_end_of_a_transfer_comes_by_its_last_blocks() -> None:
    block_s = 0.5e-3 / 0.23
    late_s = last_blocks_s(Repeats(bler=0.1), num_blocks=1000, block_s=block_s)
    assert transfer_delay_s(FACTORY, EMBB, "up") == pytest.approx(0.0105 + late_s, rel=1e-12)
    assert 0.9e-3 < late_s < 1.2e-3
    assert transfer_delay_s(FACTORY, URLLC, "up") == pytest.approx(0.003, abs=1e-6)  # of 1e-5 errors


def test_rows_are_of_slices_and_terminals() -> None:
    found = survey(network("embb", "mmtc", "embb", background=[{"slice": "mmtc", "num_users": 2, "up_bps": 1e5}]))
    assert (found["cell"]["prbs"], found["cell"]["place"]) == (106, "InF-SL")
    assert [(row["name"], row["nodes"], row["background"]) for row in found["slices"]] == [
        ("embb", 2, 0), ("urllc", 0, 0), ("mmtc", 1, 2),
    ]  # fmt: skip
    assert [row["admission"]["num_ues"] for row in found["slices"]] == [2, 0, 3]
    assert [row["slice"] for row in found["nodes"]] == ["embb", "mmtc", "embb"]
    assert [row["node"] for row in found["background"]] == [3, 4]
    one = found["nodes"][1]
    assert (one["distance_m"], one["alone_down_bps"], one["alone_up_bps"]) == (20.0, pytest.approx(5e6), pytest.approx(2e6))


def test_alone_is_at_least_what_is_left_with_all_others() -> None:
    found = survey(network(*["embb"] * 30, *["mmtc"] * 10))
    for row in found["nodes"]:
        assert row["together_up_bps"] <= row["alone_up_bps"] * (1 + 1e-9)
        assert row["together_down_bps"] <= row["alone_down_bps"] * (1 + 1e-9)
    assert sum(row["together_up_bps"] for row in found["nodes"]) < 42e6  # the carrier's peak


@pytest.mark.parametrize("num", [1, 3])
def test_uploads_over_the_testbed_take_33_times_as_long_as_over_ethernet(num: int) -> None:
    cell = Network(NetworkConfig.model_validate({"profile": "testbed-33"}), [NodeProfile(name="pi", slice="embb")] * num, 0)
    size = 5_000_000  # SqueezeNet
    traffic = cell.carry([Demand(node=i, bytes_down=size, compute_s=1.0, bytes_up=size) for i in range(num)], 0.0)
    ratio = traffic.upload_s / (8 * size / ETHERNET_BPS)
    assert ratio == pytest.approx([33.3] * num, rel=0.02)


def test_nobody_is_outside_the_place_of_the_cell() -> None:
    far = [NodeProfile(name="mast", slice="embb", distance_m=251.0)]
    with pytest.raises(ValueError, match=r"nodes.profiles: mast has distance_m = 251; the cell's place is 10 to 250 m"):
        Network(FACTORY, far, 0)
    near = {"background": [{"slice": "embb", "up_bps": 1e6, "distance_m": 9.0}]}
    with pytest.raises(ValueError, match=r"network.background: embb has distance_m = 9; "):
        Network(NetworkConfig.model_validate(near), nodes("embb"), 0)


def test_a_profile_that_changes_nothing_is_refused() -> None:
    written_out = FACTORY.model_dump()
    assert NetworkConfig.model_validate(written_out) == FACTORY
    with pytest.raises(ValueError, match="profile = 'rural-20' has no effect: cell and slices are all written out"):
        NetworkConfig.model_validate({**written_out, "profile": "rural-20"})
