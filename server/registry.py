"""The nodes: who they are, what each last reported, and how each has fared."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedslice.core.errors import RunError
from fedslice.core.records import NodeId, NodeReport, Update


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a node says of itself when it is first met. `num_processed` are the examples a round makes it compute on.

    A node without a name of its own, such as a plain Flower app, is given the next one that is free.
    """

    node: NodeId | None
    role: str
    slice: str
    num_examples: int
    num_processed: int


Introduce = Callable[[Sequence[int]], Mapping[int, Introduction]]
Predict = Callable[[NodeId, Introduction], float]


class Registry:
    """Knows nodes by their id, which lasts, and their address in the grid, which may not."""

    def __init__(self, introduce: Introduce, predict: Predict) -> None:
        """Start empty.

        Args:
            introduce: Asks the nodes at some addresses who they are.
            predict: Says how long a round would take a node that has had none yet.
        """
        self._introduce, self._predict = introduce, predict
        self.names: dict[int, NodeId] = {}
        self._addresses: dict[NodeId, int] = {}
        self._nodes: dict[NodeId, NodeReport] = {}
        self._evaluators: dict[NodeId, int] = {}
        self._intros: dict[NodeId, Introduction] = {}

    def roll_call(self, addresses: Iterable[int]) -> tuple[list[NodeReport], list[Introduction]]:
        """Note who is there.

        Returns:
            The nodes that can train, those that are away marked as offline, and those met for the first time.

        Raises:
            RunError: Two nodes that are there say that they are the same.
        """
        present = set(addresses)
        met = []
        for address, said in self._introduce(sorted(present - self.names.keys())).items():
            node = self._name(said, present)
            intro = replace(said, node=node)
            self.names[address] = node
            self._addresses[node] = address
            if intro.role == "evaluate":
                self._evaluators[node] = address
            else:
                self._intros[node] = intro
                self._nodes[node] = self._first_report(node, intro)
            met.append(intro)
        for node, report in self._nodes.items():
            online = self._addresses[node] in present
            if online is not report.online:
                self._nodes[node] = replace(report, online=online)
        return list(self._nodes.values()), sorted(met, key=lambda intro: intro.node or 0)

    def _name(self, intro: Introduction, present: set[int]) -> NodeId:
        if intro.node is None:
            return next(node for node in itertools.count() if node not in self._addresses)
        if self._addresses.get(intro.node) in present:
            raise RunError(f"two nodes say that they are node {intro.node}: give each its own partition-id")
        return intro.node

    def address(self, node: NodeId) -> int:
        """Return where a node is reached."""
        return self._addresses[node]

    def evaluators(self) -> list[int]:
        """Return where the nodes are reached that hold central test data."""
        return [self._evaluators[node] for node in sorted(self._evaluators)]

    def slice_of(self, node: NodeId) -> str:
        """Return the slice that a node said it is on."""
        return self._nodes[node].slice

    def work(self, node: NodeId) -> int:
        """Return how many examples a round makes a node compute on, as it said when it was met."""
        intro = self._intros.get(node)
        return intro.num_processed if intro else 0

    def forecast(self) -> None:
        """Predict anew how long a round takes each node that has had none: the model's size is known by now."""
        for node, report in self._nodes.items():
            if report.num_rounds == 0:
                self._nodes[node] = replace(report, round_s=self._predict(node, self._intros[node]))

    def observe(self, number: int, update: Update, round_s: float | None) -> NodeReport:
        """Note what a node's update tells of it."""
        known = self._nodes[update.node]
        loss = update.metrics.get("train_loss")
        report = replace(known, loss=loss, round_s=round_s, last_round=number, num_rounds=known.num_rounds + 1)
        self._nodes[update.node] = report
        return report

    def refuse(self, number: int, node: NodeId) -> None:
        """Note that a node was asked and gave nothing that could be folded: what its loss is, nobody knows any more."""
        known = self._nodes[node]
        self._nodes[node] = replace(known, loss=None, last_round=number, num_rounds=known.num_rounds + 1)

    def state(self) -> dict[str, Any]:
        """Return what was learned of each node."""
        learned = ("loss", "round_s", "last_round", "num_rounds")
        return {str(n): {key: getattr(r, key) for key in learned} for n, r in sorted(self._nodes.items())}

    def _first_report(self, node: NodeId, intro: Introduction) -> NodeReport:
        known = self._nodes.get(node)
        if known:  # back under another address: what was learned of it stands
            return replace(known, num_examples=intro.num_examples, slice=intro.slice)
        predicted = self._predict(node, intro)
        return NodeReport(node=node, num_examples=intro.num_examples, slice=intro.slice, round_s=predicted)
