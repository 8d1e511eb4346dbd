"""What the integration tests share: runs of a config, grids over any node code, and a run folder read back."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

from client.app import app as client_app
from edge.flower import to_params, to_record
from edge.simulation import Host, SimulationGrid, UserValue
from edge.wrapper import GridWrapper
from fedslice.core.config import RunConfig
from server.app import serve
from server.run_folder import Summary

DIGITS = "configs/digits.toml"
QUICKSTART = "configs/quickstart.toml"
COUNT = 10  # nodes that train, in both


def run_config(out: Path, *overrides: str, config: str = DIGITS) -> RunConfig:
    return RunConfig(config, overrides, out=str(out))


def node_configs(count: int = COUNT) -> dict[int, dict[str, UserValue]]:
    """Return nodes by their address, from 1; the last is the evaluator."""
    return {node + 1: {"partition-id": node, "num-partitions": count} for node in range(count + 1)}


@contextmanager
def simulation(
    host: Host = client_app, run_config: Mapping[str, UserValue] | None = None, *, workers: int = 1, count: int = COUNT
) -> Iterator[SimulationGrid]:
    """Give a grid, and end its workers."""
    grid = SimulationGrid(host, node_configs(count), run_config or {}, workers)
    try:
        yield grid
    finally:
        grid.close()


def served(run: RunConfig, host: Host, *, workers: int = 1, front: Callable[[Grid], Grid] = GridWrapper) -> Summary:
    """Run a federation over nodes that run `host`."""
    with simulation(host, run.as_run_config(), workers=workers) as grid:
        return serve(front(grid), run)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Networks this small only wait for more threads than one, the longer the busier the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of `rounds.jsonl`, without what is measured on the wall's clock."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        del line["wall_s"]
    return lines


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def model_bytes(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def node_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


def sends_nan(node: int) -> Host:
    """Return our node code, but one node's update holds a NaN."""

    def host(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if message.metadata.message_type == "train" and node_of(context) == node:
            arrays = {name: np.array(array) for name, array in to_params(reply.content.array_records["arrays"]).items()}
            next(iter(arrays.values())).flat[0] = np.nan
            reply.content["arrays"] = to_record(arrays)
        return reply

    return host


def ask(grid: Grid, content: RecordDict, addresses: list[int], kind: str = "query.echo") -> dict[int, Message]:
    """Send one content to nodes and return their replies by address."""
    replies = grid.send_and_receive([Message(content, address, kind) for address in addresses])
    return {reply.metadata.src_node_id: reply for reply in replies}
