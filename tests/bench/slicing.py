"""What slicing is worth: the same rounds over the same channels under one sharing of the uplink after another.

    python -m tests.bench.slicing [ROUNDS]

A hall under a 40 MHz carrier (n78, InF-SL, 10 to 250 m, 40 % of the nodes behind 12 dB): 8 cameras send 10 MB a round,
4 robots 2 MB, 8 sensors 0.2 MB, each times 0.8 to 1.25. They compute for 6, 3 and 8 s in the median, log-normal with
sigma 0.4. 5 % of the resource blocks stay with a slice for control traffic. The second table adds ten cameras of
somebody else, that take what they get and are promised 1.5 Mbit/s each. Rounds with a node out of the cell's reach are
left out. Ratios are to a peer of the same table, the median over
rounds; T* is that of each row's own ratios.
"""

import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge.slices import Demand, Network, NetworkConfig, NodeProfile, Slicing
from fedslice.core.federation import FederationConfig
from fedslice.core.seeds import rng
from server.slicing import DeadlineConfig, MinMaxConfig, ProportionalConfig, QuorumConfig, bound_s

KINDS = ("cameras",) * 8 + ("robots",) * 4 + ("sensors",) * 8
MEGABYTES = {"cameras": 10.0, "robots": 2.0, "sensors": 0.2}
COMPUTE_S = {"cameras": 6.0, "robots": 3.0, "sensors": 8.0}
QUORUM = 16  # of 20
GFBR_BPS, OFFERED_BPS = 1.5e6, 3e6
WAITS = FederationConfig()  # for every node of a round
Ratios = Mapping[str, tuple[int, int]]  # minimum and maximum in percent

THIRDS: Ratios = {"cameras": (32, 32), "robots": (31, 31), "sensors": (32, 32)}
HARD: Ratios = {"cameras": (57, 57), "robots": (19, 19), "sensors": (19, 19)}
BORROW: Ratios = {"cameras": (57, 95), "robots": (19, 95), "sensors": (19, 95)}
OPEN: Ratios = {"cameras": (0, 95), "robots": (0, 95), "sensors": (0, 95)}
FLAT = {"cameras": 8.0, "robots": 4.0, "sensors": 8.0, "others": 10.0}  # a weight a user: no slices, all alike


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one round."""

    ended_s: float
    quorum_s: float
    mean_s: float
    bound_s: float
    others_bps: float
    short: float


def profile(ratios: Ratios, weights: Mapping[str, float], *, others: tuple[int, int] | None) -> dict[str, Any]:
    """Return the tables of a cell with these ratios."""
    place = {"kind": "InF-SL", "farthest_m": 250.0, "gnb_height_m": 1.5, "obstructed_share": 0.4, "obstruction_db": 12.0}
    dynamics = {"fading_db": 3.0, "coherence_s": 0.5, "outage": {"mean_up_s": 1e9}}
    side = {"delay_ms": 0.0}

    def row(name: str, sst: int, least: int, most: int, **more: Any) -> dict[str, Any]:
        up = {"rrm": {"min": least, "max": most}, **side, **more.pop("up", {})}
        table = {"name": name, "snssai": {"sst": sst}, "fiveqi": 9, "down": dict(side), "up": up}
        return {**table, "weight": weights.get(name, 1.0), **more}

    slices = [row(name, 128 + i, *ratios[name]) for i, name in enumerate(("cameras", "robots", "sensors"))]
    slices[2]["terminal"] = {"power_dbm": 20.0}
    slices.append({**row("control", 131, 5, 5), "up": {"rrm": {"dedicated": 5, "min": 5, "max": 5}, **side}})
    if others:
        slices.append(row("others", 132, *others, fiveqi=4, up={"gfbr_bps": GFBR_BPS}))
    cell = {"carrier_ghz": 3.7, "bandwidth_mhz": 40, "place": place, "dynamics": dynamics}
    return {"cell": cell, "slices": slices}


def play(tables: Mapping[str, Any], slicing: Slicing | None, rounds: int) -> list[Round]:
    """Play rounds, each with its own nodes and channel; the same number gives the same ones whatever is shared how."""
    others = [s for s in tables["slices"] if s["name"] == "others"]
    played: list[Round] = []
    for number in itertools.count():
        if len(played) == rounds:
            break
        draw = rng(number, "bench")
        sizes = [int(1e6 * MEGABYTES[kind] * draw.uniform(0.8, 1.25)) for kind in KINDS]
        compute_s = [COMPUTE_S[kind] * float(draw.lognormal(0.0, 0.4)) for kind in KINDS]
        nodes = [NodeProfile(name=str(i), slice=kind, distance_m=draw.uniform(10, 250)) for i, kind in enumerate(KINDS)]
        demands = [
            Demand(node=i, bytes_down=size, compute_s=seconds, bytes_up=size)
            for i, (size, seconds) in enumerate(zip(sizes, compute_s, strict=True))
        ]
        rows = [{"slice": "others", "up_bps": OFFERED_BPS, "distance_m": draw.uniform(10, 100)} for _ in range(10)]
        config = NetworkConfig.model_validate({**tables, "background": rows if others else []})
        network = Network(config, nodes, number)
        if network.out_of_reach:
            continue  # nobody would put a node there
        traffic = network.carry(demands, 0.0, slicing)
        total_s = np.sort(traffic.download_s + traffic.compute_s + traffic.upload_s)
        use = traffic.use["up"]
        played.append(
            Round(
                ended_s=float(total_s[-1]),
                quorum_s=float(total_s[QUORUM - 1]),
                mean_s=float(total_s.mean()),
                bound_s=bound_s(traffic.start),
                others_bps=use.background_bits / use.until_s[-1],
                short=use.short_s / use.due_s if use.due_s else 0.0,
            )
        )
    return played


def figures(played: list[Round]) -> dict[str, float]:
    """Return the means over rounds, and the 95th percentile of their length."""
    ended_s = np.array([r.ended_s for r in played])
    return {
        "mean": float(ended_s.mean()),
        "p95": float(np.quantile(ended_s, 0.95)),
        "quorum": float(np.mean([r.quorum_s for r in played])),
        "node": float(np.mean([r.mean_s for r in played])),
        "bound": float(np.median([r.ended_s / r.bound_s for r in played])),
        "others": float(np.mean([r.others_bps for r in played])) / 1e6,
        "short": 100.0 * float(np.mean([r.short for r in played])),
    }


def without_others(rounds: int) -> None:
    """Print the first table."""
    shares = {"cameras": 60.0, "robots": 20.0, "sensors": 20.0}
    ways: dict[str, tuple[Ratios, Mapping[str, float], Slicing | None]] = {
        "hard thirds": (THIRDS, {}, None),
        "hard 60/20/20": (HARD, {}, None),
        "60/20/20, borrowing": (BORROW, shares, None),
        "no slices, all alike": (OPEN, FLAT, None),
        "proportional": (OPEN, FLAT, ProportionalConfig().build(WAITS)),
        "min_max": (OPEN, FLAT, MinMaxConfig().build(WAITS)),
        "quorum 80 %": (OPEN, FLAT, QuorumConfig().build(FederationConfig(close_at=QUORUM / len(KINDS)))),
    }
    played = {name: play(profile(r, w, others=None), s, rounds) for name, (r, w, s) in ways.items()}
    print(f"{'uplink':22} round s: mean   p95 | 80 % of nodes | a node | x thirds | x borrowing | 80 %: x borrowing | /T*")
    for name, rows in played.items():
        f = figures(rows)
        thirds, borrowing = (ratio(played[peer], rows) for peer in ("hard thirds", "60/20/20, borrowing"))
        early = figures(played["60/20/20, borrowing"])["quorum"] / f["quorum"]
        print(
            f"{name:22} {f['mean']:13.1f} {f['p95']:5.1f} | {f['quorum']:13.1f} | {f['node']:6.1f} "
            f"| {thirds:8.2f} | {borrowing:11.2f} | {early:17.2f} | {f['bound']:.2f}"
        )


def ratio(peer: list[Round], rows: list[Round]) -> float:
    """Return by how much rounds are shorter than a peer's in the median: in the mean one poor node would decide."""
    return float(np.median([p.ended_s / r.ended_s for p, r in zip(peer, rows, strict=True)]))


def with_others(rounds: int) -> None:
    """Print the second table."""
    ways: dict[str, tuple[Ratios, Mapping[str, float], tuple[int, int], Slicing | None]] = {
        "no slices, all alike": (OPEN, FLAT, (0, 95), None),
    }
    for learn, rest in ((30, 65), (50, 45), (70, 25)):
        part = {"cameras": (int(0.6 * learn), 95), "robots": (int(0.2 * learn), 95), "sensors": (int(0.2 * learn), 95)}
        ways[f"fixed {learn}/{rest}"] = (part, FLAT, (rest, 95), None)
    for deadline_s in (45.0, 60.0, 75.0, 90.0):
        ways[f"deadline {deadline_s:g} s"] = (OPEN, FLAT, (0, 95), DeadlineConfig(deadline_s=deadline_s).build(WAITS))
    played = {name: play(profile(r, w, others=o), s, rounds) for name, (r, w, o, s) in ways.items()}
    print(f"\n{'uplink, with others':22} round s: mean   p95 | others Mbit/s | GFBR missed % | x alike | x fixed 70/25")
    for name, rows in played.items():
        f = figures(rows)
        alike, fixed = (ratio(played[peer], rows) for peer in ("no slices, all alike", "fixed 70/25"))
        print(
            f"{name:22} {f['mean']:13.1f} {f['p95']:5.1f} | {f['others']:13.1f} | {f['short']:13.2f} "
            f"| {alike:7.2f} | {fixed:8.2f}"
        )


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    without_others(asked)
    with_others(asked)
