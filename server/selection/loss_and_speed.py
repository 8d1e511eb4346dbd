"""Loss and speed: prefer nodes whose data the model knows badly and that answer soon; keep exploring.

After Oort (Lai et al., OSDI 2021, section 4): utility by loss, a bonus for nodes long unseen, and on both a penalty
for slowness. Simpler than Oort: the mean training loss, not its root mean square times the number of examples; the
median of round times as the preferred one, not a pacer; the best nodes, not a draw among them; nothing is clipped.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.records import NodeId, NodeReport
from server.selection.policy import online

_LARGEST = float(np.finfo(np.float32).max)
_BEHIND = 1e3  # more than any utility


class LossAndSpeedConfig(Table):
    """`cohort` nodes a round, of which a share is explored rather than preferred."""

    policy: Literal["loss_and_speed"] = "loss_and_speed"
    cohort: Annotated[int, Field(ge=1)] = 5
    exploration: Annotated[float, Field(ge=0, le=1)] = 0.2
    slowness_penalty: Annotated[float, Field(ge=0)] = 1.0

    def build(self) -> "LossAndSpeed":
        """Return the policy."""
        return LossAndSpeed(self.exploration, self.slowness_penalty)


class LossAndSpeed:
    """Utility by loss, penalty by round time, exploration."""

    def __init__(self, exploration: float, slowness_penalty: float) -> None:
        """Keep the settings.

        Args:
            exploration: Share of the cohort given to nodes that never trained, or else to chance.
            slowness_penalty: Exponent of preferred over predicted round time, for nodes slower than preferred.
        """
        self._exploration, self._penalty = exploration, slowness_penalty
        self._round = 0

    def select(self, nodes: Sequence[NodeReport], k: int, rng: np.random.Generator) -> list[NodeId]:
        """Return `k` nodes: the most useful of those seen before, and some explored."""
        there = online(nodes)
        k = min(max(k, 0), len(there))
        seen = [n for n in there if n.num_rounds > 0]
        num_explored = max(math.ceil(self._exploration * k), k - len(seen))
        useful = self._ranked(seen)[: k - num_explored]
        # Never-seen nodes first; among equals, chance decides.
        others = sorted(set(n.node for n in there) - set(useful))
        fresh = {n.node for n in there if n.num_rounds == 0}
        drawn = [others[i] for i in rng.permutation(len(others))]
        return sorted(useful + sorted(drawn, key=lambda node: node not in fresh)[:num_explored])

    def observe(self, round_number: int, cohort: Sequence[NodeReport]) -> None:
        """Count rounds; losses and times are in the reports."""
        self._round = round_number

    def state(self) -> dict[str, Any]:
        """Return the last round that counted."""
        return {"round": self._round}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from that round."""
        self._round = state["round"]

    def _ranked(self, seen: Sequence[NodeReport]) -> list[NodeId]:
        if not seen:
            return []
        losses = np.array([_positive(n.loss) for n in seen])
        times = np.array([_positive(n.round_s) for n in seen])
        odd = np.array([n.loss is None or not 0 <= n.loss <= _LARGEST for n in seen])
        ages = np.array([max(1, self._round - n.last_round + 1) for n in seen], np.float64)
        utility = losses / max(losses.max(), 1e-12)
        # Oort's bonus for the long unseen, sqrt(0.1 ln R / L), with the age in place of the last round's inverse.
        utility = utility + np.sqrt(0.1 * np.log(1 + self._round) * ages / (1 + self._round))
        known = times[times > 0]
        preferred = np.median(known) if len(known) else 0.0
        # A node whose time nobody knows is taken to be slower than the slowest.
        times[times == 0] = 2 * known.max(initial=0.0)
        slow = times > preferred
        utility[slow] *= (preferred / times[slow]) ** self._penalty
        # A node whose report makes no sense comes after all others, and is still explored.
        utility[odd] -= _BEHIND
        return [seen[i].node for i in np.argsort(-utility, kind="stable")]


def _positive(value: float | None) -> float:
    """Return a report's number, or 0 where it is missing, negative, not a number, or more than any loss or time is."""
    return float(value) if value is not None and 0 < value <= _LARGEST else 0.0
