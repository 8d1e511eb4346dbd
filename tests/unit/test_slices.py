"""The simulated radio, first form: durations that can be told by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.slices import Direction, Network, NetworkConfig, NodeProfile, NodesConfig, SliceConfig, profiles

NODES = profiles(NodesConfig(count=12), 0)
STILL = NetworkConfig(spread_db=0.0, fading_db=0.0)
DIRECTIONS: list[Direction] = ["down", "up"]


@pytest.mark.parametrize(
    ("slice_name", "down_s", "up_s"),
    [
        ("embb", 0.015 + 8 / 60, 0.015 + 8 / 15),
        ("urllc", 0.004 + 8 / 10, 0.004 + 8 / 5),
        ("mmtc", 0.060 + 8 / 1.5, 0.060 + 8 / 0.5),
    ],
)
def test_a_megabyte_over_a_channel_that_stands_still(slice_name: str, down_s: float, up_s: float) -> None:
    network = Network(STILL, [NodeProfile(name="n", slice=slice_name)], 0)
    assert network.transfer_time(0, "down", 10**6, 0.0) == pytest.approx(down_s, rel=1e-12)
    assert network.transfer_time(0, "up", 10**6, 123.0) == pytest.approx(up_s, rel=1e-12)
    assert network.slice_of(0).name == slice_name


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 11), st.sampled_from(DIRECTIONS), st.integers(0, 10**10), st.integers(0, 10**10), st.floats(0, 1e7))
def test_a_transfer_takes_latency_and_bits_over_rate(node: int, way: Direction, few: int, more: int, at_s: float) -> None:
    network = Network(NetworkConfig(), NODES, 3)
    few, more = sorted((few, more))
    rate, latency_s = network.rate_bps(node, way, at_s), network.slice_of(node).latency_ms / 1000
    assert network.transfer_time(node, way, few, at_s) == latency_s + 8 * few / rate
    assert network.transfer_time(node, way, few, at_s) <= network.transfer_time(node, way, more, at_s)
    assert network.transfer_time(node, way, 0, at_s) == latency_s


def test_places_and_fading_belong_to_the_seed() -> None:
    one, again, other = (Network(NetworkConfig(), NODES, seed) for seed in (1, 1, 2))
    times = [0.0, 4.9, 5.0, 1e6]
    rates = [[[n.rate_bps(i, way, t) for t in times] for way in DIRECTIONS for i in range(12)] for n in (one, again, other)]
    assert rates[0] == rates[1]
    assert rates[0] != rates[2]
    # Asked in another order, as another grid might, the answers are the same.
    late_first = Network(NetworkConfig(), NODES, 1)
    assert [late_first.rate_bps(11, "up", t) for t in reversed(times)] == list(reversed(rates[0][23]))


def test_fading_holds_for_the_coherence_time_and_then_changes() -> None:
    network = Network(NetworkConfig(coherence_s=5.0), NODES, 1)
    first, still, later = (network.rate_bps(0, "down", t) for t in (0.0, 4.999, 5.0))
    assert first == still != later
    assert network.rate_bps(0, "up", 0.0) / network.slice_of(0).up_bps != first / network.slice_of(0).down_bps


def test_rates_scatter_by_the_decibels_declared() -> None:
    nodes = [NodeProfile(name="n", slice="embb")] * 2000
    network = Network(NetworkConfig(spread_db=2.0, fading_db=1.5), nodes, 0)
    decibels = [10 * math.log10(network.rate_bps(i, "down", 0.0) / 60e6) for i in range(2000)]
    mean = sum(decibels) / 2000
    assert mean == pytest.approx(0.0, abs=0.2)
    assert math.sqrt(sum((d - mean) ** 2 for d in decibels) / 2000) == pytest.approx(math.hypot(2.0, 1.5), rel=0.05)


@pytest.mark.parametrize(
    ("shares", "count", "dealt"),
    [
        ([5, 2, 3], 10, [5, 2, 3]),
        ([1, 1, 1], 10, [4, 3, 3]),
        ([5, 2, 3], 1, [1, 0, 0]),
        ([0.5, 0.25, 0.25], 7, [3, 2, 2]),  # 3.5, 1.75, 1.75
        ([1e-3, 1, 1], 5, [0, 3, 2]),
        ([1, 0.6, 0.4], 3, [1, 1, 1]),  # 1.5, 0.9, 0.6
    ],
)
def test_profiles_are_dealt_by_largest_remainder(shares: list[float], count: int, dealt: list[int]) -> None:
    kinds = [NodeProfile(name=f"p{i}", slice="embb", share=share) for i, share in enumerate(shares)]
    found = [p.name for p in profiles(NodesConfig(count=count, profiles=kinds), 0)]
    assert [found.count(f"p{i}") for i in range(3)] == dealt


def test_who_is_what_belongs_to_the_seed() -> None:
    config = NodesConfig(count=50)
    assert profiles(config, 1) == profiles(config, 1)
    assert profiles(config, 1) != profiles(config, 2)
    assert sorted(p.name for p in profiles(config, 1)) == sorted(p.name for p in profiles(config, 2))


def test_slices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="no slice is called wifi; there are embb, urllc, mmtc"):
        Network(NetworkConfig(), [NodeProfile(name="n", slice="wifi")], 0)
    twice = [SliceConfig(name="a", sst=1, down_bps=1.0, up_bps=1.0, latency_ms=0.0)] * 2
    with pytest.raises(ValueError, match="the name a is used twice"):
        NetworkConfig(slices=twice)
    with pytest.raises(ValueError, match="down_bps"):
        SliceConfig(name="a", sst=1, down_bps=0.0, up_bps=1.0, latency_ms=0.0)
