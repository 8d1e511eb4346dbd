"""Strategies named by import path in a config, to see what a strategy of Flower's interface is shown."""

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg


class Seen(FedAvg):
    """FedAvg that notes what it is shown. It is made from a config, so notes are kept on the class."""

    nodes: list[list[int]] = []
    entries: list[list[str]] = []
    replies: list[tuple[int, int]] = []

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        Seen.nodes.append([*grid.get_node_ids(), *grid.get_node_ids()])  # read twice, as Flower's own do
        Seen.entries.append(list(arrays))
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        listed = list(replies)
        Seen.replies.append((server_round, len(listed)))
        return super().aggregate_train(server_round, listed)


class Moody(FedAvg):
    """Refuses whatever it is given."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise ValueError("no luck")


class Forgetful(FedAvg):
    """Returns a model without one of its entries."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        arrays.popitem()
        return arrays, metrics
