"""Nodes in worker processes, as the tests of workers share them."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict

from edge.simulation import SimulationGrid
from tests.integration.support import node_of

ALL = [1, 2, 3, 4, 5]
MANY = 4  # nodes that train, beside the evaluator: addresses 1 to 5


def send(grid: SimulationGrid, content: RecordDict, addresses: list[int] | None = None) -> dict[int, Message]:
    replies = list(grid.send_and_receive([Message(content, address, "train") for address in addresses or ALL]))
    assert len(replies) == len(addresses or ALL)
    return {reply.metadata.src_node_id: reply for reply in replies}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def kill(pid: int) -> None:
    """Kill a worker, and wait until all its threads are dead, though nobody has collected it."""
    os.kill(pid, signal.SIGKILL)
    proc = Path(f"/proc/{pid}")
    assert eventually(lambda: " Z " in (proc / "stat").read_text(encoding="utf-8") and len(list((proc / "task").iterdir())) == 1)


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def echo(message: Message, context: Context) -> Message:
    """Say who ran where, and send back what came."""
    content = RecordDict(dict(message.content))
    content["who"] = ConfigRecord({"pid": os.getpid(), "node": node_of(context)})
    return Message(content, reply_to=message)


def pids_of(replies: dict[int, Message]) -> set[int]:
    return {int(reply.content.config_records["who"]["pid"]) for reply in replies.values()}  # type: ignore[arg-type]
