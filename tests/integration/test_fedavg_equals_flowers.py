"""Our FedAvg and Flower's, given the very same replies.

The relative error of an element is |ours - theirs| over the weighted mean of the replies' magnitudes,
sum(w |u|) / sum(w). Where replies have one sign, as those of nodes that train one model mostly have, that is
|ours - theirs| / |theirs|. Where they cancel, a mean near zero would make Flower's own rounding look large.
The error of a model is that of its worst element.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from edge.flower import to_params, to_record
from server import queries
from server.config import ServerConfig
from server.registry import Registry
from server.selection import UniformConfig
from server.strategy import Strategy
from tests.integration import tutorial
from tests.integration.support import simulation

LIMIT = 1e-6
SHAPES = {"conv": (4, 3, 3, 3), "dense": (40, 17), "bias": (17,), "scale": ()}
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
Draw = Callable[[np.random.Generator, Arrays], Arrays]


def _model(rng: np.random.Generator, dtype: str) -> Arrays:
    """Return entries of very different sizes, as layers have."""
    return {n: np.asarray(rng.standard_normal(s) * 10.0**-i).astype(dtype) for i, (n, s) in enumerate(SHAPES.items())}


def _unlike(rng: np.random.Generator, base: Arrays) -> Arrays:
    """Return a reply that has nothing in common with the others."""
    return _model(rng, str(base["bias"].dtype))


def _alike(rng: np.random.Generator, base: Arrays) -> Arrays:
    """Return a reply within half of the model that was sent."""
    return {n: np.asarray(a * rng.uniform(0.5, 1.5, a.shape)).astype(a.dtype) for n, a in base.items()}


def _replies(
    instructions: list[Message], base: Arrays, updates: list[Arrays], weights: list[int], *, whole: bool
) -> list[Message]:
    """Return what nodes send: whole weights as Flower's arrays, or differences as ours."""
    replies = []
    for message, arrays, weight in zip(instructions, updates, weights, strict=True):
        content = RecordDict({"metrics": MetricRecord({"num-examples": weight, "train_loss": 1.0})})
        if whole:
            content["arrays"] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        else:
            content["arrays"] = to_record({n: np.asarray(a - base[n]) for n, a in arrays.items()})
            content["report"] = ConfigRecord({"carries": "difference"})
        replies.append(Message(content, reply_to=message))
    return replies


def _error(ours: Arrays, theirs: Arrays, updates: list[Arrays], weights: list[int]) -> float:
    sizes = {
        n: sum(w * np.abs(u[n]).astype(np.float64) for w, u in zip(weights, updates, strict=True)) / sum(weights) for n in ours
    }
    return max(float((np.abs(ours[n].astype(np.longdouble) - theirs[n]) / sizes[n]).max()) for n in theirs)


def _exact(updates: list[Arrays], weights: list[int]) -> Arrays:
    pairs = list(zip(weights, updates, strict=True))
    return {n: np.asarray(sum(w * u[n].astype(np.longdouble) for w, u in pairs) / sum(weights)) for n in SHAPES}


def _compare(grid: Grid, registry: Registry, cohort: int, dtype: str, draw: Draw, *, whole: bool) -> None:
    rng = np.random.default_rng(cohort)
    strategy = Strategy(ServerConfig(selection=UniformConfig(cohort=cohort)), registry)
    base = _model(rng, dtype)
    instructions = list(strategy.configure_train(1, to_record(base), ConfigRecord(), grid))
    assert len(instructions) == cohort
    updates = [draw(rng, base) for _ in instructions]
    weights = [int(weight) for weight in rng.integers(1, 5000, cohort)]
    their_arrays, their_metrics = FedAvg().aggregate_train(1, _replies(instructions, base, updates, weights, whole=True))
    our_arrays, our_metrics = strategy.aggregate_train(1, _replies(instructions, base, updates, weights, whole=whole))
    assert our_arrays is not None
    assert their_arrays is not None
    assert their_metrics is not None
    assert our_metrics == pytest.approx(dict(their_metrics), rel=1e-12)
    ours, theirs = to_params(our_arrays), to_params(their_arrays)
    assert {n: (a.dtype, a.shape) for n, a in ours.items()} == {n: (a.dtype, a.shape) for n, a in theirs.items()}
    assert _error(ours, theirs, updates, weights) <= LIMIT
    if whole:  # ours is the true mean, rounded once
        assert _error(ours, _exact(updates, weights), updates, weights) <= {"float32": 2.0**-24, "float64": 1e-12}[dtype]


# A difference is rounded once, by the node: by little only where the reply is near the model.
@pytest.mark.parametrize(("draw", "whole"), [(_alike, True), (_unlike, True), (_alike, False)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_replies_give_the_same_mean(dtype: str, draw: Draw, whole: bool) -> None:
    with simulation(tutorial.client_app, tutorial.RUN_CONFIG, count=31) as grid:
        registry = Registry(lambda addresses: queries.introduce(grid, addresses), lambda _node, _intro: 0.0)
        for cohort in range(1, 33):
            _compare(grid, registry, cohort, dtype, draw, whole=whole)
