"""The formulas of loss and speed."""

import math
from typing import Any

import numpy as np
import pytest

from fedslice.core.records import NodeReport
from server.selection import LossAndSpeedConfig


def seen(node: int, **known: Any) -> NodeReport:
    return NodeReport(**{"node": node, "num_examples": 1, "loss": 1.0, "round_s": 1.0, "last_round": 5, "num_rounds": 1, **known})


def best(nodes: list[NodeReport], k: int = 1, **settings: Any) -> list[int]:
    policy = LossAndSpeedConfig(**{"exploration": 0.0, **settings}).build()
    policy.observe(5, [])
    return policy.select(nodes, k, np.random.default_rng(0))


def test_the_higher_loss_wins() -> None:
    assert best([seen(0, loss=0.5), seen(1, loss=0.6), seen(2, loss=0.1)], 2) == [0, 1]


def test_the_slower_node_loses_and_those_faster_than_usual_gain_nothing() -> None:
    nodes = [seen(0, round_s=4.0), seen(1, round_s=1.0), seen(2, round_s=1.0), seen(3, round_s=0.001, loss=0.99)]
    assert best(nodes, 2) == [1, 2]
    assert best(nodes, 3) == [1, 2, 3]


@pytest.mark.parametrize("penalty", [0.5, 1.0, 2.0])
def test_the_penalty_is_the_ratio_to_the_usual_time_to_its_power(penalty: float) -> None:
    bonus = math.sqrt(0.1 * math.log(6) / 6)  # round 5, all last seen in it
    even = (1 + bonus) / 2**penalty - bonus  # at half the usual speed a loss of 1 is worth as much as this
    for loss, winner in ((1.01 * even, 1), (0.99 * even, 0)):
        nodes = [seen(0, loss=1.0, round_s=2.0), seen(1, loss=loss), seen(2, loss=0.0)]
        assert best(nodes, slowness_penalty=penalty) == [winner]


def test_no_penalty_no_matter_how_slow() -> None:
    assert best([seen(0, round_s=1e6), seen(1, loss=0.9), seen(2, loss=0.8)], slowness_penalty=0.0) == [0]


def test_the_long_unseen_gain() -> None:
    assert best([seen(0), seen(1, last_round=1), seen(2)]) == [1]
    assert best([seen(0, loss=0.9, last_round=0), seen(1)]) == [0]


def test_a_time_that_nobody_knows_is_slower_than_the_slowest() -> None:
    nodes = [seen(0, round_s=None), seen(1, round_s=1.0), seen(2, round_s=1.0), seen(3, round_s=8.0)]
    assert best(nodes, 3) == [1, 2, 3]
    assert best([seen(0, round_s=None, loss=0.9), seen(1, round_s=None)]) == [1]


def test_the_never_seen_are_explored_first() -> None:
    nodes = [seen(i) for i in range(8)] + [seen(i, num_rounds=0, loss=None) for i in range(8, 11)]
    policy = LossAndSpeedConfig(exploration=0.4).build()
    for seed in range(20):
        cohort = policy.select(nodes, 5, np.random.default_rng(seed))
        assert len(set(cohort) & {8, 9, 10}) == 2
    assert best([seen(0, num_rounds=0), seen(1, num_rounds=0)], 2) == [0, 1]  # nobody was seen: all are explored


def test_if_all_losses_are_odd_speed_and_age_still_decide() -> None:
    nodes = [seen(0, loss=None, last_round=5), seen(1, loss=None, last_round=2), seen(2, loss=math.nan, last_round=4)]
    assert best(nodes) == [1]


@pytest.mark.parametrize("exploration", [0.0, 0.2, 0.5, 1.0])
def test_the_share_explored_is_rounded_up(exploration: float) -> None:
    nodes = [seen(i, loss=float(i < 5)) for i in range(300)]
    cohort = best(nodes, 5, exploration=exploration)
    assert len([n for n in cohort if n < 5]) == 5 - math.ceil(5 * exploration)
