"""What a round asks of a strategy: its parts, and the few steps between them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedslice.core.params import Model
from fedslice.core.records import NodeId, NodeReport, Update
from server.aggregation import Rule, ServerOptimizer
from server.ledger import Ledger
from server.registry import Registry
from server.selection import Policy


class Parts(Protocol):
    """The strategy as `server/round.py` sees it."""

    selection: Policy
    rule: Rule
    optimizer: ServerOptimizer
    registry: Registry
    cohort: int
    seed: int
    quorum: int
    deadline_s: float | None
    tell: Callable[..., None]

    def roll_call(self, grid: Grid) -> list[NodeReport]:
        """Return the nodes that can train."""

    def instruct(self, number: int, model: Model, cohort: Sequence[NodeId], grid: Grid) -> list[Message]:
        """Return one instruction a node."""

    def screened(self, replies: Iterable[Message], model: Model, ledger: Ledger) -> Iterator[Update]:
        """Yield the updates that pass the guard, as they come."""

    def learn(self, number: int, ledger: Ledger) -> None:
        """Let the parts that learn do so, after a round that counted."""

    def note_refusals(self, number: int, ledger: Ledger) -> None:
        """Remember who gave nothing, whether the round counted or not."""

    def is_due(self, number: int) -> bool:
        """Return whether the model is evaluated after a round."""

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Return the instructions to the evaluators."""

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return what they measured."""
