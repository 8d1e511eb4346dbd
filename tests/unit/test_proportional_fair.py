"""Scheduling by the channel: it gains what its table says for the SINR at which a stream works, and no more than there is."""

import math

import numpy as np
import pytest

from edge.slices import Demand, Network, NetworkConfig, NodeProfile
from edge.slices.lane import Lane
from edge.slices.scheduler import proportional_fair_gain

EVERYBODY = np.arange(4)


def lane(scheduler: str, fading_db: float, sinr_db: float) -> Lane:
    tables = {"cell": {"scheduler": scheduler, "dynamics": {"fading_db": fading_db}}}
    config = NetworkConfig.model_validate(tables)
    ones = np.ones(4)
    made = Lane(config, "up", np.zeros(4, np.intp), np.full(4, math.inf), np.zeros(4, np.bool_), ones)
    made.hear(np.full(4, sinr_db), EVERYBODY)
    return made


def rates(scheduler: str, fading_db: float, sinr_db: float) -> tuple[float, float]:
    prbs, rate_bps = lane(scheduler, fading_db, sinr_db).share(np.ones(4, np.bool_))
    return float(prbs[0]), float(rate_bps[0])


def test_the_gain_is_that_of_the_sinr_of_a_stream() -> None:
    prbs, even_bps = rates("round_robin", 3.0, 22.0)
    assert prbs == pytest.approx(0.95 * 106 / 4)  # all but what is dedicated to URLLC
    link = NetworkConfig.model_validate({}).link(NetworkConfig.model_validate({}).slices[0], "up")
    stream_db = 22.0 - link.table.loss_db - 10 * math.log10(prbs)
    gain = float(proportional_fair_gain(4, stream_db))
    assert 1.2 < gain < 1.7
    same, gained_bps = rates("proportional_fair", 3.0, 22.0)
    assert same == prbs
    assert gained_bps == pytest.approx(gain * even_bps, rel=1e-9)


def test_nothing_is_gained_without_fading_or_beyond_the_best_mcs() -> None:
    assert rates("proportional_fair", 0.0, 22.0) == rates("round_robin", 0.0, 22.0)
    assert rates("proportional_fair", 3.0, 60.0) == rates("round_robin", 3.0, 60.0)
    _, near_top_bps = rates("proportional_fair", 3.0, 37.0)
    assert near_top_bps == pytest.approx(rates("round_robin", 3.0, 60.0)[1], rel=1e-9)  # 38.306's peak and no more


def test_rounds_are_shorter_by_it() -> None:
    ended_s = {}
    for scheduler in ("round_robin", "proportional_fair"):
        tables = {"cell": {"scheduler": scheduler, "dynamics": {"outage": {"mean_up_s": 1e12}}}}
        nodes = [NodeProfile(name="far", slice="embb", distance_m=240.0)] * 6
        cell = Network(NetworkConfig.model_validate(tables), nodes, 3)
        traffic = cell.carry([Demand(node=i, bytes_down=0, compute_s=0.0, bytes_up=10**6) for i in range(6)], 0.0)
        ended_s[scheduler] = float(traffic.upload_s.max())
    assert ended_s["proportional_fair"] < 0.97 * ended_s["round_robin"]
