"""Flower's own strategies, unchanged: named in a config with our selection in front and our guard behind, and directly."""

import gc
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flowers

from client.app import app as client_app
from edge.flower import to_params
from edge.wrapper import GridWrapper
from fedslice.core.errors import RunError, UsageError
from fedslice.core.params import Model, describe
from fedslice.core.records import Update
from fedslice.modes import simulate
from server.aggregation import FlowerRuleConfig
from tests.integration import tutorial
from tests.integration.shown import Seen
from tests.integration.support import COUNT, rounds_of, run_config, sends_nan, served, simulation, torch_threads


@pytest.fixture(autouse=True, scope="module")
def _swift() -> Iterator[None]:
    """Some of Flower's strategies collect garbage for each reply, which takes long where much is loaded."""
    gc.freeze()
    with torch_threads(1):
        yield
    gc.unfreeze()


CHANCE = 0.1  # of ten digits

# Arguments, the cohort that the rule needs, and the accuracy that four rounds reach.
STRATEGIES: dict[str, tuple[dict[str, float], int, float]] = {
    "FedAvg": ({}, 5, 0.85),
    "FedAdam": ({"eta": 0.03}, 5, 0.8),
    "FedYogi": ({"eta": 0.03}, 5, 0.8),
    "FedMedian": ({}, 5, 0.7),
    "FedTrimmedAvg": ({"beta": 0.2}, 5, 0.8),
    "Krum": ({"num_malicious_nodes": 1}, 6, 0.55),
    "MultiKrum": ({"num_malicious_nodes": 1, "num_nodes_to_select": 3}, 5, 0.7),
    "Bulyan": ({"num_malicious_nodes": 1}, 8, 0.65),  # needs 4 f + 3 replies
    "QFedAvg": ({"client_learning_rate": 1.0, "q": 0.1}, 5, 0.65),
}


def _overrides(name: str, *more: str, path: str = "flwr.serverapp.strategy") -> list[str]:
    args, cohort, _ = STRATEGIES.get(name, ({}, 5, 0.0))
    table = ", ".join(f"{key} = {value}" for key, value in args.items())
    return [
        "training.epochs=3",
        f"selection.cohort={cohort}",
        "aggregation.rule=flower",
        f"aggregation.strategy={path}.{name}",
        f"aggregation.args={{{table}}}",
        *more,
    ]


class _Recording(GridWrapper):
    """Notes who is told to train, in each round."""

    def __init__(self, inner: Grid) -> None:
        super().__init__(inner)
        self.told: list[list[int]] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        sent = list(messages)
        if sent and sent[0].metadata.message_type == "train":
            self.told.append(sorted(m.metadata.dst_node_id - 1 for m in sent))
        yield from self.inner.send_and_receive(sent, timeout=timeout)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_named_in_the_config_learns(name: str, tmp_path: Path) -> None:
    simulate(run_config(tmp_path / "run", *_overrides(name, "federation.rounds=4")))
    rounds = rounds_of(tmp_path / "run")
    assert not any(r["void"] or r["rejected"] for r in rounds)
    assert all(r["replied"] == r["selected"] and len(r["selected"]) == STRATEGIES[name][1] for r in rounds)
    assert rounds[-1]["evaluate"]["accuracy"] >= STRATEGIES[name][2] > 5 * CHANCE


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_cohort_is_ours_and_a_node_that_sends_nan_costs_nobody_else_the_round(name: str, tmp_path: Path) -> None:
    grids: list[_Recording] = []

    def front(grid: Grid) -> Grid:
        grids.append(_Recording(grid))
        return grids[0]

    overrides = _overrides(name, "federation.rounds=2", "training.epochs=1", f"selection.cohort={COUNT - 1}")
    served(run_config(tmp_path / "run", *overrides), sends_nan(3), front=front)
    rounds = rounds_of(tmp_path / "run")
    assert grids[0].told == [r["selected"] for r in rounds]
    refused = [r for r in rounds if 3 in r["selected"]]
    assert refused
    for line in refused:
        assert [r["node"] for r in line["rejected"]] == [3]
        assert "not finite" in line["rejected"][0]["reason"]
    assert all(r["replied"] == [n for n in r["selected"] if n != 3] and not r["void"] for r in rounds)
    assert rounds[-1]["evaluate"]["loss"] < 2.3  # a number, and better than chance: ln 10


def test_a_strategy_is_shown_the_cohort_and_what_passed_the_guard_and_trained_entries_only(tmp_path: Path) -> None:
    Seen.nodes, Seen.entries, Seen.replies = [], [], []
    overrides = _overrides("Seen", "federation.rounds=3", path="tests.integration.shown")
    served(run_config(tmp_path / "run", *overrides), sends_nan(3))
    rounds = rounds_of(tmp_path / "run")
    assert Seen.nodes == [2 * [node + 1 for node in r["selected"]] for r in rounds]
    assert Seen.replies == [(r["round"], len(r["replied"])) for r in rounds]
    assert all(names == ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"] for names in Seen.entries)


class _Dwindling(GridWrapper):
    """Has all nodes until training begins; then nodes leave, until only the evaluator is left, and come back."""

    def __init__(self, inner: Grid) -> None:
        super().__init__(inner)
        self._calls = 0

    def get_node_ids(self) -> Iterable[int]:
        self._calls += 1
        ids = list(self.inner.get_node_ids())
        left = [None, None, None, 5, 2, 1, 0, 4][min(self._calls, 8) - 1]
        return ids if left is None else [*ids[:left], ids[-1]]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.timeout(30)  # Flower's own sampling waits for ever for nodes that are not there
def test_a_cohort_that_shrinks_to_nobody_makes_no_round_hang(name: str, tmp_path: Path) -> None:
    overrides = _overrides(name, "federation.rounds=6", "training.epochs=1")
    served(run_config(tmp_path / "run", *overrides), client_app, front=_Dwindling)
    rounds = rounds_of(tmp_path / "run")
    assert [len(r["selected"]) for r in rounds] == [min(STRATEGIES[name][1], left) for left in (10, 5, 2, 1, 0, 4)]
    assert not rounds[0]["void"]
    assert rounds[4]["void"]


def test_the_rules_steps_are_those_of_flower_when_it_runs_alone(tmp_path: Path) -> None:
    """FedAdam corrects its bias by the number of the round, so it must be told it."""
    overrides = _overrides("Seen", "federation.rounds=2", path="tests.integration.shown")
    Seen.replies = []
    simulate(run_config(tmp_path / "run", *overrides))
    assert [number for number, _ in Seen.replies] == [1, 2]


def test_pythons_generator_is_left_as_it_was_and_changes_nothing(tmp_path: Path) -> None:
    results = []
    for seed in (1, 2):
        random.seed(seed)
        before = random.getstate()
        results.append(simulate(run_config(tmp_path / str(seed), *_overrides("FedAvg", "federation.rounds=2"))).model_sha256)
        assert random.getstate() == before
    assert results[0] == results[1]


def test_a_bfloat16_model_stays_one_under_a_rule_that_knows_no_such_type() -> None:
    rule = FlowerRuleConfig(rule="flower", strategy="flwr.serverapp.strategy.FedAdam", args={"eta": 1.0}).build()
    arrays = {"w": np.array([1.0, 2.0], ml_dtypes.bfloat16), "half": np.array([1.0], np.float16), "n": np.array(1)}
    model = Model(arrays, describe(arrays, {}))
    with simulation() as grid:
        messages = rule.instruct(1, model, ConfigRecord({"server-round": 1}), grid, [2, 1], 0)
    assert [m.metadata.dst_node_id for m in messages] == [2, 1]
    for message in messages:  # nodes are sent the model as it is
        sent = to_params(message.content.array_records["arrays"])
        assert {name: (array.dtype, array.tobytes()) for name, array in sent.items()} == {
            name: (array.dtype, array.tobytes()) for name, array in arrays.items()
        }
    change = {"w": np.array([0.5, -0.5], ml_dtypes.bfloat16), "half": np.array([0.5], np.float16), "n": np.array(4)}
    fold = rule.fold(model, [Update(node=node, arrays=change, weight=1.0) for node in (0, 1)])
    assert fold is not None
    assert {name: array.dtype for name, array in fold.settled.items()} == {name: array.dtype for name, array in arrays.items()}
    assert fold.settled["w"][0] > 1.5 > fold.settled["w"][1]
    assert fold.settled["n"] == 4


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("flwr.serverapp.strategy.Krumm", "{}", UsageError, "no strategy can be imported"),
        ("json.JSONDecoder", "{}", UsageError, "is not a"),
        ("flwr.serverapp.strategy.Krum", "{malicious = 1}", UsageError, "does not take these"),
        ("flwr.serverapp.strategy.FedAvg", "{fraction_train = 0.5}", UsageError, "does not take these"),
        ("flwr.serverapp.strategy.QFedAvg", "{}", UsageError, "client_learning_rate"),
        ("flwr.serverapp.strategy.FedTrimmedAvg", "{beta = 0.7}", UsageError, "`beta` must be in the range"),
        ("tests.integration.shown.Moody", "{}", RunError, "Moody cannot aggregate 5 updates: no luck"),
        ("tests.integration.shown.Forgetful", "{}", RunError, "Forgetful returned other entries than the model has"),
    ],
)
def test_what_cannot_be_is_one_clear_sentence(name: str, args: str, error: type[Exception], text: str, tmp_path: Path) -> None:
    overrides = ["aggregation.rule=flower", f"aggregation.strategy={name}", f"aggregation.args={args}", "training.epochs=1"]
    with pytest.raises(error, match=text):
        simulate(run_config(tmp_path / "run", *overrides))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_runs_directly_over_our_grid(name: str) -> None:
    """Flower's own loop, Flower's own client, our grid between them."""
    torch.manual_seed(0)
    args: dict[str, Any] = STRATEGIES[name][0]
    strategy = getattr(flowers, name)(**args)
    # Flower's QFedAvg multiplies in place, which the integers of a batch norm do not bear.
    run_config = {**tutorial.RUN_CONFIG, "normed": name != "QFedAvg"}
    initial = ArrayRecord(tutorial.Net(name != "QFedAvg").state_dict())
    with simulation(tutorial.client_app, run_config, count=7) as grid:
        result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=2)
    assert set(result.arrays) == set(initial)
    assert result.evaluate_metrics_clientapp[2]["eval_acc"] > 3 * CHANCE
    assert result.train_metrics_clientapp[2]["train_loss"] < result.train_metrics_clientapp[1]["train_loss"]
