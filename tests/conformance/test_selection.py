"""Every policy of the union keeps the contract of `server.selection.policy.Policy`."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslice.core.records import NodeId, NodeReport
from fedslice.core.seeds import rng
from server.selection import Policy, SelectionConfig

CONFIGS: list[Any] = list(get_args(get_args(SelectionConfig)[0]))
every_policy = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_fields["policy"].default)

ODD = [math.nan, math.inf, -math.inf, None, -1.0, -1e300, 1e300, 1.7e308]
numbers = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 5e-324, *ODD]))


@st.composite
def fleets(draw: st.DrawFn, most: int = 300) -> list[NodeReport]:
    """Nodes with odd ids, some offline, with reports from sane to absurd."""
    count = draw(st.integers(0, most))
    source = np.random.default_rng(draw(st.integers(0, 2**32)))
    losses, times = draw(st.lists(numbers, min_size=1, max_size=8)), draw(st.lists(numbers, min_size=1, max_size=8))
    sane = draw(st.booleans())
    ids = source.choice(10_000, count, replace=False)
    return [
        NodeReport(
            node=int(node),
            num_examples=int(source.integers(1, 1000)),
            online=bool(source.random() < 0.8),
            loss=float(source.random()) if sane else losses[int(source.integers(len(losses)))],
            round_s=float(source.random()) if sane else times[int(source.integers(len(times)))],
            last_round=int(source.integers(0, 20)),
            num_rounds=int(source.integers(0, 3)),
        )
        for node in ids
    ]


def trained(nodes: Sequence[NodeReport], cohort: Sequence[NodeId], number: int) -> list[NodeReport]:
    """The reports after a round."""
    return [replace(n, last_round=number, num_rounds=n.num_rounds + 1) if n.node in cohort else n for n in nodes]


def cohort_of(policy: Policy, nodes: Sequence[NodeReport], k: int, number: int = 1, seed: int = 0) -> list[NodeId]:
    return policy.select(nodes, k, rng(seed, "select", number))


@every_policy
@settings(max_examples=60, deadline=None)
@given(fleets(), st.data())
def test_exactly_k_of_those_online_once_and_sorted(config: Any, nodes: list[NodeReport], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(nodes) + 5))
    there = {n.node for n in nodes if n.online}
    policy = config().build()
    for number in (1, 2, 3):
        cohort = cohort_of(policy, nodes, k, number)
        assert len(cohort) == min(k, len(there))
        assert set(cohort) <= there
        assert cohort == sorted(set(cohort))
        assert all(type(node) is int for node in cohort)
        nodes = trained(nodes, cohort, number)
        policy.observe(number, [n for n in nodes if n.node in cohort])


@every_policy
@settings(max_examples=30, deadline=None)
@given(fleets(60), st.integers(0, 20), st.integers(0, 2**31))
def test_seed_and_history_alone_decide(config: Any, nodes: list[NodeReport], k: int, seed: int) -> None:
    def history(nodes: list[NodeReport], reorder: bool) -> tuple[Policy, list[list[NodeId]], list[NodeReport]]:
        policy, cohorts = config().build(), []
        for number in range(1, 5):
            given_nodes = list(reversed(nodes)) if reorder else nodes
            cohorts.append(cohort_of(policy, given_nodes, k, number, seed))
            nodes = trained(nodes, cohorts[-1], number)
            policy.observe(number, [n for n in nodes if n.node in cohorts[-1]])
        return policy, cohorts, nodes

    policy, cohorts, after = history(nodes, reorder=False)
    assert history(nodes, reorder=False)[1] == cohorts
    assert history(nodes, reorder=True)[1] == cohorts
    # Ids only name nodes: others in the same order make no difference.
    renamed = [replace(n, node=3 * n.node + 7) for n in nodes]
    assert history(renamed, reorder=False)[1] == [[3 * node + 7 for node in cohort] for cohort in cohorts]
    restored = config().build()
    restored.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    assert cohort_of(restored, after, k, 5, seed) == cohort_of(policy, after, k, 5, seed)
    assert restored.state() == policy.state()


@every_policy
def test_another_seed_and_another_round_choose_otherwise(config: Any) -> None:
    nodes = [NodeReport(node=i, num_examples=1) for i in range(100)]
    policy = config().build()
    chosen = [cohort_of(policy, nodes, 10, number, seed) for number, seed in ((1, 0), (2, 0), (1, 1))]
    assert len({tuple(cohort) for cohort in chosen}) == 3


@every_policy
def test_a_node_named_twice_is_one_node(config: Any) -> None:
    nodes = [NodeReport(node=i % 5, num_examples=1) for i in range(15)]
    assert cohort_of(config().build(), nodes, 8) == [0, 1, 2, 3, 4]


@every_policy
def test_the_config_names_its_cohort_and_refuses_none(config: Any) -> None:
    assert config().cohort == 5
    with pytest.raises(ValueError, match="cohort"):
        config(cohort=0)


@every_policy
@pytest.mark.parametrize("online_share", [1.0, 0.6])
def test_nobody_who_is_there_starves(config: Any, online_share: float) -> None:
    """Within `bound` rounds every node online is chosen, but for a chance of one in a million."""
    count, k = 30, 5
    policy = config().build()
    explored = math.ceil(getattr(config(), "exploration", 1.0) * k)
    bound = math.ceil(math.log(1e-6 / count) / math.log(1 - explored / count))
    source = np.random.default_rng(0)
    nodes = [
        NodeReport(node=i, num_examples=1, online=bool(i < online_share * count), loss=float(source.random()), round_s=1.0 + i)
        for i in range(count)
    ]
    last_seen = {n.node: 0 for n in nodes if n.online}
    for number in range(1, 2 * bound):
        cohort = cohort_of(policy, nodes, k, number)
        last_seen |= dict.fromkeys(cohort, number)
        assert min(last_seen.values()) >= number - bound, number
        nodes = trained(nodes, cohort, number)
        policy.observe(number, [n for n in nodes if n.node in cohort])


@pytest.mark.parametrize("config", [c for c in CONFIGS if "exploration" in c.model_fields])
@pytest.mark.parametrize("name", ["loss", "round_s"])
@pytest.mark.parametrize("value", ODD, ids=str)
def test_an_odd_report_never_wins_over_a_sane_one(config: Any, name: str, value: float | None) -> None:
    """Half of the nodes are sane, slow and dull, the others claim something odd."""
    policy = config(exploration=0.0).build()
    policy.observe(9, [])
    sane = [
        NodeReport(node=i, num_examples=1, loss=0.1, round_s=9.0 + 0.001 * i, last_round=9, num_rounds=3) for i in range(5, 10)
    ]
    odd = [replace(n, node=n.node - 5, **{name: value}) for n in sane]  # type: ignore[arg-type]
    assert cohort_of(policy, [*odd, *sane], 5, 10) == [5, 6, 7, 8, 9]
