"""Memory of a round does not grow with the cohort: 64 updates of 40 MB within four models above what was there."""

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from edge.simulation import TimedGrid
from edge.slices import Network, NetworkConfig, NodesConfig, profiles
from fedslice.core.params import Model
from server.round import close_round
from server.strategy import Strategy
from tests.support import FakeGrid, model_of, reply, strategy_of

COHORT, MODEL_BYTES = 64, 40_000_000
MOST = 4.0  # models above the baseline


def a_model(num_entries: int, num_bytes: int = MODEL_BYTES) -> Model:
    return model_of({f"w{i}": np.full(num_bytes // 4 // num_entries, 0.5, np.float32) for i in range(num_entries)})


def one_round(model: Model, cohort: int, weight: float, whole: bool, optimizer: dict[str, object]) -> tuple[Strategy, Model]:
    """A round over a timed grid whose nodes make their updates when it is their turn."""
    strategy = strategy_of(cohort, optimizer=optimizer)
    nodes = profiles(NodesConfig(count=cohort), 0)

    def node(message: Message) -> Message:
        number = message.metadata.dst_node_id - 1
        arrays = {n: np.full(a.shape, 0.001 * (number + 1), np.float32) for n, a in model.arrays.items()}
        return reply(number, arrays, weight, carries=None if whole else "difference")

    grid = TimedGrid(
        FakeGrid(range(1, cohort + 1), node),
        Network(NetworkConfig.model_validate({}), nodes, 0),
        nodes,
        strategy.registry.names,
        lambda _: 10,
    )
    members = list(range(cohort))
    replies = grid.send_and_receive(strategy.instruct(1, model, members, grid))
    new, ledger = close_round(1, model, strategy, members, replies)
    assert new is not None
    assert sorted(ledger.replied) == members
    return strategy, new


@pytest.fixture
def traced() -> Iterator[None]:
    one_round(a_model(1, 400_000), 4, 10.0, False, {"name": "adam"})  # whatever is imported late
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("num_entries", "cohort", "weight", "whole", "optimizer"),
    [
        (1, COHORT, 10.0, False, {"name": "sgd"}),
        (1, 8, 1e8, False, {"name": "sgd"}),  # sums that outgrow 64 bits
        (4, 8, 100.0, True, {"name": "sgd"}),
    ],
    ids=["64 nodes", "heavy", "whole"],
)
@pytest.mark.usefixtures("traced")
def test_peak_of_a_round(num_entries: int, cohort: int, weight: float, whole: bool, optimizer: dict[str, object]) -> None:
    model = a_model(num_entries)
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    _, new = one_round(model, cohort, weight, whole, optimizer)
    _, peak = tracemalloc.get_traced_memory()
    assert 1.0 < (peak - before) / MODEL_BYTES <= MOST
    expected = 0.001 * (cohort + 1) / 2 + (0.0 if whole else 0.5)
    np.testing.assert_allclose(new.arrays["w0"], expected, rtol=1e-6)


@pytest.mark.usefixtures("traced")
def test_an_optimizer_with_state_adds_its_state_and_no_more() -> None:
    model = a_model(1)
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    strategy, _ = one_round(model, 4, 10.0, False, {"name": "adam"})
    _, peak = tracemalloc.get_traced_memory()
    state = sum(tensor.nbytes for tensor in strategy.optimizer.tensors().values())
    assert state == pytest.approx(2 * 2 * MODEL_BYTES, rel=1e-3)  # two moments in double precision, held by torch
    assert (peak - before) / MODEL_BYTES <= MOST


def test_the_process_grows_by_no_more_either() -> None:
    """What the operating system sees, in a process of its own."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.test_fold_memory"],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(ran.stdout.splitlines()[-1]) <= MOST


def main() -> None:
    """Print by how many models the peak of this process grew over one round."""
    import resource

    one_round(a_model(1, 400_000), 4, 10.0, False, {"name": "sgd"})  # whatever is imported late
    model = a_model(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one_round(model, COHORT, 10.0, False, {"name": "sgd"})
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(1024 * (after - before) / MODEL_BYTES)


if __name__ == "__main__":
    main()
