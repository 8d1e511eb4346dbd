"""Kinds survive messages, folds, optimizers and files."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict

from client import app as client_app
from client.session import Session, session
from client.tasks import Dataset
from client.trainers.memory import isolated, numpy_views
from edge.flower import begin_run, to_params, to_record
from fedslice.core.params import Array, Kind, Model, difference, dtype_of
from server.model_file import model_bytes, read_model
from tests.support import BatchNormNet, bits, dtypes_of, instruction, model_of, play, reply, strategy_of

ADAMS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": {"name": "adam", "lr": 0.1}},
    "FedAdam": {"aggregation": {"rule": "flower", "strategy": "flwr.serverapp.strategy.FedAdam", "args": {"eta": 0.1}}},
}
TURN = 2 * math.pi


def through_a_wire(arrays: dict[str, Array]) -> dict[str, Array]:
    """Arrays after Flower's own serialisation."""
    data = recorddict_to_proto(RecordDict({"arrays": to_record(arrays)})).SerializeToString()
    return to_params(recorddict_from_proto(ProtoRecordDict.FromString(data)).array_records["arrays"])


def trained(module: torch.nn.Module, arrays: dict[str, Array], seed: int) -> dict[str, Array]:
    """What a node makes of a model by five steps on data of its own scale."""
    views = numpy_views(module)
    for name, view in views.items():
        np.copyto(view, arrays[name])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    module.train()
    with isolated(seed):
        for _ in range(5):
            # Variances from 1e-8 to 1: the smaller, the easier an optimizer overshoots.
            x = torch.randn(16, 4) * torch.tensor([1e-4, 1e-2, 0.1, 1.0])
            optimizer.zero_grad()
            ((module(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
            optimizer.step()
    return {name: view.copy() for name, view in views.items()}


@pytest.mark.parametrize("carries", ["difference", None])
@pytest.mark.parametrize("adam", ADAMS)
def test_fifty_rounds_of_adam_keep_variances_and_counters(adam: str, carries: str | None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = BatchNormNet()
    model = model_of({name: view.copy() for name, view in numpy_views(module).items()})
    assert [e.kind for n, e in model.entries.items() if n.startswith("norm.")] == [
        Kind.WEIGHT, Kind.WEIGHT, Kind.STATISTIC, Kind.STATISTIC, Kind.COUNTER,
    ]  # fmt: skip
    strategy, first, lowest = strategy_of(3, **ADAMS[adam]), bits(model.arrays), math.inf
    for number in range(1, 51):
        replies = []
        for node in range(3):
            arrays = trained(module, dict(model.arrays), 1000 * number + node)
            sent = {n: difference(a, model.arrays[n], model.entries[n]) for n, a in arrays.items()} if carries else arrays
            replies.append(reply(node, through_a_wire(sent), 16, carries=carries))
        new, ledger = play(strategy, model, replies, number, 3)
        assert ledger.rejected == []
        assert new is not None
        model = new
        lowest = min(lowest, float(model.arrays["norm.running_var"].min()))
    assert 0 < lowest < 1e-4
    assert model.arrays["norm.num_batches_tracked"] == 250
    assert dtypes_of(model.arrays) == {n: (dtype, shape) for n, (dtype, shape, _) in first.items()}
    assert np.isfinite(model.arrays["out.weight"]).all()
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_bytes(model))
    again = read_model(path)
    assert bits(again.arrays) == bits(model.arrays)
    assert again.entries == model.entries


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "int32", "uint8", "bool"])
def test_every_dtype_and_shape_survives_message_fold_and_file(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = dtype in ("int64", "int32", "uint8", "bool")
    array = np.asarray(rng.integers(0, 2, shape) if counts else rng.normal(0, 1, shape)).astype(dtype_of(dtype))
    model = model_of({"a": array})
    assert bits(through_a_wire({"a": array})) == bits({"a": array})
    assert bits(to_params(to_record({"a": array}))) == bits({"a": array})
    same = through_a_wire({"a": difference(array, array, model.entries["a"])})
    new, ledger = play(strategy_of(2), model, [reply(0, same), reply(1, {"a": array}, carries=None)], 1, 2)
    assert [r.node for r in ledger.rejected] == []
    assert new is not None
    assert bits(new.arrays) == bits(model.arrays)
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_bytes(new))
    assert bits(read_model(path).arrays) == bits(model.arrays)
    assert read_model(path).entries == model.entries


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("carries", [("difference", "difference"), (None, None), ("difference", None)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equivalent_angles_average_to_themselves(dtype: Any, carries: tuple[str | None, ...], order: tuple[int, ...]) -> None:
    model = model_of({"phase": np.array([2.9], dtype)}, {"phase": f"angle:{TURN!r}"})
    angles = [np.array([3.0], dtype), np.array([3.0 - TURN], dtype)]
    replies = []
    for node in order:
        sent = angles[node] if carries[node] is None else difference(angles[node], model.arrays["phase"], model.entries["phase"])
        replies.append(reply(node, {"phase": sent}, 10, carries=carries[node]))
    new, ledger = play(strategy_of(2), model, replies, 1, 2)
    assert ledger.rejected == []
    assert new is not None
    np.testing.assert_allclose(new.arrays["phase"], [3.0], rtol=4 * np.finfo(dtype).eps)


class PersonalTask:
    """A linear model whose bias is each node's own."""

    better = {"rmse": "lower"}

    def load(self, data: Path | None) -> Dataset:
        x = np.random.default_rng(0).normal(0, 1, (40, 2)).astype(np.float32)
        labels = np.arange(40) % 2
        return Dataset(x, (x[:, :1] + labels[:, None]).astype(np.float32), labels, labels, x[:4], x[:4, :1])

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 1)

    def kinds(self) -> dict[str, str]:
        return {"bias": "local"}

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(outputs, targets)

    def metrics(self, outputs: npt.NDArray[np.float32], targets: npt.NDArray[Any]) -> dict[str, float]:
        return {"rmse": float(np.sqrt(((outputs - targets) ** 2).mean()))}


@pytest.fixture
def personal(tmp_path: Path) -> tuple[Session, dict[str, str]]:
    config = tmp_path / "config.toml"
    config.write_text("[nodes]\ncount = 2\n[partition]\nscheme = 'by_group'\n")
    run_config = {"config": str(config), "set": "", "data": "", "out": ""}
    known = session(run_config)
    known.__dict__["task"] = PersonalTask()
    return known, run_config


def test_local_entries_stay_at_their_node_and_are_there_next_round(personal: tuple[Session, dict[str, Any]]) -> None:
    known, run_config = personal
    begin_run(1)
    contexts = [Context(1, node + 1, {"partition-id": node}, RecordDict(), run_config) for node in range(2)]

    def ask(node: int, what: str, content: RecordDict) -> Message:
        return client_app.app(instruction(node, content, what), contexts[node])

    sent = ask(0, "query.init", RecordDict({"totals": to_record({})}))
    arrays = to_params(sent.content.array_records["arrays"])
    assert list(arrays) == ["weight"]
    assert dict(sent.content.config_records["kinds"]) == {"weight": "weight"}
    model = Model(arrays, {"weight": known.entries["weight"]})
    biases: list[list[float]] = [[], []]
    for number in range(1, 4):
        replies = []
        for node in (0, 1):
            content = RecordDict({"arrays": to_record(model.arrays)})
            content["config"] = ConfigRecord({"server-round": number})
            replies.append(ask(node, "train", content))
            assert list(replies[-1].content.array_records["arrays"]) == ["weight"]
            biases[node].append(float(to_params(contexts[node].state.array_records["local"])["bias"][0]))
        new, ledger = play(strategy_of(2), model, replies, number, 2)
        assert ledger.rejected == []
        assert new is not None
        assert list(new.arrays) == ["weight"]
        model = new
    # Labels, and so the right bias, are 0 at one node and 1 at the other: each goes on from its own.
    start = known.initial_model({}).arrays["bias"][0]
    for node, right in ((0, 0.0), (1, 1.0)):
        distances = [abs(bias - right) for bias in [start, *biases[node]]]
        assert distances == sorted(distances, reverse=True)
        assert distances[-1] < 0.75 * distances[0]
