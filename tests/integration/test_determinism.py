"""One config and one seed give one result, whatever else the process did, does, or is made of."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from client.app import app as client_app
from fedslice.core.config import RunConfig
from fedslice.modes import simulate
from server.app import app as server_app
from tests.integration.support import COUNT, DIGITS, QUICKSTART, model_bytes, rounds_of, run_config, simulation

CONFIGS = {
    "digits": (DIGITS, ("federation.rounds=3", "training.epochs=1")),
    "quickstart": (QUICKSTART, ("federation.rounds=2",)),
    "adam": (DIGITS, ("federation.rounds=3", "training.epochs=1", "optimizer.name=adam", "selection.policy=uniform")),
    "krum": (
        DIGITS,
        (
            "federation.rounds=3",
            "training.epochs=1",
            "aggregation.rule=flower",
            "aggregation.strategy=flwr.serverapp.strategy.MultiKrum",
            "aggregation.args={num_nodes_to_select = 3}",
        ),
    ),
}


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    threads, states = torch.get_num_threads(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    yield
    torch.set_num_threads(threads)
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def _disturb(number: int) -> None:
    """Put everything global to something else."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
    torch.set_num_threads(1 + number % 3)


def _global_state() -> dict[str, Any]:
    return {
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),
        "numpy errors": np.geterr(),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "threads between": torch.get_num_interop_threads(),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "environment": {k: v for k, v in os.environ.items() if not k.startswith("TORCHINDUCTOR")},  # torch's, at first use
        "folder": os.getcwd(),
        "Ctrl-C": signal.getsignal(signal.SIGINT),
    }


def _run(name: str, out: Path, *more: str) -> RunConfig:
    config, overrides = CONFIGS[name]
    return run_config(out, *overrides, *more, config=config)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_repeats_to_the_byte_and_leaves_nothing_changed(name: str, tmp_path: Path) -> None:
    for number, workers in enumerate((1, 2, 1, 3)):
        _disturb(number)
        before = _global_state()
        simulate(_run(name, tmp_path / str(number), f"federation.workers={workers}"))
        assert _global_state() == before
    for number in (1, 2, 3):
        assert model_bytes(tmp_path / str(number)) == model_bytes(tmp_path / "0"), number
        assert rounds_of(tmp_path / str(number)) == rounds_of(tmp_path / "0"), number


def test_another_seed_gives_another_model_and_other_cohorts(tmp_path: Path) -> None:
    for seed in (1, 2):
        simulate(_run("digits", tmp_path / str(seed), f"federation.seed={seed}"))
    assert model_bytes(tmp_path / "1") != model_bytes(tmp_path / "2")
    cohorts = [[r["selected"] for r in rounds_of(tmp_path / str(seed))] for seed in (1, 2)]
    assert cohorts[0] != cohorts[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_flowers_server_app_gives_what_the_command_does(workers: int, tmp_path: Path) -> None:
    simulate(_run("digits", tmp_path / "ours"))
    run = _run("digits", tmp_path / "app")
    with simulation(client_app, run.as_run_config(), workers=workers) as grid:
        server_app(grid, Context(1, 1, {}, RecordDict(), dict(run.as_run_config())))
    assert model_bytes(tmp_path / "app") == model_bytes(tmp_path / "ours")
    assert rounds_of(tmp_path / "app") == rounds_of(tmp_path / "ours")
    assert len(rounds_of(tmp_path / "app")[0]["selected"]) < COUNT
