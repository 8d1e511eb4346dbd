"""Partitions are disjoint, complete and never empty, whatever the labels."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from client.partition import ByGroupConfig, DirichletConfig, IidConfig, Ints, PartitionConfig, partition
from fedslice.core.errors import UsageError
from fedslice.core.seeds import rng

CONFIGS = [IidConfig(), DirichletConfig(alpha=0.01), DirichletConfig(alpha=0.5), DirichletConfig(alpha=1e5), ByGroupConfig()]


def deal(config: PartitionConfig, labels: Ints, num_nodes: int, seed: int = 0, groups: Ints | None = None) -> list[Ints]:
    return partition(config, labels, labels if groups is None else groups, num_nodes, rng(seed, "partition"))


def assert_is_partition(parts: list[Ints], num_examples: int, num_nodes: int) -> None:
    assert len(parts) == num_nodes
    assert all(len(part) and part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(num_examples))


@given(
    config=st.sampled_from([IidConfig(), DirichletConfig(alpha=1e-9), DirichletConfig(alpha=0.1), DirichletConfig(alpha=50.0)]),
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_any_labels_give_a_partition(config: PartitionConfig, labels: list[int], seed: int, data: st.DataObject) -> None:
    num_nodes = data.draw(st.integers(1, len(labels)))
    parts = deal(config, np.array(labels), num_nodes, seed)
    assert_is_partition(parts, len(labels), num_nodes)


@given(groups=st.lists(st.integers(-3, 9), min_size=1, max_size=80), data=st.data())
def test_groups_stay_whole(groups: list[int], data: st.DataObject) -> None:
    num_nodes = data.draw(st.integers(1, len(set(groups))))
    held = np.array(groups)
    parts = deal(ByGroupConfig(), np.zeros(len(held), np.int64), num_nodes, groups=held)
    assert_is_partition(parts, len(held), num_nodes)
    homes = [set(held[part].tolist()) for part in parts]
    assert sum(len(home) for home in homes) == len(set(groups))


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_same_rng_same_partition(config: PartitionConfig) -> None:
    labels = rng(0, "labels").integers(0, 40, 500)
    for one, two in zip(deal(config, labels, 20, 7), deal(config, labels, 20, 7), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("config", CONFIGS[:3], ids=repr)
def test_another_rng_another_partition(config: PartitionConfig) -> None:
    labels = rng(0, "labels").integers(0, 40, 500)
    assert any(not np.array_equal(a, b) for a, b in zip(deal(config, labels, 5, 1), deal(config, labels, 5, 2), strict=True))


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_large_data_sets_are_dealt_fast(config: PartitionConfig) -> None:
    labels, groups = rng(0, "labels").integers(0, 22, 50_000), rng(0, "groups").integers(0, 5000, 50_000)
    start = time.process_time()
    parts = deal(config, labels, 2000, groups=groups)
    assert time.process_time() - start < 0.5
    assert_is_partition(parts, 50_000, 2000)


def test_a_tiny_alpha_with_many_nodes_terminates() -> None:
    labels = np.repeat(np.arange(10), 100)
    assert_is_partition(deal(DirichletConfig(alpha=0.01), labels, 100), 1000, 100)


def test_iid_shares_are_equal() -> None:
    sizes = [len(part) for part in deal(IidConfig(), np.zeros(103, np.int64), 10)]
    assert sorted(sizes) == [10] * 7 + [11] * 3


def test_alpha_sets_how_alike_nodes_are() -> None:
    labels = np.repeat(np.arange(5), 2000)

    def unlikeness(alpha: float) -> float:
        parts = deal(DirichletConfig(alpha=alpha), labels, 10)
        shares = np.array([np.bincount(labels[part], minlength=5) / len(part) for part in parts])
        return float(np.abs(shares - 0.2).sum(axis=1).mean())

    assert unlikeness(1e5) < 0.05 < unlikeness(1.0) < unlikeness(0.05)


def test_dirichlet_deals_each_label_in_its_own_proportions() -> None:
    # The expected share of a node is 1 / nodes, for each label; over many draws the mean must come near.
    labels = np.repeat(np.arange(2), 500)
    parts = [deal(DirichletConfig(alpha=2.0), labels, 4, seed) for seed in range(200)]
    first = [(labels[part[0]] == 0).sum() / 500 for part in parts]
    second = [(labels[part[0]] == 1).sum() / 500 for part in parts]
    assert np.mean(first) == pytest.approx(0.25, abs=0.04)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.3


def test_groups_are_balanced_by_size() -> None:
    groups = np.repeat(np.arange(6), [60, 50, 40, 30, 20, 10])
    sizes = [len(part) for part in deal(ByGroupConfig(), groups, 3)]
    assert sizes == [70, 70, 70]


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_more_nodes_than_examples_is_refused(config: PartitionConfig) -> None:
    with pytest.raises(UsageError, match=r"3 examples cannot be dealt to 4 nodes"):
        deal(config, np.arange(3), 4)


def test_more_nodes_than_groups_is_refused() -> None:
    with pytest.raises(UsageError, match=r"2 groups to 3 nodes"):
        deal(ByGroupConfig(), np.array([0, 0, 1, 1]), 3)


def test_no_nodes_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one node"):
        deal(IidConfig(), np.arange(3), 0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_is_positive_and_finite(alpha: float) -> None:
    with pytest.raises(ValidationError, match="alpha"):
        DirichletConfig(alpha=alpha)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_the_scheme_is_the_tag(config: PartitionConfig) -> None:
    adapter: TypeAdapter[PartitionConfig] = TypeAdapter(PartitionConfig)
    assert adapter.validate_python(config.model_dump()) == config
