"""A whole run: who is there, the initial model, the rounds, and a closing look at every node."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from edge.flower import to_record
from edge.simulation import TimedGrid
from edge.slices import Demand, Network, profiles
from fedslice.core.errors import RunError
from fedslice.core.events import EventLog
from fedslice.core.params import Model
from fedslice.core.records import NodeId
from fedslice.core.seeds import rng
from server import checkpoint, queries
from server.config import ServerConfig
from server.registry import Introduction, Registry
from server.replies import measurement_of
from server.round import run_round
from server.run_folder import RunFolder, Summary
from server.strategy import Strategy

_MOST_NODES_JUDGED = 200  # in larger federations the closing look is at a sample


class Coordinator:
    """Runs a federation over a grid and keeps all that happens in a run folder."""

    def __init__(self, config: ServerConfig, grid: Grid, folder: RunFolder, events: EventLog) -> None:
        """Put the parts together.

        Args:
            config: What the coordinator reads of the config.
            grid: Whatever reaches the nodes.
            folder: Where the run is written.
            events: Who is told of what happens.
        """
        self._config, self._folder, self._events = config, folder, events
        nodes, seed = profiles(config.nodes, config.federation.seed), config.federation.seed
        self._network = Network(config.network, nodes, seed)
        self._speeds = [profile.examples_per_s for profile in nodes]
        self._model_bytes = 0
        registry = Registry(lambda addresses: queries.introduce(self._grid, addresses), self._predicted_s)
        self._strategy = Strategy(config, registry)
        self._strategy.tell = events.emit
        slicing, close_at = config.slicing.build(config.federation), config.federation.close_at
        self._grid = TimedGrid(grid, self._network, nodes, registry.names, registry.work, slicing, close_at)

    def run(self) -> Summary:
        """Run all rounds. What was done is written whatever happens.

        Raises:
            RunError: No round counted, or a part could not go on.
        """
        self._events.emit("opened", run_dir=str(self._folder.path))
        model = self._begin()
        void, federation = 0, self._config.federation
        try:
            for number in range(1, federation.rounds + 1):
                model, record = run_round(number, model, self._strategy, self._grid)
                void += record.void
                self._folder.append(record)
                self._commit(number, model)
                self._events.emit("round", **asdict(record))
            self._judge_nodes(model)
        except KeyboardInterrupt:
            self._events.emit("interrupted")
            raise
        finally:
            summary = self._folder.finish(federation.name, federation.seed, model)
        self._events.emit("finished", **asdict(summary))
        if void == federation.rounds:
            raise RunError(f"no round counted: all {void} were void; see rejected in {self._folder.path / 'rounds.jsonl'}")
        return summary

    def _begin(self) -> Model:
        """Meet the nodes, find their common scale, and ask one of them for the initial model."""
        expected = self._config.nodes.count + 1  # and the evaluator
        queries.await_nodes(
            self._grid,
            expected,
            self._config.federation.join_timeout_s,
            lambda present: self._events.emit("waiting_for_nodes", present=present, expected=expected),
        )
        nodes = self._strategy.roll_call(self._grid)
        if not nodes:
            raise RunError("no node that can train has joined")
        addresses = [self._strategy.registry.address(node) for node in sorted(n.node for n in nodes)]
        model, better = queries.initial_model(self._grid, addresses[0], queries.totals(self._grid, addresses))
        self._grid.clock.now_s = 0.0  # the clock tells of rounds
        self._strategy.entries, self._model_bytes = model.entries, model.num_bytes()
        self._strategy.registry.forecast()
        rounds = self._config.federation.rounds
        if self._network.out_of_reach:
            self._events.emit("out_of_reach", nodes=self._network.out_of_reach)
        self._events.emit("began", nodes=len(nodes), rounds=rounds, better=better, model_bytes=self._model_bytes)
        return model

    def _predicted_s(self, node: NodeId, intro: Introduction) -> float:
        """Return how long a first round would take a node: what policies know before they have seen it."""
        if node >= len(self._speeds):
            return 0.0
        compute_s = intro.num_processed / self._speeds[node]
        size = self._model_bytes
        return self._network.alone_s(Demand(node=node, bytes_down=size, compute_s=compute_s, bytes_up=size))

    def _commit(self, number: int, model: Model) -> None:
        s = self._strategy
        state: dict[str, Any] = {"selection": s.selection.state(), "guard": s.guard.state(), "registry": s.registry.state()}
        state["virtual_s"] = self._grid.clock.now_s
        checkpoint.commit(self._folder.path / "checkpoint", number, model, s.optimizer.tensors(), state)

    def _judge_nodes(self, model: Model) -> None:
        """Measure the final model on each node's own data: a good mean can hide a node that it fails."""
        nodes = sorted(n.node for n in self._strategy.roll_call(self._grid) if n.online)
        if len(nodes) > _MOST_NODES_JUDGED:
            draw = rng(self._config.federation.seed, "judge").choice(nodes, _MOST_NODES_JUDGED, replace=False)
            nodes = sorted(int(node) for node in draw)
        for node, weight, metrics in self._measured(model, nodes):
            self._events.emit("node_evaluated", node=node, num_examples=weight, metrics=metrics)

    def _measured(self, model: Model, nodes: Sequence[NodeId]) -> list[tuple[NodeId, float, dict[str, float]]]:
        content = RecordDict({"arrays": to_record(model.arrays), "config": ConfigRecord({})})
        registry = self._strategy.registry
        messages = [Message(content, registry.address(node), "evaluate") for node in nodes]
        measured = []
        for reply in self._grid.send_and_receive(messages):
            node = registry.names[reply.metadata.src_node_id]
            try:
                weight, metrics = measurement_of(reply)
            except ValueError as error:
                self._events.emit("evaluation_failed", node=node, reason=str(error))
                continue
            measured.append((node, weight, dict(metrics)))
        return sorted(measured, key=lambda row: row[0])
