"""What a selection policy is."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedslice.core.records import NodeId, NodeReport


class Policy(Protocol):
    """Chooses who trains. It never raises on odd reports and never names a node that is offline, or one twice."""

    def select(self, nodes: Sequence[NodeReport], k: int, rng: np.random.Generator) -> list[NodeId]:
        """Return the cohort, ascending: `k` of the nodes that are online, or all of them if they are fewer.

        The answer does not depend on the order of `nodes`.
        """

    def observe(self, round_number: int, cohort: Sequence[NodeReport]) -> None:
        """Learn from a round that counted: what its cohort now reports."""

    def state(self) -> dict[str, Any]:
        """Return all that was learned, as JSON can hold it."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that was saved."""


def online(nodes: Sequence[NodeReport]) -> list[NodeReport]:
    """Return the nodes that can be chosen: online, each once, by node id."""
    return [by_id for _, by_id in sorted({n.node: n for n in nodes if n.online}.items())]
