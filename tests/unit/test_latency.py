"""What packets wait: closed forms, and simulations of blocks, transfers and queues."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.slices.latency import Latency, Repeats, last_blocks_s, late_share, one_way
from edge.slices.profile import SliceDirection, load_profile
from edge.slices.spectrum import TABLES

FACTORY = load_profile(Path(__file__).resolve().parents[2] / "configs" / "slices" / "factory-n78-40.toml")
SIDE = SliceDirection(delay_ms=3.0)
NONE = Latency(idle_s=3e-3, harq_s=0.0, rlc_s=0.0, queue_s=0.0)


def late_by(repeats: Repeats, shape: int | tuple[int, int], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Send blocks until they arrive: after each fourth failure RLC waits for a report, after any other HARQ does."""
    late, missing, attempt = np.zeros(shape), np.ones(shape, np.bool_), 0
    while missing.any():
        missing &= rng.random(shape) < repeats.bler
        attempt += 1
        late[missing] += repeats.rlc_s if attempt % 4 == 0 else repeats.harq_s
    return late


def waits_s(service_s: npt.NDArray[np.float64], arrivals_a_s: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Simulate the waits of packets in a queue (Lindley)."""
    walk = np.concatenate(([0.0], np.cumsum(service_s[:-1] - rng.exponential(1 / arrivals_a_s, len(service_s) - 1))))
    return walk - np.minimum.accumulate(walk)


def test_harq_of_a_broadband_slice_adds_half_a_millisecond() -> None:
    repeats = Repeats(bler=TABLES[1].bler_target)
    assert repeats.mean_harq_s == pytest.approx(4.5e-3 * 0.111)
    assert repeats.mean_rlc_s == pytest.approx(1e-4 / (1 - 1e-4) * (75e-3 + 4.5e-3 * 0.111))
    embb = FACTORY.slices[0]
    found = one_way(embb.up, repeats, load_bps=0.0, capacity_bps=1e6, packet_bytes=1000)
    assert found == Latency(idle_s=10.5e-3, harq_s=repeats.mean_harq_s, rlc_s=repeats.mean_rlc_s, queue_s=0.0)
    assert found.total_s == pytest.approx(11.007e-3, abs=1e-6)


def test_the_urllc_slice_keeps_its_budget() -> None:
    urllc = FACTORY.slices[1]
    repeats = Repeats(bler=TABLES[urllc.up.mcs_table].bler_target)
    packet_bytes, budget_s = urllc.qos.burst_bytes or 0, urllc.qos.delay_budget_ms / 1e3
    assert (repeats.bler, packet_bytes, budget_s) == (1e-5, 255, 0.01)
    capacity_bps = 20 * urllc.up.gfbr_bps
    found = one_way(urllc.up, repeats, load_bps=0.5 * capacity_bps, capacity_bps=capacity_bps, packet_bytes=packet_bytes)
    serialisation_s = 8 * packet_bytes / capacity_bps
    assert found.total_s == pytest.approx(3e-3 + 4.5e-8 + serialisation_s / 2, abs=1e-10)
    assert found.total_s + serialisation_s < budget_s
    left_s = budget_s - serialisation_s
    assert late_share(found, repeats, budget_s=left_s, utilisation=0.5) < urllc.qos.error_rate


@pytest.mark.parametrize("bler", [0.0, 1e-5, 0.1, 0.3, 0.5])
def test_a_block_is_late_as_simulated(bler: float) -> None:
    repeats = Repeats(bler=bler, harq_s=4e-3, rlc_s=60e-3)
    mean_s = repeats.mean_harq_s + repeats.mean_rlc_s
    drawn = late_by(repeats, 400_000, np.random.default_rng(1))
    error_s = float(drawn.std()) / math.sqrt(drawn.size)
    assert drawn.mean() == pytest.approx(mean_s, abs=4 * error_s + 1e-6)
    delay_s, later = repeats.delays()
    assert (np.diff(delay_s) > 0).all()
    assert float(np.sum(delay_s * -np.diff(later, prepend=1.0))) == pytest.approx(mean_s, abs=1e-12)
    for at_s, share in zip(delay_s[:9], later, strict=False):
        assert (drawn > at_s + 1e-9).mean() == pytest.approx(share, abs=4e-3)


def test_no_error_and_no_cost_delay_nothing() -> None:
    for repeats in (Repeats(bler=0.0), Repeats(bler=0.3, harq_s=0.0, rlc_s=0.0)):
        assert repeats.mean_harq_s == repeats.mean_rlc_s == 0.0
        assert last_blocks_s(repeats, num_blocks=100, block_s=1e-3) == 0.0
        assert late_share(NONE, repeats, budget_s=3e-3, utilisation=0.5) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize(("bler", "num_blocks", "block_s"), [(0.1, 500, 2.2e-3), (0.3, 1000, 0.5e-3), (0.5, 20, 1e-3)])
def test_the_end_of_a_transfer_in_order_is_late_as_simulated(bler: float, num_blocks: int, block_s: float) -> None:
    repeats = Repeats(bler=bler)
    sent_s = block_s * np.arange(1, num_blocks + 1)
    arrived_s = sent_s + late_by(repeats, (4000, num_blocks), np.random.default_rng(2))
    extra = arrived_s.max(axis=1) - sent_s[-1]  # in order, so the transfer is there when its last block to arrive is
    found = last_blocks_s(repeats, num_blocks=num_blocks, block_s=block_s)
    assert found == pytest.approx(extra.mean(), abs=4 * float(extra.std()) / math.sqrt(len(extra)))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0, 0.5), st.integers(1, 300), st.floats(1e-4, 0.1), st.integers(0, 10**6))
def test_more_blocks_never_end_earlier_and_soon_it_makes_no_difference(bler: float, num: int, block_s: float, more: int) -> None:
    repeats = Repeats(bler=bler)
    one, some, many = (last_blocks_s(repeats, num_blocks=n, block_s=block_s) for n in (1, num, num + more))
    assert one == pytest.approx(repeats.mean_harq_s + repeats.mean_rlc_s, abs=1e-12)
    assert one <= some + 1e-12
    assert some <= many + 1e-12
    # By then even a block that needed thirteen RLC rounds is in.
    settled = math.ceil(2.0 / block_s)
    ends = [last_blocks_s(repeats, num_blocks=settled + n, block_s=block_s) for n in (0, more)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_two_blocks_by_hand() -> None:
    # HARQ only matters up to 1e-3: the last block is late by 4 ms, or the one before it by 4 ms less the 1 ms between.
    bler = 1e-3
    found = last_blocks_s(Repeats(bler=bler, harq_s=4e-3, rlc_s=60e-3), num_blocks=2, block_s=1e-3)
    assert found == pytest.approx(bler * 4e-3 + bler * 3e-3, rel=2e-3)


def test_the_queue_holds_only_what_is_at_the_packets_priority_or_above() -> None:
    repeats = Repeats(bler=0.0)
    for load in (0.2, 0.5, 0.9):
        found = one_way(SIDE, repeats, load_bps=load * 2e6, capacity_bps=2e6, packet_bytes=250)
        assert found.queue_s == pytest.approx(load * 1e-3 / (2 * (1 - load)))  # M/D/1, 1 ms a packet
        mixed = one_way(SIDE, repeats, load_bps=load * 2e6, capacity_bps=2e6, packet_bytes=250, packet_cv=1.0)
        assert mixed.queue_s == pytest.approx(2 * found.queue_s)  # M/M/1


@pytest.mark.parametrize(("load_bps", "capacity_bps"), [(2e6, 2e6), (3e6, 2e6), (0.0, 0.0), (1.0, 0.0)])
def test_an_overloaded_slice_keeps_no_budget(load_bps: float, capacity_bps: float) -> None:
    found = one_way(SIDE, Repeats(bler=0.1), load_bps=load_bps, capacity_bps=capacity_bps, packet_bytes=100)
    assert found.total_s == found.queue_s == math.inf
    assert late_share(found, Repeats(bler=0.1), budget_s=1e9, utilisation=1.0) == 1.0


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_the_late_share_is_the_simulated_one(load: float) -> None:
    rng, num, repeats = np.random.default_rng(3), 1_000_000, Repeats(bler=0.1)
    late_s = late_by(repeats, num, rng)
    for cv, tolerance in ((1.0, 0.06), (0.0, 0.2)):
        service_s = rng.exponential(1e-3, num) if cv else np.full(num, 1e-3)
        waited_s = 3e-3 + waits_s(service_s, load / 1e-3, rng) + late_s
        latency = one_way(SIDE, repeats, load_bps=load * 1e6, capacity_bps=1e6, packet_bytes=125, packet_cv=cv)
        for budget_s in (2.9e-3, 3.0e-3, 3.5e-3, 6e-3, 10e-3):
            found = late_share(latency, repeats, budget_s=budget_s, utilisation=load)
            assert found == pytest.approx((waited_s > budget_s).mean(), rel=tolerance)


def test_far_out_equal_packets_are_late_less_often_than_said() -> None:
    rng, load = np.random.default_rng(4), 0.7
    latency = one_way(SIDE, Repeats(bler=0.0), load_bps=load * 1e6, capacity_bps=1e6, packet_bytes=125)
    waited_s = 3e-3 + waits_s(np.full(2_000_000, 1e-3), load / 1e-3, rng)
    simulated = (waited_s > 13e-3).mean()
    assert 0 < simulated < late_share(latency, Repeats(bler=0.0), budget_s=13e-3, utilisation=load) < 3 * simulated


def test_without_a_queue_a_budget_is_missed_by_retransmissions_alone() -> None:
    repeats = Repeats(bler=0.1)
    shares = [late_share(NONE, repeats, budget_s=ms / 1e3, utilisation=0.0) for ms in (2.9, 3.1, 7.6, 12.1, 16.6, 91.0)]
    assert shares == pytest.approx([1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-4], rel=1e-9)


@pytest.mark.parametrize("wrong", [{"bler": -0.1}, {"bler": 0.6}, {"bler": math.nan}, {"bler": 0.1, "rlc_s": -1.0}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"bler|rlc_s"):
        Repeats(**wrong)
    for num_blocks, block_s in ((0, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match="num_blocks"):
            last_blocks_s(Repeats(bler=0.1), num_blocks=num_blocks, block_s=block_s)
