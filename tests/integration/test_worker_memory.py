"""What nodes keep and send, however large, in workers whose memory began small."""

import os

import ml_dtypes
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from edge.flower import to_params, to_record
from tests.integration.processes import ALL, MANY, echo, kill, pids_of, send
from tests.integration.support import node_of, simulation


def _sized(message: Message, context: Context) -> Message:
    """Send and keep as much as asked for."""
    wanted = message.content.config_records["config"]
    kept, sent = int(wanted["kept"]), int(wanted["sent"])  # type: ignore[arg-type]
    found = to_params(context.state.array_records["kept"])["x"] if "kept" in context.state else np.empty(0)
    if kept:
        context.state["kept"] = to_record({"x": np.full(kept, node_of(context), np.float64)})
    content = RecordDict({"arrays": to_record({"x": np.full(sent, node_of(context), np.float64)})})
    content["found"] = ConfigRecord({"size": len(found), "right": bool((found == node_of(context)).all())})
    content["who"] = ConfigRecord({"pid": os.getpid()})
    return Message(content, reply_to=message)


@pytest.mark.parametrize("workers", [1, 2])
def test_replies_and_states_outgrow_the_memory_that_workers_began_with(workers: int) -> None:
    sizes = [(0, 10), (0, 400_000), (300_000, 10), (10, 10), (900_000, 900_000), (0, 1)]  # doubles; regions begin with 1 MiB
    expected = 0
    with simulation(_sized, workers=workers, count=MANY) as grid:
        for kept, sent in sizes:
            replies = send(grid, RecordDict({"config": ConfigRecord({"kept": kept, "sent": sent})}))
            for address, reply in replies.items():
                x = to_params(reply.content.array_records["arrays"])["x"]
                assert len(x) == sent
                assert (x == address - 1).all()
                assert reply.content.config_records["found"] == ConfigRecord({"size": expected, "right": True})
            expected = kept or expected


def test_a_large_state_meets_a_worker_that_never_saw_it() -> None:
    with simulation(_sized, workers=2, count=MANY) as grid:
        send(grid, RecordDict({"config": ConfigRecord({"kept": 900_000, "sent": 0})}), [1, 2])
        for worker_pid in pids_of(send(grid, RecordDict({"config": ConfigRecord({"kept": 0, "sent": 0})}))):
            kill(worker_pid)  # the next ones begin with the least memory
        replies = send(grid, RecordDict({"config": ConfigRecord({"kept": 0, "sent": 0})}))
    assert {a: r.content.config_records["found"]["size"] for a, r in replies.items()} == {
        1: 900_000,
        2: 900_000,
        3: 0,
        4: 0,
        5: 0,
    }


def test_large_instructions_after_small_ones() -> None:
    with simulation(echo, workers=2, count=MANY) as grid:
        for size in (1, 2_000_000, 1):
            content = RecordDict({"arrays": to_record({"x": np.arange(size, dtype=np.float32)})})
            for reply in send(grid, content).values():
                assert to_params(reply.content.array_records["arrays"])["x"].shape == (size,)


def _counting(message: Message, context: Context) -> Message:
    """Count visits, in all that a state can hold."""
    seen = context.state.config_records["seen"] if "seen" in context.state else ConfigRecord({"pids": [], "key": b"\x00"})
    visits = int(to_params(context.state.array_records["visits"])["n"]) if "visits" in context.state else 0
    context.state["visits"] = ArrayRecord({"n": Array(np.array(visits + 1))})
    context.state["half"] = to_record({"h": np.array(visits / 2, ml_dtypes.bfloat16)})
    context.state["seen"] = ConfigRecord({"pids": [*seen["pids"], os.getpid()], "key": b"\xff"})  # type: ignore[misc]
    context.state["loss"] = MetricRecord({"last": visits / 10})
    if visits == 1 and node_of(context) == 2:
        raise ValueError("what was kept before this is kept")
    found = RecordDict({"visits": ConfigRecord({"n": visits, "key": seen["key"]}), "who": ConfigRecord({"pid": os.getpid()})})
    return Message(found, reply_to=message)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_nodes_state_lasts_over_rounds_and_workers(workers: int) -> None:
    with simulation(_counting, workers=workers, count=MANY) as grid:
        for number in range(4):
            order = ALL[number:] + ALL[:number]  # so that a node meets the other worker
            replies = send(grid, RecordDict(), order)
            for address, reply in replies.items():
                if (number, address) == (1, 3):
                    assert reply.has_error()
                else:
                    assert reply.content.config_records["visits"] == ConfigRecord(
                        {"n": number, "key": b"\xff" if number else b"\x00"}
                    )


@pytest.mark.timeout(60)
def test_states_and_replies_too_large_for_a_pipe_do_not_lock_up() -> None:
    def host(message: Message, context: Context) -> Message:
        context.state["kept"] = ConfigRecord({"bytes": b"x" * 1_000_000})
        return Message(RecordDict({"config": ConfigRecord({"bytes": b"y" * 1_000_000})}), reply_to=message)

    with simulation(host, workers=2) as grid:
        for _ in range(3):
            content = RecordDict()
            replies = list(grid.send_and_receive([Message(content, node, "train") for node in range(1, 7)]))
            assert all(len(r.content.config_records["config"]["bytes"]) == 1_000_000 for r in replies)  # type: ignore[arg-type]
