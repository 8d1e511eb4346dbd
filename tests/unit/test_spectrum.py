"""TS 38.214's tables as printed, TS 38.306's peak rates, and rates by hand."""

import math

import numpy as np
import pytest

from edge.slices.link import (
    MAX_TRANSMISSIONS,
    PRBS,
    Link,
    goodput_share,
    harq_delay_s,
    noise_dbm,
    num_prbs,
    peak_bps,
    prb_sinr_db,
    residual_bler,
)
from edge.slices.pathloss import Place
from edge.slices.spectrum import TABLES, McsTable, attainable, required_sinr_db

MCS = {
    1: """.2344 .3066 .3770 .4902 .6016 .7402 .8770 1.0273 1.1758 1.3262 1.3281 1.4766 1.6953 1.9141 2.1602 2.4063 2.5703
       2.5664 2.7305 3.0293 3.3223 3.6094 3.9023 4.2129 4.5234 4.8164 5.1152 5.3320 5.5547""",
    2: """.2344 .3770 .6016 .8770 1.1758 1.4766 1.6953 1.9141 2.1602 2.4063 2.5703 2.7305 3.0293 3.3223 3.6094 3.9023
       4.2129 4.5234 4.8164 5.1152 5.3320 5.5547 5.8906 6.2266 6.5703 6.9141 7.1602 7.4063""",
    3: """.0586 .0781 .0977 .1250 .1523 .1934 .2344 .3066 .3770 .4902 .6016 .7402 .8770 1.0273 1.1758 1.3281 1.4766 1.6953
       1.9141 2.1602 2.4063 2.5664 2.7305 3.0293 3.3223 3.6094 3.9023 4.2129 4.5234""",
}
CQI = {
    1: ".1523 .2344 .3770 .6016 .8770 1.1758 1.4766 1.9141 2.4063 2.7305 3.3223 3.9023 4.5234 5.1152 5.5547",
    2: ".1523 .3770 .8770 1.4766 1.9141 2.4063 2.7305 3.3223 3.9023 4.5234 5.1152 5.5547 6.2266 6.9141 7.4063",
    3: ".0586 .0977 .1523 .2344 .3770 .6016 .8770 1.1758 1.4766 1.9141 2.4063 2.7305 3.3223 3.9023 4.5234",
}
CQI_SINR_DB = [-8.2, -6.2, -3.8, -1.3, 1.0, 2.9, 4.6, 6.9, 9.2, 10.6, 13.1, 15.5, 18.1, 20.5, 22.3]
SINRS = np.arange(-25.0, 45.0, 0.01)
ALL = pytest.mark.parametrize("number", [1, 2, 3])


def printed(text: str) -> list[float]:
    return [float(word) for word in text.split()]


@ALL
def test_an_efficiency_is_order_times_rate_to_the_printed_digits(number: int) -> None:
    table = TABLES[number]
    for rows, text in ((table.mcs_rows, MCS[number]), (table.cqi_rows, CQI[number])):
        worth = [order * rate / 1024 for order, rate in rows]
        # The specification rounds halves up: 682.5 is 5.33203125 and 2.40625 is printed 2.4063.
        assert [math.floor(one * 1e4 + 0.5) / 1e4 for one in worth] == pytest.approx(printed(text), abs=1e-9)
    assert table.efficiencies.tolist() == [order * rate / 1024 for order, rate in table.mcs_rows]
    assert (table.bler_target, table.margin_db) == {1: (0.1, 0.0), 2: (0.1, 0.0), 3: (1e-5, 3.0)}[number]
    assert (table.modulation_order, table.top_efficiency) == ({1: 6, 2: 8, 3: 6}[number], max(table.efficiencies))


def test_the_sinr_that_each_cqi_needs() -> None:
    assert required_sinr_db(printed(CQI[1])) == pytest.approx(CQI_SINR_DB, abs=0.06)
    assert attainable(required_sinr_db(printed(CQI[2]))) == pytest.approx(printed(CQI[2]), rel=1e-12)
    assert attainable(0.0) == pytest.approx(0.75)  # log2(1 + 1)
    assert attainable(10 * math.log10(15)) == pytest.approx(3.0)  # 0.75 log2(16)


@ALL
def test_a_lookup_never_falls_and_never_promises_more_than_there_is(number: int) -> None:
    table = TABLES[number]
    stepped, smooth = table.stepped_efficiency(SINRS), table.efficiency(SINRS)
    assert (np.diff(stepped) >= 0).all()
    assert (np.diff(smooth) >= 0).all()
    assert (np.maximum(stepped, smooth) <= attainable(SINRS - table.margin_db)).all()
    assert smooth[-1] == stepped[-1] == table.top_efficiency
    assert smooth[0] == stepped[0] == 0
    # The best row that fits, found the slow way.
    for sinr_db in (-30.0, -6.0, 0.0, 8.25, 14.0, 40.0):
        fits = [one for one in table.efficiencies if required_sinr_db(one) + table.margin_db <= sinr_db]
        assert table.stepped_efficiency(sinr_db) == max(fits, default=0.0)


@ALL
def test_the_smooth_efficiency_runs_through_the_middle_of_the_steps(number: int) -> None:
    table = TABLES[number]
    needed_db = required_sinr_db(table.efficiencies) + table.margin_db
    sinr_db = np.linspace(needed_db.min(), needed_db.max(), 100_001)
    stepped, smooth = table.stepped_efficiency(sinr_db), table.efficiency(sinr_db)
    assert smooth.mean() == pytest.approx(stepped.mean(), rel=0.005)
    # Half of 28.43 dB over 28 steps, 35.89 over 27, and 30.63 over 28 with the margin.
    assert table.loss_db == pytest.approx({1: 0.508, 2: 0.665, 3: 3.547}[number], abs=1e-3)
    # Farthest off at the foot, where a step is a third of the efficiency, or more than half in table 2.
    off = smooth / stepped - 1
    assert [off.min(), off.max()] == pytest.approx({1: [-0.1, 0.183], 2: [-0.129, 0.417], 3: [-0.116, 0.18]}[number], abs=1e-3)


def test_reliability_is_paid_for_in_rate() -> None:
    robust, plain = (Link(table=TABLES[number], slot_share=1.0, overhead=0.0) for number in (3, 1))
    # 0.75 log2(1 + S) at S = 10^(1 - 0.3547) and 10^(1 - 0.0508): 1.8285 x 0.99999 and 2.4802 x 0.9.
    assert robust.rate_bps(1, 10.0) / plain.rate_bps(1, 10.0) == pytest.approx(0.8191, abs=1e-4)
    assert (robust.rate_bps(1, SINRS[SINRS > -6.0]) < plain.rate_bps(1, SINRS[SINRS > -6.0])).all()


@ALL
def test_each_row_begins_at_its_own_sinr(number: int) -> None:
    table = TABLES[number]
    needed = required_sinr_db(table.efficiencies) + table.margin_db
    assert table.mcs(needed).tolist() == list(range(len(needed)))
    assert table.lowest_sinr_db == needed.min()
    assert table.mcs(table.lowest_sinr_db - 1e-6) == -1
    cqi_sinr = required_sinr_db([order * rate / 1024 for order, rate in table.cqi_rows]) + table.margin_db
    assert table.cqi(cqi_sinr).tolist() == list(range(1, 16))
    assert table.cqi(cqi_sinr - 1e-6).tolist() == list(range(15))


def test_mcs_16_of_table_1_is_worth_more_than_17() -> None:
    table = TABLES[1]
    assert table.efficiencies[16] > table.efficiencies[17]
    sixteen, seventeen = required_sinr_db(table.efficiencies[[16, 17]])
    assert table.mcs([seventeen, (sixteen + seventeen) / 2, sixteen, sixteen + 0.1]).tolist() == [17, 17, 16, 16]


def test_prbs_by_bandwidth() -> None:
    assert {mhz: num_prbs(mhz) for mhz in (20, 40, 50, 60, 80, 100)} == {20: 51, 40: 106, 50: 133, 60: 162, 80: 217, 100: 273}
    assert [num_prbs(mhz) for mhz in sorted(PRBS)] == sorted(PRBS.values())
    with pytest.raises(ValueError, match=r"37 MHz is not in TS 38.101-1 table 5.3.2-1 \(30 kHz\); there are 5, 10, 15, 20"):
        num_prbs(37)


@pytest.mark.parametrize(
    ("mhz", "layers", "order", "down", "mbps"),
    [
        (100, 2, 8, True, 865),
        (100, 4, 8, True, 1729),
        (100, 1, 6, False, 108),
        (100, 2, 8, False, 288),
        (40, 2, 8, True, 336),
        (40, 1, 6, False, 42),
        (20, 2, 8, True, 162),
        (20, 1, 6, False, 20),
    ],
)
def test_peak_rates_of_ts_38_306(mhz: int, layers: int, order: int, down: bool, mbps: int) -> None:
    overhead, share = (0.14, 0.74) if down else (0.08, 0.23)
    assert round(peak_bps(num_prbs(mhz), layers, order, overhead, share) / 1e6) == mbps


def test_a_link_at_high_sinr_has_the_peak_rate_less_its_retransmissions() -> None:
    for number, layers in ((1, 1), (2, 4)):
        link = Link(table=TABLES[number], slot_share=0.74, overhead=0.14, layers=layers)
        peak = peak_bps(106, layers, TABLES[number].modulation_order, 0.14, 0.74)
        assert link.rate_bps(106, 60.0) == pytest.approx(0.9 * peak, rel=1e-12)
    assert peak_bps(1, 1, 6, 0.08, 0.23) == pytest.approx(395e3, rel=1e-3)  # one uplink PRB


@pytest.mark.parametrize(
    ("distance_m", "loss_db", "steps", "mbps"),
    [
        # PRBs times the best MCS that the power reaches there; 49 PRBs carry more than 50 with the next lower one.
        (100.0, 101, [5.5547, 10 * 5.5547, 49 * 4.5234, 106 * 3.6094], [0.355, 3.554, 14.070, 24.453]),
        (200.0, 112, [5.5547, 10 * 3.3223, 50 * 1.9141, 106 * 1.3281], [0.355, 2.231, 6.096, 8.701]),
    ],
)
def test_an_uplink_in_a_dense_factory_is_limited_by_its_power(
    distance_m: float, loss_db: int, steps: list[float], mbps: list[float]
) -> None:
    place = Place(kind="InF-DL", farthest_m=300.0, gnb_height_m=1.5, clutter_density=0.6, clutter_size_m=2.0)
    path_loss_db = float(place.path_loss_db(distance_m, False, 3.7))
    assert round(path_loss_db) == loss_db
    sinr_db = prb_sinr_db(23.0, path_loss_db, 5.0)
    link = Link(table=TABLES[1], slot_share=0.23, overhead=0.08, power_limited=True)
    rates = link.rate_bps([1, 10, 50, 106], sinr_db)
    assert rates / 1e6 == pytest.approx(mbps, abs=1e-3)
    # The steps of one instant: within 1 % at 100 m, 5 % at 200 m.
    stepped = np.array(steps) * 336e3 * 0.23 * 0.92 * 0.9
    assert rates == pytest.approx(stepped, rel=0.01 if distance_m == 100.0 else 0.05)


def test_a_near_uplink_is_linear_up_to_the_whole_carrier() -> None:
    link = Link(table=TABLES[1], slot_share=0.23, overhead=0.08, power_limited=True)
    place = Place(kind="InF-DL", farthest_m=300.0, gnb_height_m=1.5, clutter_density=0.6, clutter_size_m=2.0)
    rates = link.rate_bps(np.arange(107), prb_sinr_db(23.0, place.path_loss_db(50.0, False, 3.7), 5.0))
    assert rates[106] / 1e6 == pytest.approx(37.7, rel=0.002)
    assert np.diff(rates) == pytest.approx(np.full(106, rates[1]), rel=1e-9)


def test_more_prbs_than_the_power_reaches_are_left_alone() -> None:
    table = TABLES[1]
    link = Link(table=table, slot_share=1.0, overhead=0.0, power_limited=True)
    sinr_db = table.lowest_sinr_db + 10 * math.log10(20.5)  # the first MCS over 20.5 PRBs
    prbs = np.arange(107)
    alone = prbs * 336e3 * 0.9 * table.efficiency(sinr_db - 10 * np.log10(np.maximum(prbs, 1)))
    running = np.maximum.accumulate(alone)
    found = link.rate_bps(prbs, sinr_db)
    assert found[:21] == pytest.approx(running[:21], rel=1e-9)
    assert (found[21:] == link.rate_bps(20.5, sinr_db)).all()
    assert running[-1] < found[-1] < running[-1] * 1.01
    assert (link.rate_bps(prbs, table.lowest_sinr_db - 0.01) == 0).all()
    for decibels in (0.0, 5.0, 60.0):  # a quarter of the slots, with all the power in each
        assert link.rate_bps(0.25, decibels) == pytest.approx(link.rate_bps(1.0, decibels) / 4)
    assert link.useful_prbs([sinr_db, 0.0, -7.0]) == pytest.approx([20.5, 10 ** (-table.lowest_sinr_db / 10), 0.0])


def test_the_prbs_that_a_rate_needs() -> None:
    up = Link(table=TABLES[1], slot_share=0.23, overhead=0.08, power_limited=True)
    sinr_db = np.array([30.0, 12.0, 0.0, -5.9, -7.0])
    for prbs in (0.3, 1.0, 2.5):
        needed = up.prbs_for(up.rate_bps(prbs, sinr_db), sinr_db)
        assert needed[:3] == pytest.approx([prbs] * 3, rel=1e-9)
    assert up.prbs_for(1e6, sinr_db)[-2:].tolist() == [math.inf, math.inf]
    assert up.prbs_for(0.0, sinr_db) == pytest.approx(np.zeros(5), abs=1e-12)
    down = Link(table=TABLES[2], slot_share=0.74, overhead=0.14, layers=2)
    assert down.prbs_for(down.rate_bps(40.0, 17.0), 17.0) == pytest.approx(40.0, rel=1e-9)


def test_layers_split_the_power() -> None:
    one, four = (Link(table=TABLES[2], slot_share=1.0, overhead=0.0, layers=layers) for layers in (1, 4))
    assert four.rate_bps(10, 20.0) == pytest.approx(4 * one.rate_bps(10, 20.0 - 10 * math.log10(4)), rel=1e-9)
    assert four.rate_bps(10, 60.0) == pytest.approx(4 * one.rate_bps(10, 60.0), rel=1e-12)


@pytest.mark.parametrize("power_limited", [False, True])
def test_a_weak_signal_is_not_split_over_layers_until_nothing_gets_through(power_limited: bool) -> None:
    one, four = (
        Link(table=TABLES[1], slot_share=1.0, overhead=0.0, layers=layers, power_limited=power_limited) for layers in (1, 4)
    )
    lowest = TABLES[1].lowest_sinr_db
    assert four.rate_bps(10, lowest) == pytest.approx(one.rate_bps(10, lowest), rel=1e-9)
    assert four.rate_bps(1, lowest + 10 * math.log10(3)) == pytest.approx(3 * one.rate_bps(1, lowest), rel=1e-8)
    assert (four.rate_bps(10, np.arange(lowest, 40.0)) >= one.rate_bps(10, np.arange(lowest, 40.0)) * (1 - 1e-9)).all()
    assert four.rate_bps(0.75, 5.0) == pytest.approx(0.75 * four.rate_bps(1, 5.0), rel=1e-12)
    assert four.useful_prbs(lowest + 20.0) == pytest.approx(25.0 if power_limited else math.inf)


def test_noise_in_one_prb() -> None:
    assert noise_dbm(5.0) == pytest.approx(-113.4, abs=0.05)
    assert prb_sinr_db(23.0, 101.0, 5.0) == pytest.approx(23 - 101 + 113.4370, abs=1e-3)


def test_harq_costs_exactly_its_retransmissions() -> None:
    for bler in (0.0, 1e-5, 0.1, 0.5):
        sent = sum(bler**i for i in range(MAX_TRANSMISSIONS))
        assert goodput_share(bler) == pytest.approx((1 - residual_bler(bler)) / sent, rel=1e-12)
    assert residual_bler(0.1) == pytest.approx(1e-4)
    assert harq_delay_s(0.1, 4.5e-3) == pytest.approx(0.5e-3, rel=0.01)


def test_a_table_stands_still() -> None:
    table: McsTable = TABLES[1]
    with pytest.raises(ValueError, match="read-only"):
        table.efficiencies[0] = 1.0
