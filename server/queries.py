"""What the coordinator asks before the first round: who is there, their common scale, and the initial model."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from edge.flower import to_params, to_record
from fedslice.core.errors import RunError
from fedslice.core.params import Array, Model, describe
from server.registry import Introduction

_UNKNOWN_QUESTION = "function registered"  # what Flower says of a ClientApp that has no such query
_POLL_S = 0.5
_MOST = 2**48  # of nodes and examples: a greater number is a fault


def await_nodes(grid: Grid, expected: int, timeout_s: float, tell: Callable[[int], None]) -> None:
    """Wait until as many nodes are there as a federation has: on real grids they join one by one.

    Args:
        grid: Whatever reaches the nodes.
        expected: How many nodes, the evaluator included.
        timeout_s: How long to wait, on the wall's clock.
        tell: Hears how many are there, whenever that has changed and is not enough.

    Raises:
        RunError: They were not all there in time.
    """
    until, told = time.monotonic() + timeout_s, -1
    while (present := len(list(grid.get_node_ids()))) < expected:
        if present != told:
            tell(present)
            told = present
        if time.monotonic() >= until:
            raise RunError(
                f"{present} of {expected} nodes joined within {timeout_s:g} s (federation.join_timeout_s); "
                f"{expected - 1} that train (nodes.count) and the evaluator are needed"
            )
        time.sleep(min(_POLL_S, timeout_s))


def introduce(grid: Grid, addresses: Sequence[int]) -> dict[int, Introduction]:
    """Ask nodes who they are. One that does not know the question, such as a plain Flower app, says nothing of itself.

    Raises:
        RunError: A node could not answer.
    """
    met: dict[int, Introduction] = {}
    for address, reply in _ask(grid, addresses, "query.describe", RecordDict()).items():
        if not reply.has_error():
            intro = _introduction(reply, address)
        elif _UNKNOWN_QUESTION in (reply.error.reason or ""):
            intro = Introduction(None, "train", "", 1, 0)
        else:
            raise RunError(f"the node at {address} did not say who it is: {reply.error.reason}")
        met[address] = intro
    return met


def totals(grid: Grid, addresses: Sequence[int]) -> dict[str, Array]:
    """Return the sums over all nodes of what each may tell of its features, added in the order given.

    Raises:
        RunError: A node could not answer.
    """
    added: dict[str, Array] = {}
    for address, reply in _ask(grid, addresses, "query.sums", RecordDict()).items():
        with _understood(address, "query.sums"):
            for name, array in to_params(_content(reply, address).array_records["arrays"]).items():
                if not np.isfinite(array).all():
                    raise ValueError(f"the sums {name} are not finite")
                added[name] = np.add(added[name], array) if name in added else np.array(array)
    return added


def initial_model(grid: Grid, address: int, sums: dict[str, Array]) -> tuple[Model, dict[str, str]]:
    """Return the initial model and how the task is judged: metrics by name, each `higher` or `lower`.

    Raises:
        RunError: The node could not answer.
    """
    reply = _ask(grid, [address], "query.init", RecordDict({"totals": to_record(sums)}))[address]
    content = _content(reply, address)
    with _understood(address, "query.init"):
        arrays = to_params(content.array_records["arrays"])
        kinds = {name: str(kind) for name, kind in content.config_records["kinds"].items()}
        better = {name: str(which) for name, which in content.config_records.get("better", ConfigRecord()).items()}
        return Model(arrays, describe(arrays, kinds)), better


def _ask(grid: Grid, addresses: Sequence[int], what: str, content: RecordDict) -> dict[int, Message]:
    if not addresses:
        return {}
    messages = [Message(content, address, what) for address in addresses]
    replies = {r.metadata.src_node_id: r for r in grid.send_and_receive(messages)}
    if silent := [address for address in addresses if address not in replies]:
        raise RunError(f"no answer to {what} from the nodes at {', '.join(map(str, silent))}")
    return {address: replies[address] for address in addresses}


def _content(reply: Message, address: int) -> RecordDict:
    if reply.has_error():
        raise RunError(f"the node at {address} failed: {reply.error.reason}")
    return reply.content


def _introduction(reply: Message, address: int) -> Introduction:
    with _understood(address, "query.describe"):
        report = reply.content.config_records["report"]
        numbers = [report[key] for key in ("node", "num-examples", "num-processed")]
        node, num_examples, num_processed = (n for n in numbers if isinstance(n, int) and 0 <= n < _MOST)
        return Introduction(node, str(report["role"]), str(report["slice"]), num_examples, num_processed)


@contextmanager
def _understood(address: int, what: str) -> Iterator[None]:
    """Turn an answer that is not what was asked for into one clear sentence."""
    try:
        yield
    except (KeyError, ValueError) as error:
        raise RunError(f"the node at {address} answered {what} with something else: {error}") from error
