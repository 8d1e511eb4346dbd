"""A grid in front of another grid: selection, timing and guards are such fronts."""

from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from edge.flower import Run


class GridWrapper(Grid):
    """Passes everything on; what a front changes, it overrides."""

    def __init__(self, inner: Grid) -> None:
        """Stand in front of a grid."""
        self.inner = inner

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self.inner.set_run(run)

    @property
    def run(self) -> Run:
        """Return the run."""
        return self.inner.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new instruction."""
        return self.inner.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are there."""
        return self.inner.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send instructions and return their ids."""
        return self.inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return self.inner.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send instructions and return the replies, as they come."""
        return self.inner.send_and_receive(messages, timeout=timeout)
