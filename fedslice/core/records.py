"""Frozen records that the parts hand to one another. No behaviour lives here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedslice.core.params import Params

NodeId = int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What the coordinator knows of a node: what it declared, and what it last reported.

    Any number may be odd (NaN, negative, missing): a report is a claim, and policies must cope. `num_rounds` counts
    the rounds in which the node was asked to train, `last_round` is the last of them.
    """

    node: NodeId
    num_examples: int
    slice: str = ""
    online: bool = True
    loss: float | None = None
    round_s: float | None = None
    last_round: int = 0
    num_rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One node's contribution to a round.

    `arrays` are differences to the model it was sent or, when `whole`, its own parameters.
    """

    node: NodeId
    arrays: Params
    weight: float
    whole: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A reply that was not folded, and why."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One line of `rounds.jsonl`. All but `wall_s` is the same whenever the run is repeated.

    `round_s` is how long the round's exchange took on the virtual clock, and `bound_s` is T*, the least time that any
    sharing of the radio could have taken at the median channel of its start. Either is None where it is not known.
    """

    round: int
    virtual_s: float
    wall_s: float
    selected: list[NodeId]
    replied: list[NodeId]
    rejected: list[Rejection]
    bytes_down: int
    bytes_up: int
    joules: float
    slices: dict[str, dict[str, float]]
    train: dict[str, float]
    evaluate: dict[str, float]
    void: bool = False
    round_s: float | None = None
    bound_s: float | None = None


def as_json(value: Any) -> Any:
    """Return what `json` can write: JSON has no NaN and no infinity, so these become null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value
