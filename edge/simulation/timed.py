"""The modelled network in front of any grid: it says when each reply arrives, and who is late."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from edge.flower import content_bytes, error_reply
from edge.simulation.clock import Phase, Timing, VirtualClock
from edge.slices import WAYS, Demand, Network, NodeProfile, Slicing, radio_fields
from edge.wrapper import GridWrapper
from fedslice.core.records import NodeId

LATE = "late: the reply came after the deadline"
CLOSED = "late: the reply came after the round had closed at {num} of {total}"
LOST = "lost: the node would have taken more than a week"
_PATIENCE_S = 3600.0  # on the wall's clock, as in Flower's own Strategy.start; a deadline is on the virtual one


class TimedGrid(GridWrapper):
    """Times training by the slice model, so that durations and deadlines are the same on any grid.

    What is asked beside it, such as who is there, takes no time. Each send-and-receive is one phase. Its transfers share
    the cell, so all of it is timed before it begins, from what is known then: what is sent, how much each node says that
    it computes, and that an update is as large as the node's last one or, at first, as the model. The clock then moves to
    the last arrival, or to the moment that closed the phase.
    """

    def __init__(
        self,
        inner: Grid,
        network: Network,
        nodes: Sequence[NodeProfile],
        names: Mapping[int, NodeId],
        work: Callable[[NodeId], int],
        slicing: Slicing | None = None,
        close_at: float = 1.0,
    ) -> None:
        """Stand in front of a grid.

        Args:
            inner: The grid that really carries.
            network: How long transfers take.
            nodes: The profile of each node, by node id.
            names: Node ids by the addresses that the grid uses; read at each exchange. Whoever is not in it,
                or has no profile, such as the evaluator beside the coordinator, is reached in no time.
            work: Says how many examples a round of training makes a node compute on.
            slicing: Steers the uplink while a cohort trains.
            close_at: The share of a cohort, in 0..1, whose updates close a round; the others are late.
        """
        super().__init__(inner)
        self._network, self._nodes, self._names, self._work = network, nodes, names, work
        self._slicing, self._close_at = slicing, close_at
        self._latency_ms = {
            one.name: {way: 1e3 * network.messages(one, way)[0].total_s for way in WAYS} for one in network.config.slices
        }
        self._update_bytes: dict[NodeId, int] = {}
        self.clock = VirtualClock()
        self.phase = Phase()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Yield replies as they come; a late one is an error reply. `timeout` is in virtual seconds.

        The grid behind is given its own, much longer time: however slow it really is, the same nodes are late.
        """
        instructions = {message.metadata.dst_node_id: message for message in messages}
        self.phase = Phase(from_s=self.clock.now_s)
        planned = self._plan(list(instructions.values()))
        closed_s, reason = self._closing(planned, timeout)
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
                late = self._note(instruction, planned, reply, closed_s)
                yield error_reply(instruction, ErrorCode.MESSAGE_UNAVAILABLE, reason) if late else reply
                del reply  # or it would stay in memory beside the next one
        finally:
            last_s = max((t.total_s for t in self.phase.timings.values() if not t.late), default=0.0)
            missed = bool(waiting) or any(t.late for t in self.phase.timings.values())
            self.phase.duration_s = closed_s if missed and math.isfinite(closed_s) else last_s
            self.clock.now_s += self.phase.duration_s
            self._settle(planned)

    def _settle(self, planned: Mapping[NodeId, Timing]) -> None:
        """End what still went on when the phase was closed, and count what each node spent until then."""
        phase = self.phase
        arrivals_s = sorted(timing.total_s for timing in planned.values())
        phase.complete = bool(arrivals_s) and phase.duration_s == arrivals_s[phase.num_awaited - 1]
        for node, timing in phase.timings.items():
            profile, left_s, parts = self._nodes[node], phase.duration_s, []
            for part_s in (timing.download_s, timing.compute_s, timing.upload_s):
                # Who was in time ended all: what is left of a long phase is rounded more coarsely than its parts.
                parts.append(min(part_s, left_s) if timing.late else part_s)
                left_s = max(left_s - parts[-1], 0.0)
            download_s, compute_s, upload_s = parts
            loaded = download_s / timing.download_s if timing.download_s > 0.0 else 1.0
            sent = upload_s / timing.upload_s if timing.upload_s > 0.0 else 1.0
            phase.timings[node] = replace(
                timing,
                download_s=download_s,
                compute_s=compute_s,
                upload_s=upload_s,
                bytes_down=int(timing.bytes_down * loaded),
                bytes_up=int(timing.bytes_up * sent),
                # Who waits, for the model or for the others, idles.
                joules=(download_s + left_s) * profile.idle_w + compute_s * profile.compute_w + upload_s * profile.transmit_w,
            )

    @property
    def bounded(self) -> bool:
        """Return whether the last phase's length can be held against the least possible one.

        Not so if a deadline closed it or somebody was lost or failed; nor if the scheduler gains from fading.
        """
        even = self._network.config.cell.scheduler == "round_robin"
        return even and self.phase.traffic is not None and self.phase.complete

    def radio(self) -> dict[str, Any]:
        """Return the fields of the last phase's `radio` event; none if nobody was reached over the cell."""
        if self.phase.traffic is None:
            return {}
        fields = radio_fields(self.phase.traffic, self.phase.duration_s)
        for node, timing in self.phase.timings.items():
            for way, num_bytes, seconds in (
                ("down", timing.bytes_down, timing.download_s),
                ("up", timing.bytes_up, timing.upload_s),
            ):
                fields["nodes"][str(node)][f"{way}_bps"] = 8.0 * num_bytes / seconds if seconds else math.nan
        return {"from_s": self.phase.from_s, **fields, "latency_ms": self._latency_ms}

    def _plan(self, instructions: Sequence[Message]) -> dict[NodeId, Timing]:
        """Return what each node's part in training will take, by what is known before it begins."""
        sizes: dict[int, int] = {}
        demands = []
        for instruction in instructions:
            node = self._names.get(instruction.metadata.dst_node_id)
            if node is None or node >= len(self._nodes) or not _trains(instruction):
                continue
            # The cohort shares one content: it is measured once.
            if (key := id(instruction.content)) not in sizes:
                sizes[key] = content_bytes(instruction.content)
            demands.append(
                Demand(
                    node=node,
                    bytes_down=sizes[key],
                    compute_s=self._work(node) / self._nodes[node].examples_per_s,
                    bytes_up=self._update_bytes.get(node, sizes[key]),
                )
            )
        if not demands:
            return {}
        demands.sort(key=lambda demand: demand.node)  # sums must not depend on the order of instructions
        traffic = self.phase.traffic = self._network.carry(demands, self.clock.now_s, self._slicing)
        self.phase.num_awaited = math.ceil(self._close_at * len(demands) - 1e-9)  # 0.55 of 20 is 11, whatever it rounds to
        parts = zip(demands, traffic.download_s.tolist(), traffic.compute_s.tolist(), traffic.upload_s.tolist(), strict=True)
        return {
            demand.node: Timing(download_s=down, compute_s=compute, upload_s=up, bytes_down=demand.bytes_down)
            for demand, down, compute, up in parts
        }

    def _closing(self, planned: Mapping[NodeId, Timing], timeout: float | None) -> tuple[float, str]:
        """Return when the phase closes, in s after it began, and what is said to those that come later."""
        deadline_s, reason = (math.inf, LOST) if timeout is None else (timeout, LATE)
        num = self.phase.num_awaited
        if 0 < num < len(planned):
            enough_s = sorted(t.total_s for t in planned.values())[num - 1]
            if enough_s < deadline_s:
                return enough_s, CLOSED.format(num=num, total=len(planned))
        return deadline_s, reason

    def _note(self, instruction: Message, planned: Mapping[NodeId, Timing], reply: Message, closed_s: float) -> bool:
        """Remember what one reply took, and return whether it was late. A failed node loaded, and sent nothing."""
        node = self._names.get(instruction.metadata.dst_node_id)
        if node is None or node not in planned:
            return False
        part, compute_s, upload_s, bytes_up = planned[node], 0.0, 0.0, 0
        if not reply.has_error():
            compute_s, upload_s, bytes_up = part.compute_s, part.upload_s, content_bytes(reply.content)
            self._update_bytes[node] = bytes_up
        total_s = part.download_s + compute_s + upload_s
        late = total_s > closed_s or math.isinf(total_s)
        self.phase.timings[node] = replace(part, compute_s=compute_s, upload_s=upload_s, bytes_up=bytes_up, late=late)
        return late


def _trains(instruction: Message) -> bool:
    return instruction.metadata.message_type.startswith("train")


def _sender(reply: Message, instructions: Mapping[int, Message]) -> int | None:
    """Return which node a reply is of. For one that is gone Flower's server answers in its own name."""
    if reply.metadata.src_node_id in instructions:
        return reply.metadata.src_node_id
    ids = {m.metadata.message_id: address for address, m in instructions.items()} if reply.has_error() else {}
    return ids.get(reply.metadata.reply_to_message_id)
