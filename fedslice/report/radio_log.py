"""Reads what the log of events tells of the radio: who had how much of it in each round, and how well it carried."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedslice.core.records import NodeId
from fedslice.report.lines import as_number, as_numbers, objects, unreadable

WAYS = ("down", "up")


@dataclass(frozen=True, slots=True, kw_only=True)
class RadioRound:
    """What one round's exchange did on the radio. `shares` and `latency_ms` are by way, then by slice.

    The shares are of the cell's PRBs in consecutive steps; `links` are as logged, `sinr_up_db` and `up_bps` and the like.
    """

    from_s: float
    step_s: float
    shares: dict[str, dict[str, list[float]]]
    latency_ms: dict[str, dict[str, float]]
    links: dict[NodeId, dict[str, float]]


def read_radio(path: Path, notes: list[str]) -> list[RadioRound]:
    """Return what each round did on the radio, by virtual time."""
    # Keyed by round: a run that was killed and resumed may have logged one twice, and the later counts.
    found: dict[int, RadioRound] = {}
    for number, event in objects(path, notes, ('"radio"',)):
        try:
            if event["event"] == "radio":
                found[int(event["round"])] = _radio_round(event)
        except (KeyError, TypeError, ValueError, AttributeError):
            notes.append(unreadable(path, number))
    return sorted(found.values(), key=lambda item: item.from_s)


def _radio_round(event: dict[str, Any]) -> RadioRound:
    from_s, step_s = float(event["from_s"]), float(event["step_s"])
    if not (math.isfinite(from_s) and 0 < step_s < math.inf):
        raise ValueError("no time that could be drawn")
    latency = {_name(key): as_numbers(ways) for key, ways in event["latency_ms"].items()}
    return RadioRound(
        from_s=from_s,
        step_s=step_s,
        shares={way: _shares(event[way]) for way in WAYS},
        latency_ms={way: {key: ways[way] for key, ways in latency.items() if way in ways} for way in WAYS},
        links={int(node): as_numbers(link) for node, link in event["nodes"].items()},
    )


def _shares(slices: dict[str, list[Any]]) -> dict[str, list[float]]:
    shares = {_name(key): [as_number(share) for share in steps] for key, steps in slices.items()}
    if len({len(steps) for steps in shares.values()}) > 1:
        raise ValueError("the slices' shares are not of the same steps")
    return shares


def _name(key: str) -> str:
    return key or "no slice"
