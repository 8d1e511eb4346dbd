"""Who answered in a round, with what, and who was refused why."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edge.simulation import Phase
from fedslice.core.records import NodeId, Rejection, Update

NO_REPLY = "no reply before the deadline"
_SENSELESS = 1e300  # a claim from which on sums could overflow; NaN is not below it either


@dataclass(frozen=True, slots=True)
class Accepted:
    """An update that was folded, without its arrays, and the norm of its change."""

    update: Update
    norm: float


class Ledger:
    """Filled while replies are read, in any order; read in node order."""

    def __init__(self, cohort: Sequence[NodeId]) -> None:
        """Expect a reply of each of the cohort."""
        self._cohort = cohort
        self._accepted: dict[NodeId, Accepted] = {}
        self.rejected: list[Rejection] = []

    @property
    def replied(self) -> list[NodeId]:
        """Return the nodes whose updates were folded."""
        return list(self._accepted)

    def seen(self, node: NodeId) -> bool:
        """Return whether a node has answered before."""
        return node in self._accepted or any(r.node == node for r in self.rejected)

    def accept(self, update: Update, norm: float) -> None:
        """Note an update that goes on to be folded."""
        self._accepted[update.node] = Accepted(replace(update, arrays={}), norm)

    def reject(self, node: NodeId, reason: str) -> None:
        """Note a reply that does not."""
        self.rejected.append(Rejection(node=node, reason=reason))

    def close(self) -> None:
        """Note who never answered."""
        for node in self._cohort:
            if not self.seen(node):
                self.reject(node, NO_REPLY)

    def accepted(self) -> list[Accepted]:
        """Return what was folded, in node order."""
        return [self._accepted[node] for node in sorted(self._accepted)]

    def metrics(self) -> dict[str, float]:
        """Return the weighted mean of each training metric."""
        return weighted_metrics([(a.update.weight, a.update.metrics) for a in self.accepted()])


def weighted_metrics(terms: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Return the weighted mean of each metric over those who report it as a number; NaN if nobody does."""
    pairs = [(weight, metrics) for weight, metrics in terms if 0 < weight < _SENSELESS]
    names = sorted({name for _, metrics in pairs for name in metrics})
    means = {}
    for name in names:
        known = [(w, m[name]) for w, m in pairs if abs(m.get(name, math.nan)) < _SENSELESS]
        total = math.fsum(w for w, _ in known)
        means[name] = math.fsum(w / total * value for w, value in known) if known else math.nan
    return means


def slice_use(phase: Phase, slice_of: Callable[[NodeId], str]) -> dict[str, dict[str, float]]:
    """Return what each slice carried in a phase: nodes, bytes each way, and seconds of transfer."""
    use: dict[str, dict[str, float]] = {}
    for node in sorted(phase.timings):
        timing = phase.timings[node]
        row = use.setdefault(slice_of(node), {"nodes": 0, "bytes_down": 0, "bytes_up": 0, "busy_s": 0.0})
        row["nodes"] += 1
        row["bytes_down"] += timing.bytes_down
        row["bytes_up"] += timing.bytes_up
        row["busy_s"] += timing.download_s + timing.upload_s
    return dict(sorted(use.items()))
