"""What several tests need: models, replies as a node sends them, and a strategy with ten nodes around it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from edge.flower import begin_run, set_message_id, to_record
from edge.wrapper import GridWrapper
from fedslice.core.params import Array, Model, Params, describe
from server.config import ServerConfig
from server.ledger import Ledger
from server.registry import Introduction, Registry
from server.round import close_round
from server.strategy import Strategy

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TASK_METRICS = {"train_loss": 0.5}


class BatchNormNet(torch.nn.Module):
    """A linear model behind a batch norm: weights, statistics and a counter."""

    def __init__(self, num_features: int = 4) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(num_features)
        self.out = torch.nn.Linear(num_features, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.norm(x))
        return result


class FakeGrid(Grid):
    """A grid of addresses behind which a function answers."""

    def __init__(self, addresses: Iterable[int], host: Callable[[Message], Message | None] = lambda _: None) -> None:
        self.addresses, self._host, self.sent = list(addresses), host, 0
        self.set_run(begin_run(1))

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type)

    def get_node_ids(self) -> Iterable[int]:
        return self.addresses

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        for message in messages:
            self.sent += 1
            set_message_id(message, str(self.sent))
            answer = self._host(message)
            if answer is not None:
                yield answer
            del answer  # as a real grid, hold nothing


def model_of(arrays: Params, kinds: Mapping[str, str] | None = None) -> Model:
    return Model(arrays, describe(arrays, kinds or {}))


def instruction(node: int, content: RecordDict | None = None, what: str = "train") -> Message:
    """What the coordinator sends to a node; its address is its id plus one."""
    message = Message(content if content is not None else RecordDict(), node + 1, what)
    set_message_id(message, f"{what}-{node}")
    return message


def reply(
    node: int,
    arrays: Params | ArrayRecord,
    weight: float | None = 10,
    *,
    carries: str | None = "difference",
    metrics: Mapping[str, float] | None = None,
) -> Message:
    """A training reply as `client.app` makes it; without `carries`, as a plain Flower app does."""
    content = RecordDict({"arrays": arrays if isinstance(arrays, ArrayRecord) else to_record(arrays)})
    if weight is not None:
        content["metrics"] = MetricRecord({"num-examples": weight, **(TASK_METRICS if metrics is None else metrics)})
    if carries:
        content["report"] = ConfigRecord({"node": node, "carries": carries})
    return Message(content, reply_to=instruction(node))


def strategy_of(num_nodes: int = 10, **tables: Any) -> Strategy:
    """A strategy whose registry has met `num_nodes` nodes."""
    begin_run(1)
    registry = Registry(lambda found: {a: Introduction(a - 1, "train", "embb", 10, 10) for a in found}, lambda _node, _intro: 0.0)
    registry.roll_call(range(1, num_nodes + 1))
    selection = {"policy": "uniform", "cohort": num_nodes}
    return Strategy(ServerConfig.model_validate({"selection": selection, **tables}), registry)


def play(
    strategy: Strategy, model: Model, replies: Iterable[Message], number: int = 1, num_nodes: int = 10
) -> tuple[Model | None, Ledger]:
    """One round from instructions to the new model, over replies that are given."""
    cohort = list(range(num_nodes))
    grid = GridWrapper(FakeGrid(range(1, num_nodes + 1)))
    messages = strategy.instruct(number, model, cohort, grid)
    assert [m.metadata.dst_node_id - 1 for m in messages] == cohort
    return close_round(number, model, strategy, cohort, replies)


def bits(arrays: Params) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """What must be equal for two sets of parameters to be the same bit for bit."""
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in sorted(arrays.items())}


def random_like(model: Model, rng: np.random.Generator, scale: float = 0.1) -> dict[str, Array]:
    """A plausible update: small differences, counters one further."""
    arrays = {}
    for name, array in model.arrays.items():
        counts = array.dtype.kind in "iu"
        arrays[name] = np.asarray(array + 1 if counts else rng.normal(0, scale, array.shape)).astype(array.dtype)
    return arrays


def dtypes_of(arrays: Params) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(array.dtype), array.shape) for name, array in arrays.items()}


def reasons(ledger: Ledger) -> Sequence[tuple[int, str]]:
    return [(r.node, r.reason) for r in ledger.rejected]
