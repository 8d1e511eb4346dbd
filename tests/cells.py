"""Cells whose rates can be told by hand: everybody is so near that each resource block carries the best MCS."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edge.slices import Demand, Network, NetworkConfig, NodeProfile
from edge.slices.pathloss import Floats
from edge.slices.terminals import Availability

PRBS = 106
FOREVER_S = 1e15
DOWN_S, UP_S = 0.010, 0.020  # of an idle link
STILL: dict[str, Any] = {"fading_db": 0.0, "outage": {"mean_up_s": FOREVER_S}, "handover": {"mean_up_s": FOREVER_S}}
# MCS 28 of table 3 carries 6 x 772 / 1024 bits in each of 168 resource elements in 0.5 ms. So few of its blocks fail,
# one in 100,000, that what is sent anew takes less than a microsecond.
_BEST_BPS = 6 * 772 / 1024 * 168 / 0.5e-3 * (1 - 1e-5)
NEAR_S = 1e-6
DOWN_BPS = _BEST_BPS * 2 * 0.74 * (1 - 0.14)  # in one PRB, over two layers
UP_BPS = _BEST_BPS * 0.23 * (1 - 0.08)
HOUR_S = 3600.0


def a_slice(name: str, sst: int, up: dict[str, Any] | None = None, down: dict[str, Any] | None = None, **more: Any) -> Any:
    plain = {"mcs_table": 3}
    sides = {"down": {"delay_ms": 1e3 * DOWN_S, **plain, **(down or {})}, "up": {"delay_ms": 1e3 * UP_S, **plain, **(up or {})}}
    return {"name": name, "snssai": {"sst": sst}, "fiveqi": 9, **sides, **more}


def a_cell(*slices: Any, dynamics: dict[str, Any] = STILL, background: Sequence[Any] = (), **cell: Any) -> NetworkConfig:
    """Everybody stands 10 m from the antenna, and nothing moves; slices default to one, `embb`, without limits."""
    place = {"kind": "InF-SL", "nearest_m": 10.0, "farthest_m": 10.0, "gnb_height_m": 1.5}
    carrier = {"carrier_ghz": 3.7, "bandwidth_mhz": 40, "place": place, "dynamics": dynamics, **cell}
    tables = {"cell": carrier, "slices": list(slices) or [a_slice("embb", 1)], "background": list(background)}
    return NetworkConfig.model_validate(tables)


def network(config: NetworkConfig, slices: Sequence[str] = ("embb",), *, seed: int = 0, **node: Any) -> Network:
    """A network of one node for each slice named."""
    return Network(config, [NodeProfile(name="n", slice=name, **node) for name in slices], seed)


def demand(node: int, bytes_down: int = 0, compute_s: float = 0.0, bytes_up: int = 0) -> Demand:
    return Demand(node=node, bytes_down=bytes_down, compute_s=compute_s, bytes_up=bytes_up)


def alone_up_s(bytes_up: int, prbs: float = PRBS) -> float:
    return 8 * bytes_up / (prbs * UP_BPS)


def alone_down_s(bytes_down: int, prbs: float = PRBS) -> float:
    return 8 * bytes_down / (prbs * DOWN_BPS)


def interrupt(monkeypatch: pytest.MonkeyPatch, *spans: Sequence[tuple[float, float]]) -> None:
    """Let the links of nodes 0, 1, ... be down in the spans given, and never else."""

    def drawn(_self: Availability, hour: int) -> list[Floats]:
        begin_s = hour * HOUR_S
        within = [[np.clip(span, begin_s, begin_s + HOUR_S).tolist() for span in one] for one in spans]
        edges = [[at_s for begin, end in one if begin < end for at_s in (begin, end)] for one in within]
        return [np.array([row + [FOREVER_S] * (2 + max(map(len, edges)) - len(row)) for row in edges])]

    monkeypatch.setattr(Availability, "_drawn", drawn)
