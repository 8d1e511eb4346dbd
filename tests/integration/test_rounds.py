"""Rounds that go wrong: the run goes on, what happened is visible, and the good nodes' work counts."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord

from client.app import app as client_app
from edge.flower import to_params, to_record
from fedslice.core.errors import RunError, UsageError
from server.model_file import read_arrays
from server.registry import Introduction, Registry
from server.run_folder import RunFolder
from tests.integration.support import events_of, model_bytes, rounds_of, run_config, served


def node_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


def spoilt(node: int, spoil: Callable[[Message], None]) -> Callable[[Message, Context], Message]:
    """Return a host on which one node's training replies are spoilt."""

    def host(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if message.metadata.message_type == "train" and node_of(context) == node:
            spoil(reply)
        return reply

    return host


def with_nan(reply: Message) -> None:
    arrays = {name: np.array(array) for name, array in to_params(reply.content.array_records["arrays"]).items()}
    arrays["net.0.weight"][0, 0] = np.nan
    reply.content["arrays"] = to_record(arrays)


def test_a_sick_sensor_costs_nobody_else_the_round(tmp_path: Path) -> None:
    every = ("selection.cohort=10", "federation.rounds=3")
    served(run_config(tmp_path / "sick", *every), spoilt(4, with_nan))
    for record in rounds_of(tmp_path / "sick"):
        assert record["replied"] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert record["rejected"] == [{"node": 4, "reason": "not finite: entry net.0.weight holds a NaN or an infinity"}]

    def silent(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and node_of(context) == 4:
            raise RuntimeError("no power")
        return client_app(message, context)

    # The model is what it would be had the node not answered at all.
    served(run_config(tmp_path / "silent", *every), silent)
    assert model_bytes(tmp_path / "sick") == model_bytes(tmp_path / "silent")


def test_a_sensor_that_gives_nan_in_one_round_is_back_in_the_next(tmp_path: Path) -> None:
    done: list[int] = []

    def once(reply: Message) -> None:
        if not done:
            with_nan(reply)
        done.append(1)

    served(run_config(tmp_path, "selection.cohort=10", "federation.rounds=2"), spoilt(4, once))
    assert [len(record["rejected"]) for record in rounds_of(tmp_path)] == [1, 0]


def test_below_quorum_the_model_stands_and_other_nodes_are_tried(tmp_path: Path) -> None:
    # Four nodes fail, and their losses were the highest: a policy that forgot failures would choose them for ever.
    def half_dead(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and node_of(context) < 4:
            number = message.content.config_records["config"]["server-round"]
            assert isinstance(number, int)
            if number > 4:
                raise RuntimeError("no power")
            reply = client_app(message, context)
            reply.content["metrics"] = MetricRecord({**reply.content.metric_records["metrics"], "train_loss": 100.0})
            return reply
        return client_app(message, context)

    settings = ("federation.rounds=16", "federation.quorum=4", "selection.cohort=5")
    served(run_config(tmp_path, *settings), half_dead)
    records = rounds_of(tmp_path)
    void = [record["void"] for record in records]
    assert any(void[4:])
    assert not all(void[8:])
    for before, after in pairwise(records):
        if after["void"]:
            assert after["evaluate"] == before["evaluate"]
            assert after["train"] == before["train"] or len(after["replied"]) < 4


@pytest.mark.parametrize("loss", [-1.0, None])
def test_a_loss_that_qfedavg_cannot_weigh_costs_one_node(tmp_path: Path, loss: float | None) -> None:
    def strange(reply: Message) -> None:
        numbers = dict(reply.content.metric_records["metrics"])
        del numbers["train_loss"]
        reply.content["metrics"] = MetricRecord(numbers if loss is None else {**numbers, "train_loss": loss})

    flower = 'aggregation={rule="flower", strategy="flwr.serverapp.strategy.QFedAvg", args={client_learning_rate=0.1, q=0.2}}'
    served(run_config(tmp_path, flower, "selection.cohort=10", "federation.rounds=2"), spoilt(4, strange))
    for record in rounds_of(tmp_path):
        assert [refusal["node"] for refusal in record["rejected"]] == [4]
        assert "train_loss" in record["rejected"][0]["reason"]
        assert math.isfinite(record["evaluate"]["loss"])


def test_an_evaluator_that_fails_is_heard_of(tmp_path: Path) -> None:
    def blind(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate":
            raise RuntimeError("no test data")
        return client_app(message, context)

    served(run_config(tmp_path, "federation.rounds=2"), blind)
    assert [record["evaluate"] for record in rounds_of(tmp_path)] == [{}, {}]
    failed = [event for event in events_of(tmp_path) if event["event"] == "evaluation_failed"]
    assert {event["reason"] for event in failed} == {"RuntimeError: no test data"}
    assert [event["round"] for event in failed if "round" in event] == [1, 2]
    assert [event["node"] for event in failed if "node" in event] == list(range(10))  # the closing look at each node


def seconds(parts: dict[str, float]) -> float:
    """How long a node took, of what the log says of it."""
    return parts["download_s"] + parts["compute_s"] + parts["upload_s"]


def test_each_round_tells_what_each_nodes_time_was_made_of(tmp_path: Path) -> None:
    served(run_config(tmp_path, "federation.rounds=2"), client_app)
    records = rounds_of(tmp_path)
    timings = [event["nodes"] for event in events_of(tmp_path) if event["event"] == "timings"]
    start = 0.0
    for record, nodes in zip(records, timings, strict=True):
        assert [int(node) for node in nodes] == record["selected"]
        assert all(part > 0 for parts in nodes.values() for part in parts.values())
        slowest = max(seconds(parts) for parts in nodes.values())
        joules = sum(parts["joules"] for parts in nodes.values())
        assert (record["round_s"], record["joules"]) == pytest.approx((slowest, joules), rel=1e-12)
        assert record["virtual_s"] == pytest.approx(start + slowest, rel=1e-12)
        start = record["virtual_s"]


def test_a_late_node_is_refused_and_the_round_ends_at_the_deadline(tmp_path: Path) -> None:
    rows: list[dict[str, dict[str, float]]] = []
    records: list[dict[str, Any]] = []
    for folder, *more in ((tmp_path / "free",), (tmp_path / "bound", "federation.deadline_s=0.5")):
        served(run_config(folder, "federation.rounds=1", "selection.cohort=10", *more), client_app)
        records.extend(rounds_of(folder))
        rows.extend(event["nodes"] for event in events_of(folder) if event["event"] == "timings")
    (free, bound), (whole, record) = rows, records
    late = [node for node, parts in free.items() if seconds(parts) > 0.5]
    assert 0 < len(late) < 10
    words = "late: the reply came after the deadline"
    assert record["rejected"] == [{"node": node, "reason": words} for node in sorted(map(int, late))]
    assert (record["virtual_s"], record["round_s"], record["bound_s"]) == (0.5, 0.5, None)
    # What was still going on was cut, and what it had cost by then is what is counted.
    for node, parts in bound.items():
        assert seconds(parts) == pytest.approx(min(seconds(free[node]), 0.5))
        assert all(parts[part] <= free[node][part] for part in parts)
    assert record["bytes_down"] == whole["bytes_down"]
    assert 0 < record["bytes_up"] < whole["bytes_up"]
    assert 0 < record["joules"] < whole["joules"]
    assert whole["bound_s"] > 0


def test_what_a_node_claims_of_its_work_does_not_move_the_clock(tmp_path: Path) -> None:
    def boast(reply: Message) -> None:
        reply.content["report"] = ConfigRecord({**reply.content.config_records["report"], "num-processed": -(10**9)})

    settings = ("federation.rounds=2", "selection.cohort=10")
    served(run_config(tmp_path / "honest", *settings), client_app)
    served(run_config(tmp_path / "boast", *settings), spoilt(4, boast))
    honest, boasted = ([r["virtual_s"] for r in rounds_of(tmp_path / which)] for which in ("honest", "boast"))
    assert 0 < honest[0] < honest[1]
    assert boasted == pytest.approx(honest, rel=1e-3)  # a few bytes more


def test_nodes_that_join_later_get_names_of_their_own() -> None:
    said = {10: None, 20: 7, 30: None, 40: 7, 50: None}

    def introduce(addresses: Sequence[int]) -> dict[int, Introduction]:
        return {a: Introduction(said[a], "train", "", 1, 0) for a in addresses}

    registry = Registry(introduce, lambda _node, _intro: 0.0)
    registry.roll_call([10, 20])
    registry.roll_call([10, 20, 30])
    assert registry.names == {10: 0, 20: 7, 30: 1}
    with pytest.raises(RunError, match="two nodes say that they are node 7"):
        registry.roll_call([10, 20, 30, 40])
    # Back under another address, once the old one is gone, it is the same node.
    nodes, _ = registry.roll_call([10, 30, 40])
    assert registry.address(7) == 40
    assert [(n.node, n.online) for n in nodes] == [(0, True), (7, True), (1, True)]


def test_a_step_that_would_make_the_model_infinite_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no round counted"):
        served(run_config(tmp_path, "optimizer.lr=1e300", "federation.rounds=2"), client_app)
    assert [record["void"] for record in rounds_of(tmp_path)] == [True, True]
    assert all(np.isfinite(array).all() for array in read_arrays(tmp_path / "model.safetensors").values())
    refused = [event["round"] for event in events_of(tmp_path) if event["event"] == "step_refused"]
    assert refused == [1, 2]


def test_of_two_runs_that_want_one_folder_one_is_told(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", {})
    with pytest.raises(UsageError, match="is not empty"):
        RunFolder(tmp_path / "run", {})
