"""Nodes in worker processes: what one does, or suffers, costs no other node anything, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from client.app import app as client_app
from edge.flower import to_params, to_record
from edge.simulation import SimulationGrid
from tests.integration.processes import ALL, MANY, echo, eventually, gone, kill, pids_of, send
from tests.integration.support import model_bytes, node_of, rounds_of, run_config, served, simulation


def _slow_echo(message: Message, context: Context) -> Message:
    time.sleep(0.05)  # so that one worker cannot take all
    return echo(message, context)


VALUES = ConfigRecord(
    {
        "text": "Grüße\n\"\\",
        "bytes": bytes(range(256)),
        "number": 0.1 + 0.2,
        "large": 2**62,
        "truth": True,
        "texts": ["", "a"],
        "byte strings": [b"", b"\xff"],
        "numbers": [1.5, float("inf")],
        "truths": [True, False],
        "none": [],
    }
)  # fmt: skip
ARRAYS = {
    "bfloat16": np.array([1.5, -2.25], ml_dtypes.bfloat16),
    "float16": np.array([[0.1]], np.float16),
    "counter": np.array(3, np.int64),
    "empty": np.empty((0, 2), np.float32),
    "strided": np.arange(20.0).reshape(4, 5)[::2, ::-1],
}


def test_values_and_arrays_go_there_and_back_unchanged_and_in_order() -> None:
    mixed = to_record(ARRAYS)
    mixed["foreign"] = Array(np.arange(3))
    mixed["last"] = to_record(ARRAYS)["counter"]
    content = RecordDict({"config": VALUES, "arrays": mixed, "metrics": MetricRecord({"loss": 0.1, "all": [1, 2**53 + 1]})})
    with simulation(_slow_echo, workers=2, count=MANY) as grid:
        replies = send(grid, content)
    assert os.getpid() not in pids_of(replies)
    assert len(pids_of(replies)) == 2
    for address, reply in replies.items():
        assert reply.metadata.reply_to_message_id
        assert reply.content.config_records["who"]["node"] == address - 1
        assert reply.content.config_records["config"] == VALUES
        assert reply.content.metric_records["metrics"] == content.metric_records["metrics"]
        assert list(reply.content.array_records["arrays"]) == [*ARRAYS, "foreign", "last"]
        arrays = to_params(reply.content.array_records["arrays"])
        for name, array in ARRAYS.items():
            assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
            assert arrays[name].tobytes() == array.tobytes()
        assert arrays["foreign"].tolist() == [0, 1, 2]


def test_a_content_that_is_changed_and_sent_again_arrives_as_it_is_now() -> None:
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    with simulation(echo, workers=2, count=MANY) as grid:
        send(grid, content)
        content.config_records["config"]["server-round"] = 2
        replies = send(grid, content)
    assert {r.content.config_records["config"]["server-round"] for r in replies.values()} == {2}


def test_replies_come_as_they_are_ready() -> None:
    def host(message: Message, context: Context) -> Message:
        time.sleep(1.0 if node_of(context) == 0 else 0.0)
        return echo(message, context)

    with simulation(host, workers=2, count=MANY) as grid:
        replies = list(grid.send_and_receive([Message(RecordDict(), address, "train") for address in ALL]))
    assert replies[-1].metadata.src_node_id == 1


# ------------------------------------------------------------------- failures


def _troubled(message: Message, context: Context) -> Message:
    trouble = str(message.content.config_records["config"]["trouble"])
    if node_of(context) == 1:
        if trouble == "exit":
            os._exit(7)
        if trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "raise":
            raise LookupError("no data here")
        if trouble == "leave":
            sys.exit("I quit")
        if trouble == "nothing":
            return None  # type: ignore[return-value]
    return echo(message, context)


def _trouble(kind: str) -> RecordDict:
    return RecordDict({"config": ConfigRecord({"trouble": kind})})


@pytest.mark.parametrize("kind", ["exit", "kill"])
def test_a_worker_that_dies_is_an_error_of_its_node_only_and_the_pool_goes_on(kind: str) -> None:
    with simulation(_troubled, workers=2, count=MANY) as grid:
        for _ in range(3):
            replies = send(grid, _trouble(kind))
            assert [address for address, reply in replies.items() if reply.has_error()] == [2]
            assert replies[2].error.code == ErrorCode.CLIENT_APP_CRASHED
            assert "died" in (replies[2].error.reason or "")
        assert not any(reply.has_error() for reply in send(grid, _trouble("none")).values())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("raise", "LookupError: no data here"),
        ("leave", "SystemExit: I quit"),
        ("nothing", "TypeError: the node's code returned a NoneType, not a Message"),
    ],
)
def test_what_a_nodes_code_raises_is_its_reply(workers: int, kind: str, reason: str) -> None:
    with simulation(_troubled, workers=workers, count=MANY) as grid:
        before = pids_of(send(grid, _trouble("none")))
        replies = send(grid, _trouble(kind))
        assert {a: r.error.reason for a, r in replies.items() if r.has_error()} == {2: reason}
        assert replies[2].error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        assert pids_of(send(grid, _trouble("none"))) <= before  # no worker was lost


def test_a_worker_killed_between_two_exchanges_is_replaced() -> None:
    with simulation(_slow_echo, workers=2, count=MANY) as grid:
        pids = pids_of(send(grid, RecordDict()))
        kill(min(pids))
        replies = send(grid, RecordDict())
        assert not any(reply.has_error() for reply in replies.values())
        assert min(pids) not in pids_of(replies)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_unknown_address_is_answered_in_its_own_name(workers: int) -> None:
    with simulation(echo, workers=workers, count=MANY) as grid:
        replies = send(grid, RecordDict(), [1, 77, 2])
    assert {a for a, r in replies.items() if r.has_error()} == {77}
    assert replies[77].error.code == ErrorCode.NODE_UNAVAILABLE


def _unreadable(message: Message, context: Context) -> Message:
    """Be our node code, but one node's first entry is noise."""
    reply = client_app(message, context)
    if message.metadata.message_type == "train" and node_of(context) == 3:
        arrays = reply.content.array_records["arrays"]
        name = next(iter(arrays))
        arrays[name] = Array(arrays[name].dtype, arrays[name].shape, "numpy.ndarray", b"noise")
    return reply


def test_a_reply_that_nobody_can_read_is_refused_alike_with_any_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 2):
        out = run_config(tmp_path / str(workers), "federation.rounds=2", "training.epochs=1", "selection.cohort=10")
        served(out, _unreadable, workers=workers)
    rounds = rounds_of(tmp_path / "1")
    assert [[r["node"] for r in line["rejected"]] for line in rounds] == [[3], [3]]
    assert "is not an array" in rounds[0]["rejected"][0]["reason"]
    assert rounds_of(tmp_path / "2") == rounds
    assert model_bytes(tmp_path / "2") == model_bytes(tmp_path / "1")


def test_a_node_that_kills_its_worker_each_round_costs_nobody_else_the_round(tmp_path: Path) -> None:
    def host(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and node_of(context) == 3:
            os._exit(1)
        return client_app(message, context)

    served(run_config(tmp_path / "run", "federation.rounds=2", "training.epochs=1", "selection.cohort=10"), host, workers=2)
    for line in rounds_of(tmp_path / "run"):
        assert line["replied"] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert [r["node"] for r in line["rejected"]] == [3]


# ------------------------------------------------------------------- endings


def _exchange(grid: SimulationGrid) -> Generator[Message, None, None]:
    yield from grid.send_and_receive([Message(RecordDict(), address, "train") for address in ALL])


def _sleepy(message: Message, context: Context) -> Message:
    if node_of(context) > 0:
        time.sleep(60)
    return echo(message, context)


@pytest.mark.timeout(30)
def test_a_reader_that_stops_early_leaves_no_job_behind() -> None:
    with simulation(_sleepy, workers=2, count=MANY) as grid:
        with closing(_exchange(grid)) as replies:
            first = next(replies)
        assert first.metadata.src_node_id == 1
        assert gone(int(first.content.config_records["who"]["pid"]))  # type: ignore[arg-type]
        again = next(_exchange(grid))
        assert again.metadata.src_node_id == 1


@pytest.mark.timeout(30)
def test_two_exchanges_at_once_are_refused_and_not_mixed_up() -> None:
    with simulation(_sleepy, workers=2, count=MANY) as grid, closing(_exchange(grid)) as first:
        next(first)
        with pytest.raises(RuntimeError, match="must be read"):
            next(_exchange(grid))


def test_closing_leaves_no_process_and_may_be_done_twice() -> None:
    with simulation(_slow_echo, workers=3, count=MANY) as grid:
        pids = pids_of(send(grid, RecordDict()))
        assert len(pids) == 3
        grid.close()
        assert all(gone(pid) for pid in pids)
        assert len(pids_of(send(grid, RecordDict()))) == 3  # it opens again if asked


@pytest.mark.timeout(60)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_coordinator_that_is_killed_leaves_no_workers(busy: bool) -> None:
    script = f"""
import os, time
from flwr.app import Message, RecordDict
from edge.simulation import SimulationGrid

def host(message, context):
    os.write(1, f"{{os.getpid()}}\\n".encode())  # in one piece, beside the other's
    time.sleep({60 if busy else 0.2})
    return Message(RecordDict(), reply_to=message)

grid = SimulationGrid(host, {{n: {{}} for n in (1, 2)}}, {{}}, 2)
list(grid.send_and_receive([Message(RecordDict(), n, "train") for n in (1, 2)]))
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as coordinator:
        assert coordinator.stdout is not None
        try:
            pids = [int(coordinator.stdout.readline()) for _ in range(2)]
            time.sleep(0.0 if busy else 0.5)
        finally:
            coordinator.kill()
    assert len(set(pids)) == 2
    assert eventually(lambda: all(gone(pid) for pid in pids))
