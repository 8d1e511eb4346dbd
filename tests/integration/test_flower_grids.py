"""What Flower's own grids do and our simulation does not: nodes under random ids, that join late, and go unannounced."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from flwr.app import Error, Message, Metadata
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from client.app import app as client_app
from edge.flower import COORDINATOR_ID, metadata_fields
from edge.simulation import SimulationGrid
from edge.wrapper import GridWrapper
from fedslice.core.config import RunConfig
from fedslice.core.errors import RunError, UsageError
from fedslice.core.seeds import rng
from fedslice.modes import simulate
from server.app import serve
from tests.integration.support import COUNT, events_of, model_bytes, node_configs, rounds_of, run_config, served

SHORT = ("federation.rounds=2", "training.epochs=1")


class _Joining(GridWrapper):
    """Shows another number of nodes each time it is asked; the last number stays."""

    def __init__(self, inner: Grid, *numbers: int) -> None:
        super().__init__(inner)
        self._numbers = list(numbers)

    def get_node_ids(self) -> Iterable[int]:
        number = self._numbers.pop(0) if len(self._numbers) > 1 else self._numbers[0]
        return list(self.inner.get_node_ids())[:number]


def _at_random_addresses(run: RunConfig, seed: int, front: Callable[[Grid], Grid] = GridWrapper) -> None:
    """Run a federation whose nodes have the 63-bit addresses that Flower deals."""
    addresses = [int(a) for a in rng(seed, "addresses").integers(2**40, 2**63, COUNT + 1)]
    configs = dict(zip(addresses, node_configs().values(), strict=True))
    serve(front(SimulationGrid(client_app, configs, run.as_run_config(), 1)), run)


def test_where_a_node_is_reached_changes_nothing(tmp_path: Path) -> None:
    simulate(run_config(tmp_path / "ours", *SHORT))
    for seed in (1, 2):
        _at_random_addresses(run_config(tmp_path / str(seed), *SHORT), seed)
        assert model_bytes(tmp_path / str(seed)) == model_bytes(tmp_path / "ours")
        assert rounds_of(tmp_path / str(seed)) == rounds_of(tmp_path / "ours")


def test_the_coordinator_waits_for_nodes_that_join_late_and_says_so(tmp_path: Path) -> None:
    simulate(run_config(tmp_path / "ours", *SHORT))
    run = run_config(tmp_path / "late", *SHORT)
    served(run, client_app, front=lambda grid: _Joining(grid, 0, 3, 3, COUNT + 1))
    waited = [(e["present"], e["expected"]) for e in events_of(tmp_path / "late") if e["event"] == "waiting_for_nodes"]
    assert waited == [(0, COUNT + 1), (3, COUNT + 1)]
    assert model_bytes(tmp_path / "late") == model_bytes(tmp_path / "ours")
    assert rounds_of(tmp_path / "late") == rounds_of(tmp_path / "ours")
    assert not [e for e in events_of(tmp_path / "ours") if e["event"] == "waiting_for_nodes"]


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    run = run_config(tmp_path / "run", *SHORT, "federation.join_timeout_s=0.2")
    started = time.monotonic()
    with pytest.raises(RunError, match=r"3 of 11 nodes joined within 0\.2 s \(federation\.join_timeout_s\)"):
        served(run, client_app, front=lambda grid: _Joining(grid, 0, 3))
    assert time.monotonic() - started < 5
    with pytest.raises(UsageError, match="is not empty"):  # what little happened is in it
        served(run, client_app)


class _Losing(GridWrapper):
    """Answers for a node that is gone as Flower's SuperLink does: in its own name."""

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        lost = next(iter(self.inner.get_node_ids()))
        for reply in self.inner.send_and_receive(messages, timeout=timeout):
            if reply.metadata.message_type == "train" and reply.metadata.src_node_id == lost:
                fields = {**metadata_fields(reply), "src_node_id": COORDINATOR_ID}
                error = Error(ErrorCode.NODE_UNAVAILABLE, "the node is gone")
                yield Message(metadata=Metadata(**fields), error=error)  # type: ignore[call-overload]
                # And something that answers nothing that was asked.
                yield Message(metadata=Metadata(**{**fields, "reply_to_message_id": "0"}), error=error)  # type: ignore[call-overload]
            else:
                yield reply


def test_a_node_that_flowers_server_reports_as_gone_is_refused_by_its_name(tmp_path: Path) -> None:
    _at_random_addresses(run_config(tmp_path / "run", *SHORT, f"selection.cohort={COUNT}"), 1, front=_Losing)
    for line in rounds_of(tmp_path / "run"):
        assert len(line["rejected"]) == 1
        assert line["rejected"][0]["reason"] == "the node is gone"
        assert sorted([*line["replied"], line["rejected"][0]["node"]]) == list(range(COUNT))


class _Timeouts(GridWrapper):
    """Notes how long it is told to wait."""

    told: list[float | None] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        self.told.append(timeout)
        yield from self.inner.send_and_receive(messages, timeout=timeout)


def test_a_deadline_in_virtual_seconds_is_no_timeout_for_a_grid_that_takes_real_ones(tmp_path: Path) -> None:
    _Timeouts.told = []
    run = run_config(tmp_path / "run", *SHORT, "federation.deadline_s=0.25", f"selection.cohort={COUNT}")
    served(run, client_app, front=_Timeouts)
    assert all(timeout is not None and timeout > 60 for timeout in _Timeouts.told)
    late = [r["node"] for r in rounds_of(tmp_path / "run")[0]["rejected"]]
    assert 0 < len(late) < COUNT
