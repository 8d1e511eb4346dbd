"""A Flower Strategy made of parts: selection x guard x rule x optimizer, with a deadline and a quorum.

It runs in our own rounds (`server/round.py`) and, because it is a Flower Strategy, under `Strategy.start` too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from edge.flower import to_params, to_record
from edge.simulation import Phase, TimedGrid
from fedslice.core.params import Entry, Model, describe
from fedslice.core.records import NodeId, NodeReport, Update
from server import round as rounds
from server.aggregation import FlowerRule, Guard, Rule, ServerOptimizer
from server.config import ServerConfig
from server.ledger import Ledger, weighted_metrics
from server.registry import Registry
from server.replies import measurement_of, update_of
from server.selection import Policy


class Strategy(FlowerStrategy):
    """The parts of a federation's rounds. `entries` are the kinds of the model's entries."""

    def __init__(self, config: ServerConfig, registry: Registry, entries: Mapping[str, Entry] | None = None) -> None:
        """Build the parts from their tables."""
        self.registry, self.entries = registry, entries
        self.selection: Policy = config.selection.build()
        self.rule: Rule = config.aggregation.build()
        needed = self.rule.needed_metrics if isinstance(self.rule, FlowerRule) else ()
        self.guard = Guard(config.guard, needed)
        self.optimizer: ServerOptimizer = config.optimizer.build()
        federation = config.federation
        self.cohort, self.quorum = config.selection.cohort, federation.quorum
        self.seed, self.deadline_s = federation.seed, federation.deadline_s
        self._evaluate_every, self._last_round = federation.evaluate_every, federation.rounds
        self.tell: Callable[..., None] = lambda event, **fields: None  # hears of what belongs in the run's log
        self._open: tuple[Model, list[NodeId]] = (Model({}, {}), [])
        self._phase_of: Callable[[], Phase] = Phase

    def roll_call(self, grid: Grid) -> list[NodeReport]:
        """Return the nodes that can train, after meeting those that are new."""
        nodes, met = self.registry.roll_call(grid.get_node_ids())
        for intro in met:
            self.tell("node_joined", **asdict(intro))
        return nodes

    def instruct(self, number: int, model: Model, cohort: Sequence[NodeId], grid: Grid) -> list[Message]:
        """Return one instruction a node; all share one content."""
        self._open = (model, list(cohort))
        if isinstance(grid, TimedGrid):
            self._phase_of = lambda: grid.phase
        addresses = [self.registry.address(node) for node in cohort]
        config = ConfigRecord({"server-round": number})
        if isinstance(self.rule, FlowerRule):
            return self.rule.instruct(number, model, config, grid, addresses, self.seed)
        content = RecordDict({"arrays": to_record(model.arrays), "config": config})
        return [Message(content, address, "train") for address in addresses]

    def screened(self, replies: Iterable[Message], model: Model, ledger: Ledger) -> Iterator[Update]:
        """Yield the updates that pass the guard, as they come; note the others with their reason."""
        limits = self.guard.limits(model)
        for reply in replies:
            node = self.registry.names[reply.metadata.src_node_id]
            if ledger.seen(node):
                ledger.reject(node, "duplicate: the node answered before")
                continue
            try:
                update = update_of(reply, node)
            except ValueError as error:
                ledger.reject(node, str(error))
                continue
            reason, norm = self.guard.judge(update, model, limits)
            if reason:
                ledger.reject(node, reason)
            else:
                ledger.accept(update, norm)
                yield update
            del reply, update  # or they would stay in memory beside the next ones

    def learn(self, number: int, ledger: Ledger) -> None:
        """Let the parts that learn do so, after a round that counted."""
        accepted = ledger.accepted()
        self.guard.observe([a.norm for a in accepted])
        timings = self._phase_of().timings
        times = {node: timing.total_s for node, timing in timings.items()}
        reports = [self.registry.observe(number, a.update, times.get(a.update.node)) for a in accepted]
        self.selection.observe(number, reports)

    def note_refusals(self, number: int, ledger: Ledger) -> None:
        """Remember who gave nothing, also when the round is void: or the same nodes would be chosen for ever."""
        for node in {r.node for r in ledger.rejected} - set(ledger.replied):
            self.registry.refuse(number, node)

    def is_due(self, number: int) -> bool:
        """Return whether the model is evaluated after a round."""
        return number % self._evaluate_every == 0 or number == self._last_round

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Open a round: Flower's name for it."""
        received = to_params(arrays)
        model = Model(received, self.entries or describe(received, {}))
        _, messages = rounds.open_round(server_round, model, self, grid)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close a round: Flower's name for it."""
        model, cohort = self._open
        new_model, ledger = rounds.close_round(server_round, model, self, cohort, replies)
        return (to_record(new_model.arrays) if new_model else None), MetricRecord(dict(ledger.metrics()))

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Send the model to the evaluators."""
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "server-round": server_round})})
        return [Message(content, address, "evaluate") for address in self.registry.evaluators()]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the mean of what the evaluators measured, by number of examples."""
        terms = []
        for reply in replies:
            try:
                terms.append(measurement_of(reply))
            except ValueError as error:
                self.tell("evaluation_failed", round=server_round, reason=str(error))
        return MetricRecord(dict(weighted_metrics(terms))) if terms else None

    def summary(self) -> None:
        """Say nothing: the run's config says it all."""
