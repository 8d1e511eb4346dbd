"""What a cell offers: its slices, and what each node gets of them. For people; nothing is simulated."""

from dataclasses import asdict
from typing import Any

import numpy as np

from edge.slices.model import Network
from edge.slices.profile import WAYS, SliceProfile


def survey(network: Network) -> dict[str, Any]:
    """Return plain rows: `cell`, `slices`, `nodes` and `background`; rates in bit/s, SINR in dB of one PRB, delays in ms."""
    config, cell = network.config, network.config.cell
    return {
        "cell": {
            "carrier_ghz": cell.carrier_ghz,
            "bandwidth_mhz": cell.bandwidth_mhz,
            "prbs": cell.prbs,
            "place": cell.place.kind,
            "down_share": cell.down_share,
            "up_share": cell.up_share,
        },
        "slices": [_slice_row(network, index, one) for index, one in enumerate(config.slices)],
        "nodes": _terminal_rows(network, 0, network.num_nodes),
        "background": _terminal_rows(network, network.num_nodes, len(network.outcomes)),
    }


def _slice_row(network: Network, index: int, one: SliceProfile) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": one.name,
        "snssai": str(one.snssai),
        "fiveqi": one.fiveqi,
        "resource": one.qos.resource,
        "delay_budget_ms": one.qos.delay_budget_ms,
        "arp": one.arp.priority,
    }
    for way in WAYS:
        side = one.side(way)
        latency, late = network.messages(one, way)
        row[way] = {
            "dedicated": side.rrm.dedicated,
            "min": side.rrm.min,
            "max": side.rrm.max,
            "gfbr_bps": side.gfbr_bps,
            "most_bps": min(side.mfbr_bps, side.ue_ambr_bps, side.slice_mbr_bps),
            "peak_bps": network.config.peak_bps(one, way),
            "latency_ms": 1e3 * latency.total_s,
            "late_share": late,
        }
    of_slice = [network.slice_of(terminal) is one for terminal in range(len(network.outcomes))]
    row |= {"nodes": sum(of_slice[: network.num_nodes]), "background": sum(of_slice[network.num_nodes :])}
    return {**row, "error_rate": one.qos.error_rate, "admission": asdict(network.counters[index])}


def _terminal_rows(network: Network, first: int, beyond: int) -> list[dict[str, Any]]:
    who = np.arange(first, beyond)
    distance_m = network.terminals.distance_m(0.0, who).tolist()
    down_db, up_db = (row.tolist() for row in network.terminals.sinr_db(0.0, who, faded=False))
    tables = [network.config.link(network.slice_of(terminal), "down").table for terminal in who.tolist()]
    return [
        {
            "node": terminal,
            "slice": network.slice_of(terminal).name,
            "distance_m": distance_m[at],
            "sinr_down_db": down_db[at],
            "sinr_up_db": up_db[at],
            "cqi": int(tables[at].cqi(down_db[at])),
            "alone_down_bps": float(network.alone_bps["down"][terminal]),
            "alone_up_bps": float(network.alone_bps["up"][terminal]),
            "together_down_bps": float(network.together_bps["down"][terminal]),
            "together_up_bps": float(network.together_bps["up"][terminal]),
            "guaranteed": network.outcomes[terminal].guaranteed,
            "reason": network.outcomes[terminal].reason,
        }
        for at, terminal in enumerate(who.tolist())
    ]
