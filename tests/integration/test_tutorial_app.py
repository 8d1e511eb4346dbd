"""Apps written as in Flower's own tutorial run unchanged on our nodes, under Flower's coordinator and under ours."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from edge.flower import to_params, to_record
from edge.simulation import SimulationGrid
from fedslice.core.errors import RunError
from server import queries
from server.config import ServerConfig
from server.registry import Registry
from server.selection import UniformConfig
from server.strategy import Strategy
from tests.integration import tutorial
from tests.integration.support import run_config, served, simulation, torch_threads

NODES = 5


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch_threads(1):
        yield


def _accuracy(arrays: ArrayRecord) -> float:
    model = tutorial.Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return tutorial.test_fn(model, tutorial.load_data(0, 1)[1])[1]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.timeout(60)  # workers that wait for threads which were not forked hang
def test_flowers_server_app_and_client_app_over_our_grid(workers: int) -> None:
    # Threads in this process, so that they are there, and missed, when workers are forked.
    torch.set_num_threads(2 * workers - 1)
    torch.relu(torch.randn(3_000_000)).sum()
    with simulation(tutorial.client_app, tutorial.RUN_CONFIG, workers=workers, count=NODES - 1) as grid:
        context = Context(1, 1, {}, RecordDict(), dict(tutorial.RUN_CONFIG))
        tutorial.server_app(grid, context)
    assert context.state.metric_records["accuracy"]["eval_acc"] > 0.7  # type: ignore[operator]
    assert _accuracy(context.state.array_records["arrays"]) > 0.7


@pytest.mark.parametrize("workers", [1, 2])
def test_our_strategy_under_flowers_start_trains_nodes_that_do_not_know_our_questions(workers: int) -> None:
    with simulation(tutorial.client_app, tutorial.RUN_CONFIG, workers=workers, count=NODES - 1) as grid:
        strategy = _our_strategy(grid)
        initial = ArrayRecord(tutorial.Net().state_dict())
        result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=4)
    assert _accuracy(initial) < 0.3
    assert _accuracy(result.arrays) > 0.7
    # Each node sent whole weights; what came back has every kind as it was.
    state = result.arrays.to_torch_state_dict()
    assert {name: (v.dtype, v.shape) for name, v in state.items()} == {
        name: (v.dtype, v.shape) for name, v in tutorial.Net().state_dict().items()
    }
    steps = max(len(tutorial.load_data(node, NODES - 1)[0]) for node in range(NODES - 1))
    assert state["bn.num_batches_tracked"] == 4 * steps  # a maximum, not a mean
    assert set(result.train_metrics_clientapp[4]) == {"train_loss"}


def _our_strategy(grid: SimulationGrid) -> Strategy:
    registry = Registry(lambda addresses: queries.introduce(grid, addresses), lambda _node, _intro: 0.0)
    return Strategy(ServerConfig(selection=UniformConfig(cohort=4)), registry)


def test_our_coordinator_says_what_such_an_app_lacks(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the node at 1 failed: .*sums"):
        served(run_config(tmp_path / "run"), tutorial.client_app)


# ------------------------------------------------- one client must not spoil another's

spoiling = ClientApp()


def _digest(arrays: ArrayRecord) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in to_params(arrays).values())).hexdigest()


@spoiling.train()
def _spoil(msg: Message, context: Context) -> Message:
    arrays, config = msg.content.array_records["arrays"], msg.content.config_records["config"]
    found = ConfigRecord({"digest": _digest(arrays), "names": list(arrays), "lr": config["lr"]})
    for tensor in arrays.to_torch_state_dict().values():
        tensor.zero_()
    for array in arrays.values():
        array.numpy()[...] = 7
    arrays["extra"] = next(iter(arrays.values()))
    arrays.to_torch_state_dict(keep_input=False)  # as Flower's memo on memory advises: it empties the record
    config["lr"] = 0.0
    msg.content.clear()
    return Message(RecordDict({"found": found, "metrics": MetricRecord({"num-examples": 1})}), reply_to=msg)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("lazy", [True, False])
def test_what_one_client_does_to_what_it_received_no_other_sees(workers: int, lazy: bool) -> None:
    state = nn.Linear(4, 3).state_dict()
    record = to_record({name: tensor.numpy() for name, tensor in state.items()}) if lazy else ArrayRecord(state)
    before = _digest(record)
    with simulation(spoiling, workers=workers, count=NODES - 1) as grid:
        content = RecordDict({"arrays": record, "config": ConfigRecord({"lr": 0.1})})
        for _ in range(2):  # what a worker keeps between jobs must not be spoilt either
            replies = list(grid.send_and_receive([Message(content, node, "train") for node in grid.get_node_ids()]))
            found = [reply.content.config_records["found"] for reply in replies]
            assert found == [ConfigRecord({"digest": before, "names": list(state), "lr": 0.1})] * NODES
    assert _digest(record) == before
    assert list(record) == list(state)
