"""The modelled network in front of any grid: it says when each reply arrives, and who is late."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from edge.flower import content_bytes, error_reply
from edge.simulation.clock import Phase, Timing, VirtualClock
from edge.slices import Network, NodeProfile
from edge.wrapper import GridWrapper
from fedslice.core.records import NodeId

LATE = "late: the reply came after the deadline"
_PATIENCE_S = 3600.0  # on the wall's clock, as in Flower's own Strategy.start; a deadline is on the virtual one


class TimedGrid(GridWrapper):
    """Times every exchange by the slice model, so that durations and deadlines are the same on any grid.

    Each send-and-receive is one phase: all its transfers start when the phase does, and the clock then
    moves to the last arrival, or to the deadline if somebody missed it.
    """

    def __init__(
        self,
        inner: Grid,
        network: Network,
        nodes: Sequence[NodeProfile],
        names: Mapping[int, NodeId],
        work: Callable[[NodeId], int],
    ) -> None:
        """Stand in front of a grid.

        Args:
            inner: The grid that really carries.
            network: How long a transfer takes.
            nodes: The profile of each node, by node id.
            names: Node ids by the addresses that the grid uses; read at each exchange. Whoever is not in it,
                or has no profile, such as the evaluator beside the coordinator, is reached in no time.
            work: Says how many examples a round of training makes a node compute on.
        """
        super().__init__(inner)
        self._network, self._nodes, self._names, self._work = network, nodes, names, work
        self.clock = VirtualClock()
        self.phase = Phase()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Yield replies as they come; a late one is an error reply. `timeout` is in virtual seconds.

        The grid behind is given its own, much longer time: however slow it really is, the same nodes are late.
        """
        instructions = {message.metadata.dst_node_id: message for message in messages}
        self.phase = Phase()
        sizes: dict[int, int] = {}
        for instruction in instructions.values():
            # The cohort shares one content: it is measured once.
            sizes.setdefault(id(instruction.content), content_bytes(instruction.content))
        waiting = set(instructions)
        try:
            for reply in self.inner.send_and_receive(list(instructions.values()), timeout=_PATIENCE_S):
                address = _sender(reply, instructions)
                if address is None:
                    continue
                instruction = instructions[address]
                if reply.metadata.src_node_id != address:
                    reply = error_reply(instruction, reply.error.code, reply.error.reason or "")
                waiting.discard(address)
                timing = self._time(instruction, sizes[id(instruction.content)], reply, timeout)
                yield error_reply(instruction, ErrorCode.MESSAGE_UNAVAILABLE, LATE) if timing.late else reply
                del reply  # or it would stay in memory beside the next one
        finally:
            last = max((t.total_s for t in self.phase.timings.values() if not t.late), default=0.0)
            missed = bool(waiting) or any(t.late for t in self.phase.timings.values())
            self.clock.now_s += timeout if missed and timeout is not None else last

    def _time(self, instruction: Message, bytes_down: int, reply: Message, timeout: float | None) -> Timing:
        """Return what one reply took, and remember it. A failed node downloaded, and sent nothing worth counting."""
        node = self._names.get(instruction.metadata.dst_node_id)
        if node is None or node >= len(self._nodes):
            return Timing()
        profile, start = self._nodes[node], self.clock.now_s
        bytes_up = 0 if reply.has_error() else content_bytes(reply.content)
        download_s = self._network.transfer_time(node, "down", bytes_down, start)
        trained = instruction.metadata.message_type.startswith("train") and not reply.has_error()
        compute_s = self._work(node) / profile.examples_per_s if trained else 0.0
        upload_s = self._network.transfer_time(node, "up", bytes_up, start + download_s + compute_s)
        timing = Timing(
            download_s=download_s,
            compute_s=compute_s,
            upload_s=upload_s,
            bytes_down=bytes_down,
            bytes_up=bytes_up,
            joules=download_s * profile.idle_w + compute_s * profile.compute_w + upload_s * profile.transmit_w,
            late=timeout is not None and download_s + compute_s + upload_s > timeout,
        )
        self.phase.timings[node] = timing
        return timing


def _sender(reply: Message, instructions: Mapping[int, Message]) -> int | None:
    """Return which node a reply is of. For one that is gone Flower's server answers in its own name."""
    if reply.metadata.src_node_id in instructions:
        return reply.metadata.src_node_id
    ids = {m.metadata.message_id: address for address, m in instructions.items()} if reply.has_error() else {}
    return ids.get(reply.metadata.reply_to_message_id)
