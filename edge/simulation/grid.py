"""A Flower grid whose nodes live in this process and its workers."""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from flwr.app import Context, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from edge.flower import Run, begin_run, error_reply, metadata_fields, received, set_message_id
from edge.simulation.host import Host, answer
from edge.simulation.workers import WorkerPool

UserValue = int | float | str | bool


class SimulationGrid(Grid):
    """Runs a `ClientApp` for each node, in as many processes as there are cores, and carries nothing.

    Replies come in the order in which they are ready. A node's `Context` lives as long as the grid.
    """

    def __init__(
        self, host: Host, node_configs: Mapping[int, dict[str, UserValue]], run_config: Mapping[str, UserValue], workers: int
    ) -> None:
        """Set up the nodes.

        Args:
            host: What every node runs: a `ClientApp`.
            node_configs: What each node is told of itself, by its address in this grid.
            run_config: What every node is told of the run.
            workers: Processes to train in; 1 trains in this one.
        """
        self._host, self._node_configs, self._run_config = host, node_configs, dict(run_config)
        self._contexts: dict[int, Context] = {}
        self._ids = itertools.count(1)
        self._pushed: dict[str, Message] = {}
        self._pool = WorkerPool(host, self._context, workers) if workers > 1 else None
        self.set_run(begin_run(1))

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """Return the run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new instruction."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the addresses of all nodes, ascending."""
        return sorted(self._node_configs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take instructions and return their ids; they are carried out when the replies are pulled."""
        pushed = {}
        for message in messages:
            set_message_id(message, str(next(self._ids)))
            pushed[message.metadata.message_id] = message
        self._pushed |= pushed
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Carry out instructions and return their replies."""
        return list(self._answers([self._pushed.pop(i) for i in message_ids if i in self._pushed]))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Yield each reply when it is ready. There is no time here, so no timeout: `TimedGrid` has both."""
        ids = self.push_messages(messages)
        yield from self._answers([self._pushed.pop(i) for i in ids])

    def close(self) -> None:
        """End the worker processes."""
        if self._pool:
            self._pool.close()

    def _answers(self, messages: list[Message]) -> Iterator[Message]:
        known = [m for m in messages if m.metadata.dst_node_id in self._node_configs]
        for message in messages:
            if message.metadata.dst_node_id not in self._node_configs:
                yield error_reply(message, ErrorCode.NODE_UNAVAILABLE, "no such node")
        # Queries stay here: what they load is then shared by the workers, which are forked later.
        if self._pool and len(known) > 1 and not known[0].metadata.message_type.startswith("query"):
            yield from self._pool.answers(known)
        else:
            for message in known:
                # In one process nodes share what they are sent, and must not see what another makes of it.
                own = received(metadata_fields(message), message.content)
                yield answer(self._host, own, self._context(message.metadata.dst_node_id))

    def _context(self, address: int) -> Context:
        if address not in self._contexts:
            node_config = self._node_configs[address]
            self._contexts[address] = Context(self._run.run_id, address, node_config, RecordDict(), dict(self._run_config))
        return self._contexts[address]
