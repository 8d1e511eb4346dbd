"""Any of Flower's own strategies in the place of our rule and optimizer, by its import path."""

import importlib
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.exception import AppExitException
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from pydantic import field_validator

from edge.flower import to_params, to_record
from edge.wrapper import GridWrapper
from fedslice.core.config import Table
from fedslice.core.errors import RunError, UsageError
from fedslice.core.params import Kind, Model, Params, added, dtype_of
from fedslice.core.records import Update
from fedslice.core.seeds import derived_seed
from server.aggregation.mean import Mean
from server.aggregation.rule import Fold

# Our selection has chosen the cohort: the strategy takes all of it, and must never wait for more.
_WHOLE_COHORT = {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}


class FlowerRuleConfig(Table):
    """A strategy of Flower's interface: its import path and its arguments."""

    rule: Literal["flower"]
    strategy: str
    args: dict[str, bool | int | float | str] = {}

    @field_validator("strategy")
    @classmethod
    def _importable(cls, path: str) -> str:
        _import(path)
        return path

    def build(self) -> "FlowerRule":
        """Return the rule.

        Raises:
            UsageError: The strategy does not take these arguments.
        """
        try:
            strategy = _import(self.strategy)(**_WHOLE_COHORT, **self.args)
        except (TypeError, ValueError, AssertionError) as error:
            raise UsageError(f"aggregation.args: {self.strategy} does not take these: {error}") from error
        if hasattr(strategy, "proximal_mu"):
            raise UsageError(
                f"aggregation.strategy: {self.strategy} wants a proximal term in the nodes' loss; they have none yet"
            )
        return FlowerRule(strategy)


def _import(path: str) -> type[FlowerStrategy]:
    module_name, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except Exception as error:
        raise ValueError(f"no strategy can be imported from {path!r}, as in flwr.serverapp.strategy.FedAdam: {error}") from error
    if not (isinstance(found, type) and issubclass(found, FlowerStrategy)):
        raise ValueError(f"{path} is not a flwr.serverapp.strategy.Strategy")  # noqa: TRY004 - pydantic's word for a bad value
    return found


class CohortGrid(GridWrapper):
    """Shows a cohort as the nodes that are there, so that a strategy which takes all takes just these."""

    def __init__(self, inner: Grid, cohort: Sequence[int]) -> None:
        """Freeze the cohort for a phase; `cohort` are addresses in the grid."""
        super().__init__(inner)
        self._cohort = list(cohort)

    def get_node_ids(self) -> Iterable[int]:
        """Return the cohort."""
        return list(self._cohort)


class FlowerRule:
    """Hands a Flower strategy what it expects: whole weights, replies in node order, and no odd one among them.

    It sees the trained entries only. Statistics and counters are folded by our mean: averaged as plain floats,
    as Flower would, counters become fractions and an adaptive optimizer drives variances below zero.
    """

    def __init__(self, strategy: FlowerStrategy) -> None:
        """Stand in front of a strategy."""
        self._strategy = strategy
        self._rest = Mean()
        self._number = self._seed = 0

    def instruct(
        self, number: int, model: Model, config: ConfigRecord, grid: Grid, cohort: Sequence[int], seed: int
    ) -> list[Message]:
        """Return the strategy's own instructions, with the entries put back that it does not see.

        Raises:
            RunError: The strategy refuses, or asks nodes for what they do not do.
        """
        self._number, self._seed = number, seed
        if not cohort:
            return []  # a strategy would wait for nodes, for ever
        trained = to_record(_wide(_trained(model, model.arrays)))
        asked = set(config)
        with self._at_work("instruct"):
            messages = list(self._strategy.configure_train(number, trained, config, CohortGrid(grid, cohort)))
        if more := {key for m in messages for record in m.content.config_records.values() for key in record} - asked:
            raise RunError(f"{self._name} asks nodes for {', '.join(sorted(more))}, which they do not know how to do")
        complete = to_record(model.arrays)
        # Messages of one content go on sharing it: it is then measured, and copied to a worker, once.
        contents = {id(m.content): RecordDict({**m.content, "arrays": complete}) for m in messages}
        rewritten = [Message(contents[id(m.content)], m.metadata.dst_node_id, m.metadata.message_type) for m in messages]
        return sorted(rewritten, key=lambda m: cohort.index(m.metadata.dst_node_id))

    def fold(self, model: Model, updates: Iterable[Update], quorum: int = 1) -> Fold | None:
        """Return the strategy's new weights as settled entries.

        Raises:
            RunError: The strategy refuses to aggregate.
        """
        received = sorted(updates, key=lambda update: update.node)
        rest = self._rest.fold(_rest_of(model), [_only(model, u) for u in received], quorum)
        if rest is None:
            return None
        keys = set.intersection(*(set(u.metrics) for u in received))
        replies = [_reply(model, update, keys) for update in received]
        with self._at_work(f"aggregate {len(replies)} updates"):
            arrays, _ = self._strategy.aggregate_train(self._number, replies)
            if arrays is None:
                return None
            weights = {name: array.astype(model.arrays[name].dtype) for name, array in to_params(arrays).items()}
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise RunError(f"{self._name} made a model that is not finite out of {len(replies)} updates that are")
        if {n: a.shape for n, a in weights.items()} != {n: a.shape for n, a in _trained(model, model.arrays).items()}:
            raise RunError(f"{self._name} returned other entries than the model has")
        return Fold({}, {**rest.settled, **weights})

    @property
    def needed_metrics(self) -> tuple[str, ...]:
        """Return the metrics that the strategy weighs updates by: QFedAvg raises the loss to a power."""
        key = getattr(self._strategy, "train_loss_key", None)
        return (key,) if isinstance(key, str) else ()

    @contextmanager
    def _at_work(self, what: str) -> Iterator[None]:
        """Give the strategy the same draws of Python's global generator in every run, and its faults a clear name."""
        state = random.getstate()
        random.seed(derived_seed(self._seed, "strategy", self._number, what))
        try:
            yield
        except (AppExitException, ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as error:
            raise RunError(f"{self._name} cannot {what}: {error}") from error
        finally:
            random.setstate(state)

    @property
    def _name(self) -> str:
        return type(self._strategy).__name__


def _wide(arrays: Params) -> Params:
    """Return arrays that Flower can compute with: its arrays know no bfloat16."""
    return {n: a.astype(np.float32) if a.dtype == dtype_of("bfloat16") else a for n, a in arrays.items()}


def _trained(model: Model, arrays: Params) -> dict[str, Any]:
    return {n: a for n, a in arrays.items() if model.entries[n].kind in (Kind.WEIGHT, Kind.ANGLE)}


def _rest_of(model: Model) -> Model:
    trained = _trained(model, model.arrays)
    arrays = {n: a for n, a in model.arrays.items() if n not in trained}
    return Model(arrays, {n: model.entries[n] for n in arrays})


def _only(model: Model, update: Update) -> Update:
    rest = {n: a for n, a in update.arrays.items() if model.entries[n].kind in (Kind.STATISTIC, Kind.COUNTER)}
    return Update(node=update.node, arrays=rest, weight=update.weight, whole=update.whole)


def _reply(model: Model, update: Update, keys: set[str]) -> Message:
    sent = _trained(model, update.arrays)
    whole = sent if update.whole else {n: added(model.arrays[n], a, model.entries[n]) for n, a in sent.items()}
    weight = int(update.weight) if update.weight.is_integer() else update.weight
    metrics = MetricRecord({"num-examples": weight, **{k: update.metrics[k] for k in sorted(keys)}})
    instruction = Message(RecordDict(), update.node + 1, "train")
    return Message(RecordDict({"arrays": to_record(_wide(whole)), "metrics": metrics}), reply_to=instruction)


__all__ = ["CohortGrid", "FlowerRule", "FlowerRuleConfig"]
