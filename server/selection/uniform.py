"""Uniform: every node has the same chance in every round."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.records import NodeId, NodeReport
from server.selection.policy import online


class UniformConfig(Table):
    """`cohort` nodes a round, drawn without replacement."""

    policy: Literal["uniform"] = "uniform"
    cohort: Annotated[int, Field(ge=1)] = 5

    def build(self) -> "Uniform":
        """Return the policy."""
        return Uniform()


class Uniform:
    """Draws without replacement; learns nothing."""

    def select(self, nodes: Sequence[NodeReport], k: int, rng: np.random.Generator) -> list[NodeId]:
        """Return `k` nodes."""
        ids = [n.node for n in online(nodes)]
        return sorted(int(i) for i in rng.choice(ids, size=min(max(k, 0), len(ids)), replace=False)) if ids else []

    def observe(self, round_number: int, cohort: Sequence[NodeReport]) -> None:
        """Learn nothing."""

    def state(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Need nothing."""
