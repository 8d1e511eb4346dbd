"""From a Flower reply to our records."""

import math
from collections.abc import Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from edge.flower import to_params
from fedslice.core.records import NodeId, Update

_WEIGHT = "num-examples"


def update_of(reply: Message, node: NodeId) -> Update:
    """Return a training reply as an update. One that does not say what it carries carries whole weights.

    Raises:
        ValueError: The reply is an error, or not what a training reply must be; the text says how.
    """
    if reply.has_error():
        raise ValueError(reply.error.reason or f"error {reply.error.code}")
    records = [record for record in reply.content.values() if isinstance(record, ArrayRecord)]
    if len(records) != 1:
        raise ValueError(f"arrays: one record expected, {len(records)} came")
    weight, metrics = _weighted(reply)
    whole = _reported(reply, "carries") != "difference"
    return Update(node=node, arrays=to_params(records[0]), weight=weight, whole=whole, metrics=metrics)


def measurement_of(reply: Message) -> tuple[float, Mapping[str, float]]:
    """Return an evaluation reply as its weight and its metrics.

    Raises:
        ValueError: The reply is an error, or has no metrics.
    """
    if reply.has_error():
        raise ValueError(reply.error.reason or f"error {reply.error.code}")
    return _weighted(reply)


def _reported(reply: Message, key: str) -> object:
    report = reply.content.get("report")
    return report.get(key) if isinstance(report, ConfigRecord) else None


def _weighted(reply: Message) -> tuple[float, dict[str, float]]:
    records = [record for record in reply.content.values() if isinstance(record, MetricRecord)]
    if len(records) != 1:
        raise ValueError(f"metrics: one record expected, {len(records)} came")
    record = records[0]
    weight = record.get(_WEIGHT)
    if not isinstance(weight, int | float):
        raise ValueError(f"metrics: {_WEIGHT} is missing")  # noqa: TRY004 - a reply's fault, not a programmer's
    numbers = {name: _float(value) for name, value in record.items() if isinstance(value, int | float)}
    return numbers.pop(_WEIGHT), numbers


def _float(value: int | float) -> float:
    # Python's integers have no largest; on a wire Flower's do.
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
