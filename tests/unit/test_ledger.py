"""Who answered, who was refused, and what they report together."""

import math

import numpy as np
import pytest

from edge.simulation import Phase, Timing
from fedslice.core.records import Rejection, Update
from server.ledger import NO_REPLY, Ledger, slice_use, weighted_metrics


def update(node: int, weight: float = 1.0, **metrics: float) -> Update:
    return Update(node=node, arrays={"w": np.ones(1000)}, weight=weight, metrics=metrics)


def test_everyone_of_the_cohort_is_accounted_for_once() -> None:
    ledger = Ledger([5, 1, 3, 2])
    ledger.accept(update(3), 0.5)
    ledger.reject(2, "shape")
    assert [ledger.seen(n) for n in (1, 2, 3)] == [False, True, True]
    ledger.accept(update(1), 0.25)
    ledger.close()
    assert [(a.update.node, a.norm) for a in ledger.accepted()] == [(1, 0.25), (3, 0.5)]
    assert ledger.replied == [3, 1]
    assert ledger.rejected == [Rejection(node=2, reason="shape"), Rejection(node=5, reason=NO_REPLY)]


def test_arrays_are_not_kept() -> None:
    ledger = Ledger([0])
    given = update(0, loss=1.0)
    ledger.accept(given, 0.0)
    assert ledger.accepted()[0].update.arrays == {}
    assert ledger.accepted()[0].update.metrics == {"loss": 1.0}
    assert list(given.arrays) == ["w"]


def test_metrics_are_weighted_and_do_not_depend_on_order() -> None:
    rng = np.random.default_rng(0)
    updates = [update(i, float(rng.uniform(1, 100)), loss=float(rng.normal())) for i in range(20)]
    found = []
    for order in (range(20), rng.permutation(20)):
        ledger = Ledger(range(20))
        for i in order:
            ledger.accept(updates[i], 0.0)
        found.append(ledger.metrics())
    assert found[0] == found[1]
    weights, losses = [u.weight for u in updates], [u.metrics["loss"] for u in updates]
    assert found[0]["loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-13)


@pytest.mark.parametrize(
    ("terms", "means"),
    [
        ([], {}),
        ([(1, {"a": 2.0}), (3, {"a": 6.0})], {"a": 5.0}),
        ([(1, {"a": 2.0}), (3, {"b": 6.0})], {"a": 2.0, "b": 6.0}),
        ([(1, {"a": 2.0}), (3, {"a": math.nan}), (5, {"a": math.inf})], {"a": 2.0}),
        ([(1, {"a": math.nan})], {"a": math.nan}),
        ([(0, {"a": 7.0}), (-1, {"a": 8.0}), (math.nan, {"a": 9.0}), (math.inf, {"a": 9.0}), (2, {"a": 1.0})], {"a": 1.0}),
        ([(1e9, {"a": 1e308}), (1e9, {"a": -1e308}), (1, {"a": 1.7e308}), (1, {"a": 3.0})], {"a": 3.0}),
        ([(1e9, {"a": 1e299}), (1e9, {"a": 1e299})], {"a": 1e299}),
    ],
    ids=range(8),
)
def test_senseless_numbers_are_left_out_of_means(terms: list[tuple[float, dict[str, float]]], means: dict[str, float]) -> None:
    found = weighted_metrics(terms)
    assert found == pytest.approx(means, rel=1e-12, nan_ok=True)


def test_slices_add_up_what_their_nodes_carried() -> None:
    timings = {
        4: Timing(download_s=1.0, compute_s=9.0, upload_s=2.0, bytes_down=10, bytes_up=5),
        1: Timing(download_s=0.5, upload_s=0.25, bytes_down=10, bytes_up=6),
        2: Timing(download_s=3.0, bytes_down=10, late=True),
    }
    use = slice_use(Phase(timings=timings), lambda node: "urllc" if node == 2 else "embb")
    assert use == {
        "embb": {"nodes": 2, "bytes_down": 20, "bytes_up": 11, "busy_s": 3.75},
        "urllc": {"nodes": 1, "bytes_down": 10, "bytes_up": 0, "busy_s": 3.0},
    }
    assert list(use) == ["embb", "urllc"]
    assert slice_use(Phase(), lambda _: "") == {}
