"""Uplinks to try slicing on, and what says of shares whether a cell can give them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from edge.slices.link import Link
from edge.slices.spectrum import TABLES
from edge.slices.uplink import Floats, Uplink

NEAR_PRBS = 1e-7
# At 60 dB and with power for each PRB, rate is proportional to PRBs.
LINEAR = Link(table=TABLES[1], slot_share=0.25, overhead=0.08)
CONCAVE = Link(table=TABLES[1], slot_share=0.25, overhead=0.08, power_limited=True)
STURDY = Link(table=TABLES[3], slot_share=0.25, overhead=0.08, layers=2, power_limited=True)
A_PRB_BPS = float(LINEAR.rate_bps(1.0, 60.0))


def uplink(bits: Any, *, links: tuple[Link, ...] = (LINEAR,), total: float = 100.0, **given: Any) -> Uplink:
    """An uplink of nodes 0, 1, ... in one slice after the other; what is not given is out of the way."""
    num, num_slices = len(bits), len(links)

    def column(name: str, default: float, length: int = num) -> Floats:
        return np.broadcast_to(np.asarray(given.get(name, default), np.float64), length).copy()

    return Uplink(
        now_s=given.get("now", 0.0),
        nodes=tuple(given.get("nodes", range(num))),
        release_s=column("release", 0.0),
        delay_s=column("delay", 0.0),
        bits=np.asarray(bits, np.float64),
        sinr_db=column("sinr", 60.0),
        most_prbs=column("most", total),
        slice=np.asarray(given.get("slices", np.arange(num) % num_slices), np.intp),
        names=("embb", "urllc", "mmtc")[:num_slices],
        links=links,
        total_prbs=total,
        dedicated=column("dedicated", 0.0, num_slices),
        maximum=column("maximum", total, num_slices),
        held=column("held", 0.0, num_slices),
    )


def random_uplink(seed: int, num: int, total: float = 50.0) -> Uplink:
    """Nodes far and near, in three slices of which some are dedicated, bounded and held."""
    source = np.random.default_rng(seed)
    dedicated = total * source.choice([0.0, 0.1, 0.2], 3)
    return uplink(
        source.uniform(2e5, 2e7, num),
        links=(CONCAVE, STURDY, LINEAR),
        total=total,
        nodes=source.permutation(num).tolist(),
        slices=source.integers(0, 3, num),
        now=2.0,
        release=source.uniform(0.0, 8.0, num),
        delay=source.uniform(0.0, 0.1, num),
        sinr=source.uniform(8.0, 30.0, num),
        most=total * source.choice([0.4, 1.0], num),
        dedicated=dedicated,
        maximum=np.maximum(total * source.choice([0.2, 0.5, 1.0], 3), dedicated),
        held=total * source.choice([0.0, 0.05, 0.15], 3),
    )


def cost(cell: Uplink, prbs: Floats) -> float:
    """PRBs that nobody else gets: of each slice what is used or held, or what is dedicated."""
    in_slice = np.array([prbs[cell.slice == index].sum() for index in range(len(cell.names))])
    return float(np.maximum(in_slice + cell.held, cell.dedicated).sum())


def allowed(cell: Uplink, prbs: Floats) -> bool:
    """Whether no limit is broken, other than one that the others break by themselves."""
    if (prbs < 0).any() or (prbs > cell.most_prbs + NEAR_PRBS).any():
        return False
    in_slice = np.array([prbs[cell.slice == index].sum() for index in range(len(cell.names))])
    if (in_slice > np.maximum(cell.maximum - cell.held, 0.0) + NEAR_PRBS).any():
        return False
    return cost(cell, prbs) <= max(cell.total_prbs, cost(cell, np.zeros(len(prbs)))) + NEAR_PRBS


def needed(cell: Uplink, finish_s: float) -> Floats:
    """The fewest PRBs for each to be done by a moment, straight from the definition."""
    window_s = finish_s - cell.delay_s - np.maximum(cell.release_s, cell.now_s)
    rate_bps = np.where(window_s > 0, cell.bits / np.where(window_s > 0, window_s, 1.0), np.inf)
    return np.where(cell.bits > 0, cell.prbs_for(rate_bps), 0.0)


@st.composite
def odd_uplinks(draw: st.DrawFn, most_nodes: int = 8) -> Uplink:
    """Anything that is a number: nobody there, all done, no channel, everything held, a release in the far future."""
    num, total = draw(st.integers(0, most_nodes)), draw(st.sampled_from([1.0, 11.0, 106.0]))

    def column(values: st.SearchStrategy[float], length: int = num) -> list[float]:
        return draw(st.lists(values, min_size=length, max_size=length))

    prbs = st.sampled_from([0.0, 0.1 * total, 0.5 * total, total, 3 * total]) | st.floats(0.0, 1.5 * total)
    return uplink(
        column(st.sampled_from([0.0, 1e-9, 1.0, 8e5, 8e7, 1e15]) | st.floats(0.0, 1e9)),
        links=(CONCAVE, STURDY, LINEAR),
        total=total,
        nodes=draw(st.permutations(range(num))),
        slices=draw(st.lists(st.integers(0, 2), min_size=num, max_size=num)),
        now=draw(st.sampled_from([0.0, 3.0, 1e6])),
        release=column(st.sampled_from([0.0, 5.0, 1e9, 1e30, np.inf]) | st.floats(0.0, 100.0)),
        delay=column(st.floats(0.0, 1.0)),
        sinr=column(st.floats(-50.0, 60.0)),
        most=column(prbs),
        dedicated=column(prbs, 3),
        maximum=column(prbs, 3),
        held=column(prbs, 3),
    )
