"""Every draw names its place."""

import numpy as np

from fedslice.core.seeds import derived_seed, rng


def test_the_same_place_gives_the_same_stream_and_nothing_else_matters() -> None:
    first = rng(7, "train", 3, 1).random(5)
    np.random.default_rng().random(100)
    rng(7, "train", 3, 2).random(100)
    np.testing.assert_array_equal(rng(7, "train", 3, 1).random(5), first)


def test_every_part_of_a_place_counts() -> None:
    places: list[tuple[str | int, ...]] = [
        (), ("a",), ("b",), ("a", 1), ("a", "1"), (1, "a"), ("a", 11), ("a", 1, 1), ("a1",), ("a", ""), ("str=a",),
    ]  # fmt: skip
    seeds = [derived_seed(7, *place) for place in places] + [derived_seed(71, "a")]
    assert len(set(seeds)) == len(places) + 1


def test_derived_seeds_fit_63_bits_and_never_change() -> None:
    seeds = [derived_seed(0, "node", i) for i in range(2000)]
    assert len(set(seeds)) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
    # Of a release: runs of the same seed must repeat across releases and machines.
    assert derived_seed(7, "select", 1) == 1901030365758304834
    assert rng(7, "select", 1).integers(1000) == 989


def test_streams_of_neighbours_are_not_alike() -> None:
    draws = np.array([rng(0, "node", i).standard_normal(200) for i in range(50)])
    correlations = np.corrcoef(draws) - np.eye(50)
    assert np.abs(correlations).max() < 0.35
    assert abs(draws.mean()) < 0.03
